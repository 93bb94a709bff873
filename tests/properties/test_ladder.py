"""What the ladder and the breaker never do, from any interleaving of verdicts, incarnations and outcomes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from llama_watchdog.core.action import Action, Done, Identity, Result
from llama_watchdog.core.escalation import admin_stopped, look, outcome
from llama_watchdog.core.observation import Outcome, Unit
from llama_watchdog.core.policy import LadderPolicy, Policy, RestartPolicy, Rung
from llama_watchdog.core.standing import Sight, Stage, Standing
from llama_watchdog.core.verdict import SERVING, Reason, State, Verdict

SIGNALS = {Action.CANCEL, Action.SIGTERM, Action.SIGKILL}

verdicts = st.sampled_from(
    [
        Verdict(State.IDLE),
        Verdict(State.BUSY),
        Verdict(State.LOADING),
        Verdict(State.SLEEPING),
        Verdict(State.PAUSED),
        Verdict(State.BLIND),
        Verdict(State.SUSPECT, Reason.FROZEN),
        Verdict(State.WEDGED, Reason.FROZEN, fault=True),
        Verdict(State.WEDGED, Reason.FROZEN),  # kept over a look that saw nothing
        Verdict(State.WEDGED, Reason.SLOTS_HANG, fault=True),
        Verdict(State.WEDGED, Reason.LOAD, fault=True),
        Verdict(State.DOWN, Reason.REFUSED, fault=True),
        Verdict(State.DOWN, Reason.GONE, fault=True),
    ]
)
units = st.none() | st.builds(
    Unit,
    st.sampled_from([Outcome.OK, Outcome.TIMEOUT]),
    load=st.sampled_from(["loaded", "loaded", "loaded", "masked"]),
    active=st.sampled_from(["active", "inactive", "failed", "activating", "deactivating"]),
    sub=st.sampled_from(["running", "dead", "auto-restart"]),
    result=st.sampled_from(["success", "signal"]),
    job=st.sampled_from(["", "", "", "stop", "start"]),
    stop_ordered=st.booleans(),
)


@dataclass(frozen=True)
class Look:
    """One look, and how the order that follows from it, if any, will go."""

    after: float
    verdict: Verdict
    incarnation: int | None
    unit: Unit | None
    delivered: bool
    result: Done


looks = st.builds(
    Look,
    after=st.sampled_from([0.3, 1.0, 5.0, 11.0, 400.0]),
    verdict=verdicts,
    incarnation=st.none() | st.integers(1, 3),
    unit=units,
    delivered=st.booleans(),
    result=st.sampled_from([Done.DONE, Done.DONE, Done.FAILED, Done.UNSUPPORTED]),
)
policies = st.builds(
    Policy,
    escalation=st.builds(LadderPolicy, ladder=st.lists(st.sampled_from(Rung), max_size=4).map(tuple)),
    restart=st.builds(
        RestartPolicy,
        max_restarts=st.integers(0, 3),
        window=st.sampled_from([60.0, 3600.0]),
        backoff=st.just(5.0),
    ),
)


@dataclass(frozen=True)
class Ordered:
    """One order, the look it rests on, the last one before that saw anything, what was remembered."""

    at: float
    action: Action
    target: Identity | None
    before: Standing
    sight: Sight
    last: Sight | None


def play(story: list[Look], policy: Policy, *, dry_run: bool = False) -> list[Ordered]:
    """Every order that follows from these looks, in order."""
    standing, at, last = Standing(), 0.0, None
    orders = []
    for one in story:
        at += one.after
        gone = one.verdict.reason is Reason.GONE
        target = None if one.incarnation is None or gone else Identity(one.incarnation, one.incarnation)
        sight = Sight(at, one.verdict, target, one.unit, one.delivered)
        before = standing
        move = look(standing, policy, sight, dry_run=dry_run)
        standing = move.standing
        if move.order is not None:
            orders.append(Ordered(at, move.order.action, move.order.target, before, sight, last))
            standing = outcome(standing, move.order.action, Result(one.result, ""), at).standing
        if one.verdict.fault or one.verdict.state is not State.WEDGED:
            last = sight
    return orders


@given(st.lists(looks, max_size=40), policies)
def test_nothing_is_done_on_one_look_alone(story: list[Look], policy: Policy) -> None:
    """The first thing done in an incident rests on a fault seen twice in a row, of one incarnation."""
    for order in play(story, policy):
        if order.before.stage is Stage.CONFIRMING:
            assert order.sight.verdict.fault
            assert order.last is not None
            assert order.last.verdict.fault
            assert order.last.target == order.sight.target
        assert order.before.stage not in (Stage.WATCHING, Stage.HELD, Stage.REHEARSED)


@given(st.lists(looks, max_size=40), policies)
def test_only_the_incarnation_at_hand_is_ever_signalled(story: list[Look], policy: Policy) -> None:
    for order in play(story, policy):
        if order.action in SIGNALS:
            assert order.target is not None
            assert order.target == order.before.target
            assert order.sight.target in (order.target, None)


@given(st.lists(looks, max_size=40), policies)
def test_a_server_that_serves_or_is_held_by_a_person_is_left_alone(story: list[Look], policy: Policy) -> None:
    for order in play(story, policy):
        assert order.sight.verdict.state not in SERVING | {State.PAUSED}


@given(st.lists(looks, max_size=40), policies)
def test_the_admins_will_is_never_crossed(story: list[Look], policy: Policy) -> None:
    for order in play(story, policy):
        assert admin_stopped(order.sight.unit, order.before) is None


@given(st.lists(looks, max_size=60), policies)
def test_restarts_never_exceed_their_limit(story: list[Look], policy: Policy) -> None:
    """Within any window, unless tokens were delivered in between."""
    never_forgiven = [replace(one, delivered=False) for one in story]
    times = [o.at for o in play(never_forgiven, policy) if o.action is Action.RESTART]
    for moment in times:
        within = [t for t in times if moment - policy.restart.window < t <= moment]
        assert len(within) <= policy.restart.max_restarts


@given(st.lists(looks, max_size=40), policies)
def test_a_dry_run_orders_each_rung_once_in_an_incident(story: list[Look], policy: Policy) -> None:
    faulty = Verdict(State.WEDGED, Reason.FROZEN, fault=True)
    same = [replace(one, verdict=faulty, incarnation=1, unit=None) for one in story]
    orders = play(same, policy, dry_run=True)
    assert len(orders) <= len(policy.escalation.ladder) + 1
    assert sum(order.action is Action.RESTART for order in orders) <= 1
