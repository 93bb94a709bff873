"""When a server that has ended is started again: what has to be gone before, and how often."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from llama_watchdog.core.action import Action, Done, Identity, Result
from llama_watchdog.core.escalation import aside
from llama_watchdog.core.observation import Left, Unit
from llama_watchdog.core.policy import Policy, RestartPolicy
from llama_watchdog.core.restarting import FREE_WITHIN, pause_before_restart, release
from llama_watchdog.core.standing import Move, Stage, Standing
from llama_watchdog.core.verdict import Reason, State, Verdict
from tests.support.bench import ACTIVE, FAILED, FROZEN, GONE, HANGS, IDLE, LOADING, NEW, OLD, Bench

ORPHANS = (Identity(101, 5), Identity(102, 6))
OUTLIVED = Left(ORPHANS)
NOTHING = Left()
SPAN = 10.0  # of SIGKILL's grace
TERM = 3.0  # of SIGTERM's
LINGERING = replace(FAILED, active="deactivating", sub="stop-sigterm")


def down(left: Left | None, bench: Bench | None = None, unit: Unit | None = FAILED) -> Bench:
    """Its process has ended, and that was confirmed; this is what is left of it."""
    return (bench or Bench()).see(GONE, None, unit, after=1.0, times=2, left=left)


# What it has left behind


def test_where_nothing_is_left_it_is_started_at_once() -> None:
    assert down(NOTHING).actions == ["restart"]
    assert down(None).actions == ["restart"]


def test_what_is_left_gets_a_moment_to_end_by_itself() -> None:
    bench = down(OUTLIVED).see(GONE, None, FAILED, after=TERM - 0.1, left=OUTLIVED)
    assert bench.actions == []
    assert bench.see(GONE, None, FAILED, after=0.1, left=NOTHING).actions == ["restart"]


@pytest.mark.parametrize("unit", [FAILED, LINGERING, None])
def test_what_is_left_is_killed_once_and_then_it_is_started(unit: Unit | None) -> None:
    bench = down(OUTLIVED, unit=unit).see(GONE, None, unit, after=TERM, left=OUTLIVED)
    (order,) = bench.orders
    assert (order.action, order.left, order.target) == (Action.SIGKILL, ORPHANS, bench.standing.target)
    bench.see(GONE, None, unit, times=9, after=1.0, left=OUTLIVED)
    assert len(bench.orders) == 1
    bench.see(GONE, None, FAILED, after=0.5, left=NOTHING)
    assert bench.actions == ["sigkill", "restart"]
    assert bench.orders[1].left == ()


def test_what_outlives_that_is_unkillable_and_nothing_is_started_beside_it() -> None:
    bench = down(OUTLIVED).see(GONE, None, FAILED, after=TERM, left=OUTLIVED)
    stages = [
        bench.see(GONE, None, FAILED, after=after, left=OUTLIVED).standing.stage
        for after in (SPAN - 0.1, 0.1)
    ]
    assert stages == [Stage.RESTARTING, Stage.UNKILLABLE]
    bench.see(GONE, None, FAILED, times=500, left=OUTLIVED)
    assert bench.actions == ["sigkill"]
    assert bench.see(GONE, None, FAILED, left=NOTHING).actions == ["sigkill", "restart"]


def test_after_each_end_what_is_left_is_killed_anew() -> None:
    bench = Bench(Policy(restart=RestartPolicy(backoff=0.0)))
    for number in range(1, 3):
        down(OUTLIVED, bench).see(GONE, None, FAILED, after=TERM, left=OUTLIVED)
        bench.see(GONE, None, FAILED, after=1.0, left=NOTHING)
        assert bench.actions == ["sigkill", "restart"] * number
        bench.see(LOADING, NEW, ACTIVE)


def test_an_end_in_mid_ladder_waits_for_what_is_left_as_well() -> None:
    bench = Bench().see(FROZEN, times=2).see(FROZEN, after=6.0)
    bench.see(GONE, None, FAILED, after=1.0, left=OUTLIVED).see(GONE, None, FAILED, after=TERM, left=OUTLIVED)
    assert bench.actions == ["cancel", "sigterm", "sigkill"]


def test_what_systemd_starts_before_the_server_is_not_taken_for_remains() -> None:
    """An ExecStartPre= that fetches the model, say: in the unit's cgroup, and no main process yet."""
    starting = replace(FAILED, active="activating", sub="start-pre")
    bench = down(NOTHING, unit=replace(FAILED, active="activating", sub="auto-restart"))
    bench.see(GONE, None, starting, times=60, left=OUTLIVED)
    assert bench.actions == []


def test_remains_that_systemd_would_start_beside_are_killed() -> None:
    """With KillMode=process they outlive even the unit, and hold the port of the next server."""
    waiting = replace(FAILED, active="activating", sub="auto-restart")
    bench = down(OUTLIVED, unit=waiting).see(GONE, None, waiting, after=TERM, left=OUTLIVED)
    assert bench.actions == ["sigkill"]


def test_remains_that_may_not_be_killed_shorten_no_pause() -> None:
    bench = Bench(Policy(restart=RestartPolicy(backoff=100.0)))
    bench.results[Action.SIGKILL] = Result(Done.UNSUPPORTED, "no right")
    down(NOTHING, bench).see(LOADING, NEW, ACTIVE).see(GONE, None, FAILED, left=OUTLIVED)
    bench.see(GONE, None, FAILED, after=TERM, left=OUTLIVED)
    assert bench.actions == ["restart", "sigkill"]
    bench.see(GONE, None, FAILED, after=1.0, times=90, left=NOTHING)
    assert bench.actions == ["restart", "sigkill"]
    assert bench.see(GONE, None, FAILED, after=10.0, left=NOTHING).actions[-1] == "restart"


@pytest.mark.parametrize(("signalled", "actions"), [(False, ["restart"]), (True, ["sigterm", "sigkill"])])
def test_what_else_an_active_unit_runs_is_killed_only_where_we_have_signalled_it(
    *, signalled: bool, actions: list[str]
) -> None:
    """Two servers in one unit, say, of which one has crashed: the other one is well."""
    bench = Bench().see(HANGS, OLD, ACTIVE, times=2) if signalled else Bench()
    down(OUTLIVED, bench, ACTIVE).see(GONE, None, ACTIVE, after=TERM, left=OUTLIVED)
    assert bench.actions == actions


# Its port and its memory


@pytest.mark.parametrize("taken", [Left(port="nginx (pid 12)"), Left(gpu=True)])
def test_a_taken_port_and_taken_memory_are_waited_for(taken: Left) -> None:
    bench = down(taken).see(GONE, None, FAILED, after=1.0, times=20, left=taken)
    assert bench.actions == []
    assert bench.see(GONE, None, FAILED, after=1.0, left=NOTHING).actions == ["restart"]


@pytest.mark.parametrize("taken", [Left(port="nginx (pid 12)"), Left(gpu=True)])
def test_but_for_half_a_minute_at_most(taken: Left) -> None:
    bench = down(taken).see(GONE, None, FAILED, after=FREE_WITHIN - 0.1, left=taken)
    assert bench.actions == []
    assert bench.see(GONE, None, FAILED, after=0.1, left=taken).actions == ["restart"]


def test_a_dry_run_waits_for_nothing_and_kills_nothing() -> None:
    left = Left(ORPHANS, port="llama-server (pid 101)", gpu=True)
    bench = down(left, Bench(dry_run=True)).see(GONE, None, FAILED, times=20, left=left)
    assert bench.actions == ["restart"]


def test_a_person_at_the_next_incarnation_stops_the_clearing_up() -> None:
    bench = down(OUTLIVED).see(Verdict(State.PAUSED), NEW, ACTIVE, times=20, left=OUTLIVED)
    assert bench.actions == []


# Pauses and the limit


def test_the_pause_doubles_up_to_its_limit_and_counts_the_windows_restarts_only() -> None:
    policy = Policy(restart=RestartPolicy(backoff=5.0, backoff_max=30.0, window=1000.0))
    pauses = [
        pause_before_restart(Standing(restarts=(0.0,) * number), policy, at=999.0) for number in range(6)
    ]
    assert pauses == [0.0, 5.0, 10.0, 20.0, 30.0, 30.0]
    assert pause_before_restart(Standing(restarts=(0.0, 500.0)), policy, at=1000.0) == 5.0


def held() -> Bench:
    bench = Bench().see(GONE, None, FAILED, times=1000, after=1.0)
    assert bench.standing.stage is Stage.HELD
    return bench


def take(bench: Bench, move: Move) -> Bench:
    bench.standing = move.standing
    return bench


def test_released_it_is_started_at_the_next_look_with_its_restarts_forgiven() -> None:
    bench = held()
    move = release(bench.standing, bench.at)
    assert move.report is not None
    assert (move.report.action, move.report.text) == (Action.HOLD, "released: restarts go on")
    bench.orders.clear()
    take(bench, move).see(GONE, None, FAILED, after=1.0)
    assert bench.actions == ["restart"]
    assert len(bench.standing.restarts) == 1


def test_released_it_may_be_held_again() -> None:
    bench = held()
    take(bench, release(bench.standing, bench.at))
    bench.orders.clear()
    bench.see(GONE, None, FAILED, times=1000, after=1.0)
    assert bench.actions == ["restart"] * 5
    assert bench.standing.stage is Stage.HELD


def test_releasing_one_that_is_not_held_forgives_without_a_word() -> None:
    bench = Bench().see(GONE, None, FAILED, times=2).see(IDLE, NEW, ACTIVE)
    assert bench.standing.restarts
    move = release(bench.standing, bench.at)
    assert (move.standing, move.report) == (replace(bench.standing, restarts=()), None)


# Hands off


@pytest.mark.parametrize("looks", [2, 3, 5])
def test_hands_off_drops_what_was_begun_and_says_so_once(looks: int) -> None:
    bench = Bench().see(FROZEN, times=looks)
    assert bench.standing.stage is Stage.CLIMBING
    move = aside(bench.standing, "paused by its admin")
    assert move.order is None
    assert move.report is not None
    assert (move.report.action, move.report.text) == (Action.HOLD, "hands off: paused by its admin")
    assert move.standing.stage is Stage.WATCHING
    assert aside(move.standing, "paused by its admin") == Move(move.standing)


def test_hands_off_forgets_neither_a_hold_nor_restarts_nor_whom_we_have_signalled() -> None:
    hold = held().standing
    assert aside(hold, "why") == Move(hold)
    bench = Bench().see(GONE, None, FAILED, times=2).see(FROZEN, NEW, ACTIVE, times=4, after=6.0)
    assert "sigterm" in bench.actions
    calm = aside(bench.standing, "why").standing
    assert (calm.restarts, calm.signalled, calm.target) == (bench.standing.restarts, True, NEW)


def test_hands_off_before_anything_was_done_leaves_no_trace() -> None:
    bench = Bench().see(FROZEN)
    move = aside(bench.standing, "why")
    assert move.report is None
    assert (move.standing.stage, move.standing.incident) == (Stage.WATCHING, 0)
    assert bench.standing.target == OLD


# One whose process can't be told: in a container that is not ours to look into, say

BLIND = Verdict(State.BLIND)
BUSY = Verdict(State.BUSY)
REFUSED = Verdict(State.DOWN, Reason.REFUSED, fault=True)
SHORT = Policy(restart=RestartPolicy(backoff=60.0, start_timeout=60.0))


def in_a_pause() -> Bench:
    """Before a second restart."""
    bench = Bench(SHORT).see(REFUSED, None, ACTIVE, times=2).see(IDLE, None, ACTIVE)
    return bench.see(REFUSED, None, ACTIVE, times=2)


def killed_in_the_order() -> Bench:
    """The watchdog, between ordering a restart and hearing how that went."""
    bench = Bench(SHORT).see(REFUSED, None, ACTIVE, times=2)
    bench.standing = replace(bench.standing, ordered=Action.RESTART)
    return bench


def released() -> Bench:
    bench = held()
    return take(bench, release(bench.standing, bench.at))


@pytest.mark.parametrize("verdict", [BLIND, LOADING, BUSY])
@pytest.mark.parametrize("waiting", [in_a_pause, killed_in_the_order, released])
@pytest.mark.parametrize("unit", [ACTIVE, None])
def test_one_that_may_be_alive_is_not_restarted_when_a_pause_is_over(
    verdict: Verdict, waiting: Callable[[], Bench], unit: Unit | None
) -> None:
    """Taken over, as to a watch that has just begun every server is busy."""
    bench = waiting().resume(after=1.0)
    assert bench.standing.stage is Stage.RESTARTING
    bench.orders.clear()
    assert bench.see(verdict, None, unit, times=40).actions == []
    # Without /slots it never looks better than that: there is nothing left to wait for.
    after = Stage.WATCHING if verdict.state is State.BLIND else Stage.RESTARTING
    assert bench.standing.stage == after


def test_one_that_is_busy_a_day_after_its_restart_is_not_restarted_again() -> None:
    bench = Bench(SHORT).see(REFUSED, None, ACTIVE, times=2).resume(after=24 * 3600.0)
    assert bench.see(BUSY, None, ACTIVE, times=40).actions == ["restart"]


@pytest.mark.parametrize("target", [None, NEW])
def test_one_of_which_nothing_is_seen_has_started_once_its_time_for_that_is_over(
    target: Identity | None,
) -> None:
    """Without /slots it never looks better than that; nor does it deserve that its restarts are forgiven."""
    bench = Bench(SHORT).see(REFUSED, None, ACTIVE, times=2).see(BLIND, target, ACTIVE, times=20)
    assert bench.standing == Standing(incident=1, restarts=(10.0,))
    assert bench.see(BLIND, None, ACTIVE, times=20).actions == ["restart"]


@pytest.mark.parametrize(
    ("verdict", "unit"), [(replace(REFUSED, fault=False), ACTIVE), (REFUSED, None), (BLIND, FAILED)]
)
def test_one_that_is_certainly_down_is_restarted_when_the_pause_is_over(
    verdict: Verdict, unit: Unit | None
) -> None:
    bench = in_a_pause()
    assert bench.see(verdict, None, unit, after=59.0).actions == ["restart"]
    assert bench.see(verdict, None, unit, after=1.0).actions == ["restart", "restart"]
