"""Real faults, from the first symptom to a server that serves again, in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llama_watchdog.core.action import Action
from llama_watchdog.core.policy import Policy, RestartPolicy
from llama_watchdog.core.verdict import State
from llama_watchdog.simulator.config import ServerConfig, Task
from llama_watchdog.simulator.faults import Fault
from llama_watchdog.simulator.happenings import Happening, Request, Strike
from llama_watchdog.simulator.traces import Watcher
from tests.support.play import Play

SERVER = ServerConfig(load_seconds=8.0)
LONG = Task(prompt=100, predict=3000)
SHORT = Task(prompt=20, predict=40)


def decoding(fault: Fault, at: float = 60.0) -> list[Happening]:
    """A long generation, and a fault in the middle of it."""
    return [Request(20.0, LONG), Strike(at, fault)]


def idle(fault: Fault, at: float = 60.0) -> list[Happening]:
    """A short generation, long over when the fault strikes."""
    return [Request(20.0, SHORT), Strike(at, fault)]


@pytest.mark.parametrize("happenings", [decoding(Fault.BLOCK), idle(Fault.BLOCK)], ids=["decoding", "idle"])
@pytest.mark.parametrize("answers", [True, False], ids=["today", "old"])
def test_a_blocked_server_is_back_within_a_minute_and_its_load(
    happenings: list[Happening], answers: bool
) -> None:
    play = Play(replace(SERVER, answers_mid_step=answers), happenings).run(240.0)
    back = play.serving_again()
    assert back is not None
    assert back - 60.0 <= 60.0 + SERVER.load_seconds
    assert play.done.count("restart") == 1


@pytest.mark.parametrize("happenings", [decoding(Fault.SPIN), idle(Fault.SPIN)], ids=["decoding", "idle"])
def test_a_spinning_server_is_back_within_90_s_and_its_load(happenings: list[Happening]) -> None:
    play = Play(SERVER, happenings).run(300.0)
    back = play.serving_again()
    assert back is not None
    assert back - 60.0 <= 90.0 + SERVER.load_seconds
    assert play.done.count("restart") == 1


@pytest.mark.parametrize("fault", [Fault.FREEZE, Fault.HANG_SLOTS, Fault.BLOCK, Fault.SPIN])
def test_each_fault_is_healed_by_one_restart_and_the_story_is_told(fault: Fault) -> None:
    play = Play(SERVER, decoding(fault)).run(400.0)
    assert play.done.count("restart") == 1
    assert play.verdicts[-1][1] is State.IDLE
    told = [event.get("verdict") or f"{event['action']} {event['outcome']}" for event in play.events]
    assert told.index("wedged") < told.index("restart started") < told.index("restart healed")


def test_a_slot_that_the_cancel_frees_costs_no_signal() -> None:
    play = Play(SERVER, decoding(Fault.FROZEN_UNTIL_CANCEL)).run(300.0)
    assert play.done == ["cancel"]
    assert play.verdicts[-1][1] is State.IDLE


def test_a_server_that_ignores_two_sigterms_is_killed() -> None:
    play = Play(replace(SERVER, second_sigterm_hangs=True), decoding(Fault.BLOCK)).run(300.0)
    assert play.done == ["cancel", "sigterm", "sigterm", "sigkill", "restart"]


def test_a_crash_is_noticed_at_the_next_poll() -> None:
    play = Play(SERVER, decoding(Fault.CRASH)).run(120.0)
    assert play.done == ["restart"]
    assert play.first_action() <= 60.0 + 5.0 + 2.0


def test_requests_put_off_for_ever_are_found_by_the_queue() -> None:
    happenings = [*idle(Fault.DEAF), Request(70.0, SHORT), Request(71.0, SHORT)]
    play = Play(replace(SERVER, endpoint_metrics=True), happenings).run(200.0)
    assert "restart" in play.done
    assert play.first_action() <= 70.0 + 30.0 + 10.0


def test_a_load_that_hangs_is_ended_once_its_progress_has_stopped_for_long() -> None:
    play = Play(ServerConfig(load_seconds=600.0), [Strike(100.0, Fault.LOAD_HANG)]).run(3000.0)
    assert play.done.count("restart") == 1
    assert 1800.0 <= play.first_action() - 100.0 <= 1800.0 + 15.0


def test_a_wedge_after_hours_of_work_is_found_as_soon_as_any_other() -> None:
    """The rate of all that work must not lend a still process its patience."""
    busy = [Request(20.0 + 100.0 * n, Task(prompt=500, predict=2500)) for n in range(100)]
    strike = Strike(9000.0, Fault.BLOCK)
    play = Play(SERVER, [*busy[:90], strike]).run(9300.0)
    assert 30.0 <= play.first_action() - 9000.0 <= 45.0


def test_a_server_that_wedges_again_and_again_is_held_at_the_limit() -> None:
    """No incarnation delivers a token, so none is forgiven."""
    policy = Policy(restart=RestartPolicy(max_restarts=2, start_timeout=60.0))
    play = Play(SERVER, [*idle(Fault.CRASH)], policy)
    play.run(62.0)
    while play.watch.due < 3000.0 and play.verdicts[-1][1] is not State.HELD:
        if not play.engine.calm:
            play.watch.world.happen(Strike(play.watch.world.now, Fault.CRASH))
        play.run(play.watch.due + 1.0)
    assert play.done.count("restart") == 2
    assert play.verdicts[-1][1] is State.HELD


@pytest.mark.parametrize("fault", [Fault.BLOCK, Fault.SPIN])
def test_a_dry_run_tells_the_same_story_and_touches_nothing(fault: Fault) -> None:
    real = Play(SERVER, decoding(fault)).run(150.0)
    dry = Play(SERVER, decoding(fault), dry_run=True).run(600.0)
    assert dry.first_action() == pytest.approx(real.first_action(), abs=0.1)
    assert dry.done == ["cancel", "sigterm", "sigterm", "sigkill", "restart"]
    assert dry.watch.world.model.incarnation == 0


def test_without_rights_the_restart_does_it_all() -> None:
    impossible = frozenset({Action.CANCEL, Action.SIGTERM, Action.SIGKILL})
    play = Play(SERVER, decoding(Fault.BLOCK), impossible=impossible).run(200.0)
    assert play.done[-1] == "restart"
    assert play.verdicts[-1][1] is State.IDLE


@pytest.mark.parametrize("interval", [1.0, 2.0, 10.0])
def test_the_budget_holds_at_any_interval(interval: float) -> None:
    play = Play(SERVER, decoding(Fault.BLOCK), watcher=Watcher(interval=interval)).run(200.0)
    assert 30.0 <= play.first_action() - 60.0 <= 30.0 + 2 * interval


def test_a_canary_finds_a_server_that_accepts_everything_and_runs_nothing() -> None:
    """Without /metrics, and with slots that look idle, only a request of our own can tell."""
    play = Play(SERVER, idle(Fault.DEAF), canary=True).run(300.0)
    assert play.done.count("restart") == 1
    assert any(event.get("reason") == "canary" for event in play.events)
    assert play.verdicts[-1][1] is State.IDLE


def test_a_canary_leaves_a_healthy_server_alone() -> None:
    assert Play(SERVER, [Request(20.0, SHORT)], canary=True).run(1000.0).done == []
