"""What is kept of an incident is what is read, and a watchdog that was killed is succeeded without a slip."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_watchdog.core.action import Action, Done, Identity
from llama_watchdog.core.observation import Left
from llama_watchdog.core.remembering import (
    SHOWS_WITHIN,
    STALE_AFTER,
    after_reboot,
    as_json,
    from_json,
    take_over,
)
from llama_watchdog.core.standing import Stage, Standing
from llama_watchdog.core.verdict import Reason, State, Verdict
from tests.support.bench import ACTIVE, FAILED, FROZEN, GONE, HANGS, IDLE, LOADING, NEW, OLD, Bench

BUSY = Verdict(State.BUSY)
SUSPECT = Verdict(State.SUSPECT, Reason.FROZEN)

moments = st.integers(-1000, 10_000_000).map(lambda n: n / 8)  # eighths, that sums are exact
began = st.integers(0, 100_000_000).map(lambda n: n / 8)
actions = st.none() | st.sampled_from(Action)
standings = st.builds(
    Standing,
    stage=st.sampled_from(Stage),
    incident=st.integers(0, 1 << 40),
    target=st.none() | st.builds(Identity, st.integers(1, 1 << 22), st.integers(0, 1 << 62)),
    rung=st.integers(-1, 9),
    until=st.none() | moments,
    signalled=st.booleans(),
    killed=st.booleans(),
    appeared=st.booleans(),
    last=actions,
    ordered=actions,
    ended_at=st.none() | moments,
    swept_at=st.none() | moments,
    stopped=st.booleans(),
    resumed=st.booleans(),
    restarts=st.lists(moments, max_size=6).map(tuple),
)
garbage = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=5,
)


def shifted(moment: float | None, by: float) -> float | None:
    return None if moment is None else moment + by


# Kept and read


@given(standings, began, began, moments)
def test_what_was_kept_is_read_and_its_times_move_with_the_beginning_of_the_watch(
    standing: Standing, before: float, after: float, at: float
) -> None:
    again, kept_at = from_json(json.loads(json.dumps(as_json(standing, before, at))), after)
    by = before - after
    assert kept_at == at + by
    assert again == replace(
        standing,
        resumed=False,  # that is for `take_over` to say
        until=shifted(standing.until, by),
        ended_at=shifted(standing.ended_at, by),
        swept_at=shifted(standing.swept_at, by),
        restarts=tuple(moment + by for moment in standing.restarts),
    )


@given(garbage)
def test_garbage_is_no_standing(value: object) -> None:
    with pytest.raises(ValueError, match="no standing"):
        from_json(value, 0.0)  # type: ignore[arg-type]  # a file can hold anything


@given(st.sampled_from(sorted(as_json(Standing(), 0.0, 0.0))), garbage)
def test_garbage_in_one_place_is_no_crash(key: str, value: object) -> None:
    """Text where a number belongs, a number too large: as after a disk error, or another version."""
    try:
        from_json(as_json(Standing(target=OLD), 0.0, 0.0) | {key: value}, 0.0)
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017 - most values are garbage, some are not


@pytest.mark.parametrize("key", sorted(set(as_json(Standing(), 0.0, 0.0)) - {"resumed"}))
def test_a_standing_with_a_part_missing_is_none(key: str) -> None:
    kept = as_json(Standing(), 0.0, 0.0)
    del kept[key]
    with pytest.raises(ValueError, match=f"no standing: KeyError\\('{key}'\\)"):
        from_json(kept, 0.0)


def test_after_a_reboot_only_the_count_of_incidents_is_left() -> None:
    standing = Standing(Stage.HELD, 7, OLD, 3, restarts=(1.0, 2.0), stopped=True, killed=True)
    assert after_reboot(standing) == Standing(incident=7)


# Taken over, row by row. `ordered`: killed between an order and its outcome.


def ordered(standing: Standing, action: Action) -> Standing:
    return replace(standing, ordered=action)


def climbing(*rungs: str) -> Bench:
    """A ladder climbed so far, the last rung just now."""
    bench = Bench().see(FROZEN, times=2)
    while len(bench.actions) < len(rungs):
        bench.see(FROZEN, after=1.0)
    assert bench.actions == list(rungs)
    return bench


def test_one_that_was_to_be_confirmed_is_watched_as_nothing_was_done() -> None:
    bench = Bench().see(FROZEN).resume()
    assert (bench.standing.stage, bench.standing.incident) == (Stage.WATCHING, 0)
    assert bench.see(FROZEN, after=1.0).actions == []
    assert bench.see(FROZEN, after=1.0).actions == ["cancel"]
    assert bench.orders[0].incident == 1


def test_a_cancel_whose_outcome_nobody_knows_gets_its_grace_and_is_not_repeated() -> None:
    bench = climbing("cancel")
    bench.standing = ordered(bench.standing, Action.CANCEL)
    bench.resume(after=1.0).see(FROZEN, after=3.0)
    assert bench.actions == ["cancel"]
    assert bench.see(FROZEN, after=1.0).actions == ["cancel", "sigterm"]


@pytest.mark.parametrize("verdict", [FROZEN, SUSPECT, BUSY])
def test_a_sigterm_whose_outcome_nobody_knows_gets_its_grace_and_the_next_rung_follows(
    verdict: Verdict,
) -> None:
    """Whatever a watch that has just begun can say: it was proven, and is ending or is not."""
    bench = climbing("cancel", "sigterm")
    bench.standing = ordered(bench.standing, Action.SIGTERM)
    bench.resume(after=1.0).see(verdict, after=1.0)
    assert bench.actions == ["cancel", "sigterm"]
    assert bench.see(verdict, after=1.0).actions == ["cancel", "sigterm", "sigterm"]
    assert {order.target for order in bench.orders} == {OLD}


def test_a_ladder_that_was_left_long_ago_is_not_climbed_on() -> None:
    bench = climbing("cancel", "sigterm").resume(after=3.0 + STALE_AFTER + 0.1)
    bench.see(BUSY, times=50)
    assert bench.actions == ["cancel", "sigterm"]
    assert bench.standing.stage is Stage.WATCHING
    # It may yet end of our signal, and that is not its admin's doing then.
    assert bench.see(GONE, None, replace(FAILED, active="inactive"), times=2).actions[2:] == ["restart"]


def test_one_just_not_that_old_is_climbed_on() -> None:
    assert climbing("cancel", "sigterm").resume(after=3.0 + STALE_AFTER).see(HANGS).actions[2:] == ["sigterm"]


def test_a_sigkill_whose_outcome_nobody_knows_is_sent_once_more() -> None:
    ladder = ("cancel", "sigterm", "sigterm", "sigkill")
    bench = climbing(*ladder)
    bench.standing = replace(bench.standing, ordered=Action.SIGKILL, killed=False)
    bench.resume(after=1.0).see(HANGS, after=0.3)
    assert bench.actions == [*ladder, "sigkill"]
    assert bench.see(HANGS, times=20).actions == [*ladder, "sigkill"]
    assert bench.standing.stage is Stage.UNKILLABLE


def test_a_sigkill_that_has_worked_meanwhile_is_followed_by_the_restart() -> None:
    bench = climbing("cancel", "sigterm", "sigterm", "sigkill")
    bench.standing = replace(bench.standing, ordered=Action.SIGKILL, killed=False)
    assert bench.resume(after=1.0).see(GONE, None, FAILED, after=0.3).actions[4:] == ["restart"]


def test_a_sigkill_to_what_was_left_is_sent_once_more() -> None:
    left = Left((Identity(101, 5),))
    bench = Bench().see(GONE, None, FAILED, times=2, left=left).see(GONE, None, FAILED, left=left)
    assert bench.actions == ["sigkill"]
    bench.standing = ordered(bench.standing, Action.SIGKILL)
    bench.resume(after=1.0).see(GONE, None, FAILED, after=0.3, left=left)
    assert bench.actions == ["sigkill", "sigkill"]
    assert bench.orders[1].left == left.processes


def restarted() -> Bench:
    """Asked for, and nobody knows how that went."""
    bench = Bench().see(GONE, None, FAILED, times=2)
    assert bench.actions == ["restart"]
    bench.standing = ordered(bench.standing, Action.RESTART)
    return bench.resume(after=1.0)


def test_a_restart_that_was_not_carried_out_is_repeated_and_counts_once() -> None:
    bench = restarted().see(GONE, None, FAILED, after=SHOWS_WITHIN - 0.1)
    assert bench.actions == ["restart"]
    assert bench.see(GONE, None, FAILED, after=0.1).actions == ["restart", "restart"]
    assert bench.standing.restarts == (bench.at,)


def test_a_restart_that_was_carried_out_is_not_repeated_and_counts_once() -> None:
    bench = restarted().see(LOADING, NEW, ACTIVE, times=50)
    assert bench.actions == ["restart"]
    assert len(bench.standing.restarts) == 1
    bench.see(IDLE, NEW, ACTIVE, proven=True)
    assert bench.reports[-1].outcome is Done.HEALED


def test_a_restart_with_an_outcome_is_waited_for() -> None:
    bench = Bench().see(GONE, None, FAILED, times=2).resume(after=100.0)
    bench.see(GONE, None, ACTIVE, times=100)
    assert bench.actions == ["restart"]


def test_a_hold_and_what_is_not_forgiven_go_on() -> None:
    bench = Bench().see(GONE, None, FAILED, times=1000, after=1.0)
    restarts = bench.standing.restarts
    bench.resume().see(GONE, None, FAILED, times=1000)
    assert bench.standing.stage is Stage.HELD
    assert bench.actions == ["restart"] * 5
    assert bench.standing.restarts == restarts


def test_what_its_admin_has_stopped_is_said_once() -> None:
    stopped = replace(FAILED, active="inactive")
    bench = Bench().see(GONE, None, stopped).resume().see(GONE, None, stopped, times=20)
    assert [report.action for report in bench.reports] == [Action.HOLD]


# What a watch that has just begun may believe


def test_busy_is_no_proof_that_an_incident_is_over_and_a_turning_loop_is() -> None:
    """Until its budget is over, a wedged server looks busy to a watch that has just begun."""
    bench = climbing("cancel").resume(after=1.0).see(BUSY, times=9)
    assert [report.outcome for report in bench.reports] == [Done.DONE]
    assert bench.actions == ["cancel"]
    bench.see(BUSY, proven=True)
    assert bench.reports[-1].outcome is Done.HEALED
    assert bench.standing.stage is Stage.WATCHING


@pytest.mark.parametrize(("verdict", "target"), [(BUSY, NEW), (IDLE, NEW), (Verdict(State.SLEEPING), OLD)])
def test_another_incarnation_and_one_that_sleeps_need_no_proof(verdict: Verdict, target: Identity) -> None:
    bench = Bench().see(GONE, None, FAILED, times=2).resume(after=1.0).see(verdict, target, ACTIVE)
    assert bench.standing.stage is Stage.WATCHING


def test_the_next_incident_needs_no_proof_any_more() -> None:
    bench = climbing("cancel").resume(after=1.0).see(BUSY, proven=True)
    bench.see(FROZEN, times=2).see(BUSY)
    assert bench.standing.stage is Stage.WATCHING


def test_a_second_successor_is_as_careful_as_the_first() -> None:
    bench = climbing("cancel").resume(after=1.0).resume(after=1.0).see(BUSY, times=3)
    assert bench.standing.stage is Stage.CLIMBING
    assert take_over(bench.standing, bench.at, bench.at).resumed
