"""The ladder and the breaker: from verdicts to orders, and never one too many."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from llama_watchdog.core.action import Action, Done, Result
from llama_watchdog.core.escalation import TRIED_AGAIN_AFTER
from llama_watchdog.core.observation import Outcome, Unit
from llama_watchdog.core.policy import LadderPolicy, Policy, RestartPolicy, Rung
from llama_watchdog.core.standing import Stage
from llama_watchdog.core.verdict import State, Verdict
from tests.support.bench import (
    ACTIVE,
    FAILED,
    FROZEN,
    GONE,
    HANGS,
    IDLE,
    LOADING,
    NEW,
    OLD,
    STOPPED,
    Bench,
)


def test_one_look_at_a_fault_is_confirmed_before_anything_is_done() -> None:
    assert Bench().see(FROZEN).actions == []
    assert Bench().see(FROZEN).see(IDLE).see(FROZEN).actions == []
    assert Bench().see(FROZEN, times=2).actions == ["cancel"]


def test_the_ladder_is_climbed_rung_by_rung() -> None:
    bench = Bench().see(FROZEN, times=6, after=11.0)
    assert bench.actions == ["cancel", "sigterm", "sigterm", "sigkill"]
    assert {order.target for order in bench.orders} == {OLD}


def test_a_grace_is_waited_for() -> None:
    assert Bench().see(FROZEN, times=6, after=1.0).actions == ["cancel"]


def test_a_loop_that_hangs_cannot_cancel() -> None:
    assert Bench().see(HANGS, times=3).actions[0] == "sigterm"


def test_a_cancel_that_heals_ends_the_incident() -> None:
    bench = Bench().see(FROZEN, times=2).see(IDLE, times=10)
    assert bench.actions == ["cancel"]
    assert bench.reports[-1].outcome is Done.HEALED


def test_a_rung_that_cannot_be_done_yields_at_once() -> None:
    bench = Bench()
    bench.results[Action.CANCEL] = Result(Done.UNSUPPORTED, "no client is connected")
    bench.see(FROZEN, times=2).see(FROZEN, after=0.3)
    assert bench.actions == ["cancel", "sigterm"]


def test_a_server_that_ended_is_restarted_at_once() -> None:
    bench = Bench().see(FROZEN, times=2).see(FROZEN, after=6.0).see(GONE, None, FAILED, after=1.0)
    assert bench.actions == ["cancel", "sigterm", "restart"]


def test_a_restart_is_healed_once_it_serves() -> None:
    bench = Bench().see(GONE, None, times=2).see(LOADING, NEW, times=100).see(IDLE, NEW)
    assert bench.actions == ["restart"]
    assert [report.outcome for report in bench.reports] == [Done.STARTED, Done.HEALED]
    assert bench.standing.stage is Stage.WATCHING


def test_alive_after_sigkill_is_unkillable_and_nothing_is_started_beside_it() -> None:
    bench = Bench().see(FROZEN, times=100)
    assert bench.standing.stage is Stage.UNKILLABLE
    assert "restart" not in bench.actions
    assert bench.see(GONE, None).actions[-1] == "restart"


def test_without_the_right_to_signal_the_restart_is_left_to_systemd() -> None:
    bench = Bench()
    for action in (Action.CANCEL, Action.SIGTERM, Action.SIGKILL):
        bench.results[action] = Result(Done.UNSUPPORTED, "no right")
    bench.see(FROZEN, times=8)
    assert bench.actions == ["cancel", "sigterm", "sigterm", "sigkill", "restart"]


def test_a_new_incarnation_in_mid_ladder_gets_no_signal_for_the_old_one() -> None:
    bench = Bench().see(FROZEN, times=2).see(LOADING, NEW, times=50)
    assert bench.actions == ["cancel"]
    assert bench.standing.stage is Stage.STARTING


def test_a_process_stopped_by_a_person_ends_the_ladder() -> None:
    bench = Bench().see(FROZEN, times=2).see(Verdict(State.PAUSED), times=50)
    assert bench.actions == ["cancel"]


@pytest.mark.parametrize(
    "unit",
    [
        STOPPED,
        replace(ACTIVE, job="stop"),
        replace(ACTIVE, job="restart"),
        replace(STOPPED, load="masked"),
        replace(STOPPED, load="not-found"),
    ],
)
def test_what_its_admin_stopped_is_left_alone_and_said_once(unit: Unit) -> None:
    bench = Bench().see(GONE, None, unit, times=100)
    assert bench.actions == []
    assert [report.action for report in bench.reports] == [Action.HOLD]


def test_the_admin_may_stop_it_in_mid_ladder() -> None:
    bench = Bench().see(FROZEN, OLD, ACTIVE, times=2)
    bench.see(FROZEN, OLD, replace(ACTIVE, active="deactivating", job="stop"), times=3)
    # systemd had to kill it: to its own eyes a failure, but still its admin's will
    bench.see(GONE, None, replace(FAILED, result="timeout"), times=50)
    assert bench.actions == ["cancel"]


def test_after_the_admin_starts_it_again_it_is_watched_again() -> None:
    bench = Bench().see(GONE, None, STOPPED, times=3).see(IDLE, NEW, ACTIVE)
    assert bench.see(GONE, None, FAILED, times=2).actions == ["restart"]


def test_a_start_that_nobody_has_seen_ends_the_stop_once_it_serves() -> None:
    """Of a server that is well the supervisor isn't asked."""
    bench = Bench().see(GONE, None, STOPPED, times=3).see(IDLE, NEW, None)
    assert bench.see(GONE, NEW, FAILED, times=2).actions == ["restart"]


@pytest.mark.parametrize(
    ("ladder", "job", "stage"),
    [
        ((), "restart", Stage.STARTING),
        ((), "stop", Stage.WATCHING),
        ((Rung.SIGTERM,), "restart", Stage.WATCHING),
    ],
)
def test_a_restart_job_is_our_own_only_once_we_have_ordered_one(
    ladder: tuple[Rung, ...], job: str, stage: Stage
) -> None:
    """Ours lasts as long as the wedged one takes to end, by default 90 s. The next one is looked after."""
    bench = Bench(Policy(escalation=LadderPolicy(ladder=ladder))).see(HANGS, OLD, ACTIVE, times=2)
    bench.see(HANGS, OLD, replace(ACTIVE, active="deactivating", job=job), times=3)
    assert bench.standing.stage is stage
    left_alone = any(report.action is Action.HOLD for report in bench.reports)
    assert left_alone == (stage is Stage.WATCHING)


def test_our_own_sigterm_honoured_is_no_admins_stop() -> None:
    """It leaves the unit inactive without a failure, exactly as `systemctl stop` does."""
    bench = Bench().see(HANGS, OLD, ACTIVE, times=2).see(GONE, None, STOPPED)
    assert bench.actions == ["sigterm", "restart"]


def test_a_clean_exit_that_was_not_ours_is_left_alone() -> None:
    assert Bench().see(GONE, None, STOPPED, times=5).actions == []


def test_systemd_that_restarts_by_itself_is_waited_for() -> None:
    auto = Unit(Outcome.OK, "loaded", "activating", "auto-restart", "signal")
    bench = Bench().see(GONE, None, auto, times=30).see(LOADING, NEW, ACTIVE, times=3).see(IDLE, NEW, ACTIVE)
    assert bench.actions == []
    assert bench.standing.stage is Stage.WATCHING


def failing(bench: Bench, looks: int) -> Bench:
    return bench.see(GONE, None, FAILED, times=looks, after=1.0)


def test_the_first_restart_waits_for_nothing_and_later_ones_ever_longer() -> None:
    bench = failing(Bench(), 100)
    times = bench.standing.restarts
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert times[0] == 2.0
    assert pauses == sorted(pauses)
    assert pauses[0] >= 5.0
    assert pauses[-1] >= 40.0


def test_restarts_stop_at_the_limit_and_say_why() -> None:
    bench = failing(Bench(), 1000)
    assert bench.actions.count("restart") == 5
    assert bench.standing.stage is Stage.HELD
    assert bench.reports[-1].action is Action.HOLD
    assert "exit status 137" in bench.reports[-1].text


def test_a_held_server_that_serves_again_is_watched_again() -> None:
    bench = failing(Bench(), 1000).see(IDLE, NEW, ACTIVE)
    assert bench.standing.stage is Stage.WATCHING


def test_turning_green_forgives_nothing_but_delivered_tokens_do() -> None:
    bench = Bench().see(GONE, None, FAILED, times=2).see(IDLE, NEW, ACTIVE, times=5)
    assert len(bench.standing.restarts) == 1
    assert bench.see(IDLE, NEW, ACTIVE, delivered=True).standing.restarts == ()


def test_a_restart_just_ordered_is_not_taken_for_a_failure() -> None:
    """Right after `systemctl start` the unit still shows its old failure, with the new job pending."""
    bench = Bench().see(GONE, None, FAILED, times=2).see(GONE, None, replace(FAILED, job="start"), times=30)
    assert bench.actions == ["restart"]


def test_nothing_that_starts_is_waited_for_only_so_long() -> None:
    policy = Policy(restart=RestartPolicy(start_timeout=60.0))
    bench = Bench(policy).see(GONE, None, times=20)
    assert bench.actions == ["restart", "restart"]


def test_a_dry_run_tells_the_whole_story_once() -> None:
    bench = Bench(dry_run=True).see(FROZEN, times=200)
    assert bench.actions == ["cancel", "sigterm", "sigterm", "sigkill", "restart"]
    assert bench.see(IDLE).standing.stage is Stage.WATCHING


def test_a_ladder_without_sigkill_ends_in_a_restart() -> None:
    policy = Policy(escalation=LadderPolicy(ladder=(Rung.SIGTERM,)))
    assert Bench(policy).see(FROZEN, times=10).actions == ["sigterm", "restart"]


def test_a_healthy_look_after_our_sigterm_stops_the_ladder_and_remembers_the_signal() -> None:
    """It may still end of it, and must then be restarted."""
    bench = Bench().see(HANGS, OLD, ACTIVE, times=2).see(IDLE, OLD, ACTIVE, times=3)
    assert bench.actions == ["sigterm"]
    assert bench.see(GONE, None, STOPPED, times=2).actions == ["sigterm", "restart"]


def test_each_incident_has_a_number_of_its_own() -> None:
    bench = Bench().see(FROZEN, times=2).see(IDLE).see(FROZEN, times=2)
    assert [order.incident for order in bench.orders] == [1, 2]


def test_a_starting_server_that_a_person_has_stopped_is_not_restarted_for_its_slowness() -> None:
    policy = Policy(restart=RestartPolicy(start_timeout=60.0))
    bench = Bench(policy).see(GONE, None, times=2).see(LOADING, NEW)
    assert bench.see(Verdict(State.PAUSED), NEW, times=100).actions == ["restart"]


@pytest.mark.parametrize("unit", [None, STOPPED])
@pytest.mark.parametrize(("outcome", "again"), [(Done.FAILED, ["restart"]), (Done.UNSUPPORTED, [])])
def test_a_restart_that_was_refused_is_tried_again_and_each_try_counts(
    unit: Unit | None, outcome: Done, again: list[str]
) -> None:
    """As by a systemd that did not answer in time. One that can't be had here is not had by asking again."""
    bench = Bench().see(HANGS, OLD, ACTIVE, times=2)
    bench.results[Action.RESTART] = Result(outcome, "no answer within 5 s")
    bench.see(GONE, OLD, unit)
    assert bench.see(GONE, OLD, unit, after=TRIED_AGAIN_AFTER - 0.1).actions == ["sigterm", "restart"]
    assert bench.see(GONE, OLD, unit, after=0.1).actions == ["sigterm", "restart", *again]
    assert len(bench.standing.restarts) == 1 + len(again)
