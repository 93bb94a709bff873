"""One server's watch, pure: which events, orders and looks follow from what was seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from llama_watchdog.core.action import Action, Done, Identity, Result
from llama_watchdog.core.engine import QUIET_AFTER_CANCEL, SOONEST, Engine, Step
from llama_watchdog.core.observation import Health, Left, Observation, Outcome, Process, Unit, Watch
from llama_watchdog.core.policy import LadderPolicy, Policy, RestartPolicy, Rung, StallPolicy
from llama_watchdog.core.standing import Order, Stage, Standing
from llama_watchdog.core.verdict import State
from tests.support.facts import CPU_SERVER, PID, process, seen, slot

DONE = Result(Done.DONE, "done")
UNSUPPORTED = Result(Done.UNSUPPORTED, "can't be done here")
KILL_ONLY = Policy(escalation=LadderPolicy(ladder=(Rung.SIGKILL,)))


def frozen(at: float, **parts: Any) -> Observation:
    return seen(at, slot(decoded=30), cpu=(20.0, 20.0), **parts)


def idle(at: float, **parts: Any) -> Observation:
    return seen(at, slot(busy=False), cpu=(20.0, 20.0), **parts)


def gone(at: float, unit: Unit | None = None) -> Observation:
    ended = Process(Outcome.GONE, PID, 1, "Z")
    return Observation(at, health=None, slots=None, process=ended, unit=unit)


def steps(engine: Engine, look: Any = frozen, *, at: float = 0.0) -> Iterator[tuple[float, Step]]:
    """One poll after the other, each as soon as the engine wants it."""
    while True:
        step = engine.step(look(at))
        yield at, step
        at = step.next_look


def ordered(engine: Engine, look: Any = frozen, *, at: float = 0.0) -> tuple[float, Order]:
    """When the next order comes, and which."""
    return next((when, step.order) for when, step in steps(engine, look, at=at) if step.order)


# Events


def test_one_event_for_each_change_of_the_verdict() -> None:
    engine = Engine(Policy(), CPU_SERVER)
    told = [event["verdict"] for n in range(4) for event in engine.step(idle(5.0 * n)).events]
    for at, step in steps(engine, at=20.0):
        told += [event["verdict"] for event in step.events if event["event"] == "verdict"]
        if at > 60.0:
            break
    assert told == ["idle", "busy", "suspect", "wedged"]


def test_events_say_whose_they_are_and_that_nothing_was_really_done() -> None:
    engine = Engine(Policy(), replace(CPU_SERVER, server="chat"), dry_run=True)
    at, order = ordered(engine)
    (event,) = engine.done(order, DONE, at)
    assert (event["server"], event["action"], event["outcome"]) == ("chat", "cancel", "done")
    assert event["dry_run"] is True
    assert event["elapsed"] == round(at, 3)


# Orders


def test_a_blocked_server_is_first_cancelled_within_its_budget() -> None:
    at, order = ordered(Engine(Policy(), CPU_SERVER))
    assert order.action is Action.CANCEL
    assert order.target == Identity(PID, 1)
    assert 30.0 <= at <= 35.0


def test_each_rung_follows_as_soon_as_its_grace_is_over() -> None:
    engine = Engine(Policy(), CPU_SERVER)
    actions, times, at = [], [], 0.0
    for _ in range(4):
        at, order = ordered(engine, at=at)
        actions.append(order.action.value)
        times.append(at)
        engine.done(order, DONE, at)
        at = engine.next_look(at)
    assert actions == ["cancel", "sigterm", "sigterm", "sigkill"]
    graces = [after - before for before, after in pairwise(times)]
    assert graces == pytest.approx([5.0, 3.0, 3.0], abs=SOONEST)


def test_a_process_that_has_gone_is_restarted_at_once_and_named_in_the_order() -> None:
    """Whoever restarts has to know which incarnation has ended, though nothing of it can be seen any more."""
    engine = Engine(Policy(), CPU_SERVER)
    engine.step(idle(0.0))
    at, order = ordered(engine, gone, at=5.0)
    assert (order.action, order.target) == (Action.RESTART, Identity(PID, 1))
    assert at - 5.0 <= 1.0 + SOONEST


def test_a_server_that_moves_again_is_let_alone() -> None:
    engine = Engine(Policy(), CPU_SERVER)
    wedged = next(step for _, step in steps(engine) if step.verdict.state is State.WEDGED)
    step = engine.step(idle(wedged.next_look))
    assert (step.verdict.state, step.order) == (State.IDLE, None)
    assert engine.calm


# What the escalation says before the judge


def test_held_is_said_once_and_lasts_until_it_serves() -> None:
    engine = Engine(Policy(restart=RestartPolicy(max_restarts=0)), CPU_SERVER)
    engine.step(idle(0.0))
    told = [event for n in range(1, 9) for event in engine.step(gone(5.0 * n)).events]
    words = [event["verdict"] if event["event"] == "verdict" else event["action"] for event in told]
    assert words == ["down", "held", "hold"]
    assert engine.verdict is not None
    assert engine.verdict.state is State.HELD
    assert not engine.calm
    step = engine.step(idle(60.0, process=process(start=2)))
    assert step.verdict.state is State.IDLE
    assert engine.calm


def test_alive_after_sigkill_is_unkillable_and_nothing_more_is_ordered() -> None:
    engine = Engine(KILL_ONLY, CPU_SERVER)
    at, order = ordered(engine)
    engine.done(order, DONE, at)
    later = [step for _, step in zip(range(20), (s for _, s in steps(engine, at=at + 5.0)), strict=False)]
    assert later[-1].verdict.state is State.UNKILLABLE
    assert all(step.order is None for step in later)
    assert [e["verdict"] for s in later for e in s.events if e["event"] == "verdict"] == ["unkillable"]


# What is asked


def test_slots_is_left_alone_after_a_cancel() -> None:
    """A request without streaming is freed only after a second without a result for anyone."""
    engine = Engine(Policy(), CPU_SERVER)
    at, order = ordered(engine)
    assert engine.ask(at).slots
    engine.done(order, DONE, at)
    assert not engine.ask(at + QUIET_AFTER_CANCEL - 0.1).slots
    assert engine.ask(at + QUIET_AFTER_CANCEL).slots


def test_a_cancel_that_cannot_be_done_yields_to_the_next_rung_at_once() -> None:
    engine = Engine(Policy(), CPU_SERVER)
    at, order = ordered(engine)
    engine.done(order, UNSUPPORTED, at)

    def look(when: float) -> Observation:
        return frozen(when) if engine.ask(when).slots else frozen(when, slots=None)

    then, order = ordered(engine, look, at=engine.next_look(at))
    assert order.action is Action.SIGTERM
    assert then - at <= 1.0


# When to look


def test_looks_come_at_the_interval_and_sooner_where_a_budget_ends() -> None:
    engine = Engine(Policy(stall=StallPolicy(blocked=13.0)), CPU_SERVER)
    assert engine.step(idle(0.0)).next_look == 5.0
    looks = []
    for at, step in steps(engine, at=5.0):
        looks.append(at)
        if step.order:
            break
    assert 18.0 in looks
    assert looks[-1] == pytest.approx(19.0)  # the look before acting


@pytest.mark.parametrize("interval", [0.25, 1.0, 5.0, 60.0])
def test_no_look_comes_sooner_than_a_quarter_of_a_second(interval: float) -> None:
    engine = Engine(Policy(), replace(CPU_SERVER, interval=interval))
    last = 0.0
    for number, (at, step) in enumerate(steps(engine)):
        assert step.next_look - at >= SOONEST
        assert step.next_look - at <= interval
        if step.order:
            engine.done(step.order, DONE, at)
        last = at
        if number > 300:
            break
    assert last > 0.0


def test_a_quiet_server_is_looked_at_at_its_interval() -> None:
    engine = Engine(Policy(), Watch(interval=60.0, uses_gpu=False))
    assert [at for _, (at, _) in zip(range(4), steps(engine, idle), strict=False)] == [
        0.0,
        60.0,
        120.0,
        180.0,
    ]


def test_a_deadline_that_has_passed_makes_no_haste() -> None:
    """systemd is starting it, which may take minutes: nothing is gained by polling as fast as can be."""
    engine = Engine(Policy(), CPU_SERVER)
    engine.step(idle(0.0))
    busy = Unit(Outcome.OK, "loaded", "activating", "start")
    at, step = next((at, s) for at, s in steps(engine, lambda at: gone(at, busy), at=5.0) if at > 20.0)
    assert engine.standing.stage is Stage.RESTARTING
    assert step.next_look - at >= 1.0


@pytest.mark.parametrize("waits_for", ["what systemd does", "its port"])
def test_while_a_start_waits_for_the_world_it_is_looked_at_each_second(waits_for: str) -> None:
    """How long that takes nobody knows, and a free port should be taken at once, not at the next interval."""
    engine = Engine(Policy(), Watch(interval=60.0, uses_gpu=False))
    engine.step(idle(0.0))
    stopping = Unit(Outcome.OK, "loaded", "deactivating", "stop-sigterm")
    left = Left(port="nginx (pid 12)")

    def waiting(at: float) -> Observation:
        return gone(at, stopping) if waits_for == "what systemd does" else replace(gone(at), left=left)

    looks = [at for _, (at, _) in zip(range(8), steps(engine, waiting, at=5.0), strict=False)]
    assert engine.standing.stage is Stage.RESTARTING
    assert [after - before for before, after in pairwise(looks[2:])] == pytest.approx([1.0] * 5)


def test_a_pause_before_a_restart_is_slept_through() -> None:
    engine = Engine(Policy(restart=RestartPolicy(backoff=40.0)), replace(CPU_SERVER, interval=60.0))
    engine.take_over(Standing(Stage.RESTARTING, 1, Identity(PID, 1), until=45.0, restarts=(-10.0,)))
    assert engine.step(gone(5.0)).next_look == 45.0


# Hands off


def test_hands_off_orders_nothing_whatever_is_seen() -> None:
    engine = Engine(Policy(), CPU_SERVER)
    engine.hands_off = "paused by its admin"
    played = [step for _, step in zip(range(40), (s for _, s in steps(engine)), strict=False)]
    assert all(step.order is None for step in played)
    assert played[-1].verdict.state is State.WEDGED
    assert engine.standing == Standing()
    assert {event["event"] for step in played for event in step.events} == {"verdict"}


def test_hands_off_in_mid_ladder_drops_it_and_says_so_once() -> None:
    engine = Engine(Policy(), CPU_SERVER)
    at, order = ordered(engine)
    engine.done(order, DONE, at)
    engine.hands_off = "paused by its admin"
    later = [step for _, step in zip(range(9), (s for _, s in steps(engine, at=at + 5.0)), strict=False)]
    assert all(step.order is None for step in later)
    assert [e["text"] for step in later for e in step.events if e["event"] == "action"] == [
        "hands off: paused by its admin"
    ]


def test_hands_on_again_the_fault_is_confirmed_anew() -> None:
    engine = Engine(Policy(), CPU_SERVER)
    engine.hands_off = "paused by its admin"
    at = next(at for at, step in steps(engine) if step.verdict.state is State.WEDGED)
    engine.hands_off = ""
    assert engine.step(frozen(at + 5.0)).order is None
    order = engine.step(frozen(at + 6.0)).order
    assert order is not None
    assert order.action is Action.CANCEL


# Taking over


OLD = Identity(PID, 1)


def test_a_restart_that_was_taken_over_names_the_incarnation_that_has_ended() -> None:
    """Nothing was seen of it in this watch; whoever restarts must still not take its successor for it."""
    engine = Engine(Policy(), CPU_SERVER)
    engine.take_over(Standing(Stage.RESTARTING, 3, OLD, until=0.0, resumed=True))
    order = engine.step(Observation(1.0, process=Process(Outcome.GONE, PID, 1))).order
    assert order is not None
    assert (order.action, order.target, order.incident) == (Action.RESTART, OLD, 3)


@pytest.mark.parametrize("seen_to_end", [True, False])
def test_one_that_has_ended_is_named_though_it_was_never_seen_alive(*, seen_to_end: bool) -> None:
    """It was well when the watchdog before this one ended, and no incident was at hand."""
    engine = Engine(Policy(), CPU_SERVER)
    engine.take_over(Standing(Stage.WATCHING, 3, OLD, resumed=True))
    failed = Unit(Outcome.OK, "loaded", "failed", "failed", "signal")

    def refused(at: float) -> Observation:
        unseen = Process(Outcome.UNSUPPORTED)
        return Observation(at, health=Health(Outcome.REFUSED), process=unseen, unit=failed)

    _, order = ordered(engine, gone if seen_to_end else refused, at=1.0)
    assert (order.action, order.target, order.incident) == (Action.RESTART, OLD, 4)


def test_a_ladder_that_was_taken_over_goes_on_with_its_next_rung() -> None:
    engine = Engine(Policy(), CPU_SERVER)
    engine.take_over(Standing(Stage.CLIMBING, 3, OLD, rung=1, until=2.0, signalled=True, resumed=True))
    at, order = ordered(engine, at=0.0)
    assert (at, order.action, order.target) == (2.0, Action.SIGTERM, OLD)


def test_an_incident_that_was_taken_over_is_over_once_tokens_have_moved() -> None:
    engine = Engine(Policy(), CPU_SERVER)
    engine.take_over(Standing(Stage.CLIMBING, 3, OLD, rung=0, until=2.0, last=Action.CANCEL, resumed=True))
    played = [engine.step(seen(5.0 * n, slot(decoded=30 + n))) for n in range(3)]
    told = [[event["event"] for event in step.events] for step in played]
    assert told == [["verdict"], ["action"], []]
    assert engine.standing.stage is Stage.WATCHING


def test_after_a_release_orders_go_on() -> None:
    policy = Policy(escalation=KILL_ONLY.escalation, restart=RestartPolicy(max_restarts=0))
    engine = Engine(policy, CPU_SERVER)
    at = next(at for at, step in steps(engine, gone) if step.verdict.state is State.HELD)
    engine.reconfigure(Policy(), dry_run=False)
    assert engine.step(gone(at + 5.0)).order is None
    (event,) = engine.release(at + 6.0)
    assert (event["action"], event["text"]) == ("hold", "released: restarts go on")
    order = engine.step(gone(at + 7.0)).order
    assert order is not None
    assert order.action is Action.RESTART


def test_what_is_left_of_a_server_is_killed_by_its_own_identity() -> None:
    engine = Engine(Policy(), CPU_SERVER)
    engine.step(idle(0.0))
    left = Left((Identity(PID + 1, 7),))
    at, order = ordered(engine, lambda at: replace(gone(at), left=left), at=5.0)
    assert (order.action, order.left, order.target) == (Action.SIGKILL, left.processes, OLD)
    assert at - 5.0 <= 1.0 + 3.0 + 1.0  # confirmed, its moment is over, and the look after that


def test_a_new_configuration_loses_nothing_that_is_known() -> None:
    engine = Engine(Policy(), CPU_SERVER)
    step = next(step for at, step in steps(engine) if at >= 15.0)
    judge = engine.judge
    engine.reconfigure(Policy(stall=StallPolicy(blocked=20.0)), dry_run=True)
    assert engine.judge is judge
    then, order = ordered(engine, at=step.next_look)
    assert 20.0 <= then <= 22.0
    (event,) = engine.done(order, DONE, then)
    assert event["dry_run"] is True


def test_what_is_newly_known_of_the_server_is_judged_by() -> None:
    engine = Engine(Policy(), Watch(interval=5.0))
    engine.adopt(replace(CPU_SERVER, interval=2.0))
    assert engine.step(idle(0.0)).next_look == 2.0
    at, _ = ordered(engine, at=2.0)
    assert 30.0 <= at - 2.0 <= 35.0  # blocked: whether a GPU works would not be known without


def test_calm_is_a_server_that_is_well() -> None:
    engine = Engine(Policy(), CPU_SERVER)
    assert not engine.calm
    engine.step(idle(0.0))
    assert engine.calm
    engine.step(gone(5.0))
    assert not engine.calm


# dry_run, switched in the middle of an incident

STOPPED = Unit(Outcome.OK, "loaded", "inactive", "dead", "success")


def climbed(engine: Engine, last: Action) -> float:
    """Its ladder, up to and with this rung; until when."""
    at = 0.0
    while True:
        at, order = ordered(engine, at=at)
        engine.done(order, DONE, at)
        at = engine.next_look(at)
        if order.action is last:
            return at


def test_a_wedge_that_was_only_rehearsed_is_acted_upon_once_that_is_wanted() -> None:
    engine = Engine(Policy(), CPU_SERVER, dry_run=True)
    at = climbed(engine, Action.RESTART)
    assert [step.order for _, (_, step) in zip(range(9), steps(engine, at=at), strict=False)] == [None] * 9
    engine.reconfigure(Policy(), dry_run=False)
    at, order = ordered(engine, at=at + 60.0)
    (event,) = engine.done(order, DONE, at)
    assert (event["action"], event["outcome"], event["dry_run"]) == ("cancel", "done", False)


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_stop_after_the_switch_is_its_admins_and_not_of_a_signal_before_it(*, dry_run: bool) -> None:
    engine = Engine(Policy(), CPU_SERVER, dry_run=dry_run)
    at = climbed(engine, Action.SIGTERM)
    engine.reconfigure(Policy(), dry_run=not dry_run)
    played = [engine.step(gone(at + n, STOPPED)) for n in range(5)]
    assert [step.order for step in played] == [None] * 5
    (told,) = [e["text"] for step in played for e in step.events if e["event"] == "action"]
    assert told == "left alone: its unit was stopped"
