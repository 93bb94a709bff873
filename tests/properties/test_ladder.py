"""What the ladder and the breaker never do, from any interleaving of verdicts, incarnations and outcomes, and
whenever their watchdog is killed.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum, auto

from hypothesis import assume, given
from hypothesis import strategies as st

from llama_watchdog.core.action import Action, Done, Identity, Result
from llama_watchdog.core.escalation import admin_stopped, look, outcome
from llama_watchdog.core.observation import Left, Outcome, Unit
from llama_watchdog.core.policy import LadderPolicy, Policy, RestartPolicy, Rung
from llama_watchdog.core.remembering import as_json, from_json, take_over
from llama_watchdog.core.standing import Sight, Stage, Standing
from llama_watchdog.core.verdict import SERVING, Reason, State, Verdict

SIGNALS = {Action.CANCEL, Action.SIGTERM, Action.SIGKILL}

FROZEN = Verdict(State.WEDGED, Reason.FROZEN, fault=True)
GONE = Verdict(State.DOWN, Reason.GONE, fault=True)
# Mostly faults, of the same incarnation: of looks that are all alike likely hardly a story gets to an order.
verdicts = st.sampled_from(
    [
        *[FROZEN] * 6,
        *[GONE] * 6,
        Verdict(State.IDLE),
        Verdict(State.BUSY),
        Verdict(State.LOADING),
        Verdict(State.SLEEPING),
        Verdict(State.PAUSED),
        Verdict(State.BLIND),
        Verdict(State.SUSPECT, Reason.FROZEN),
        Verdict(State.WEDGED, Reason.FROZEN),  # kept over a look that saw nothing
        Verdict(State.WEDGED, Reason.SLOTS_HANG, fault=True),
        Verdict(State.WEDGED, Reason.LOAD, fault=True),
        Verdict(State.DOWN, Reason.REFUSED, fault=True),
    ]
)
any_unit = st.builds(
    Unit,
    st.sampled_from([Outcome.OK, Outcome.TIMEOUT]),
    load=st.sampled_from(["loaded", "loaded", "loaded", "masked"]),
    active=st.sampled_from(["active", "inactive", "failed", "activating", "deactivating"]),
    sub=st.sampled_from(["running", "dead", "auto-restart"]),
    result=st.sampled_from(["success", "signal"]),
    job=st.sampled_from(["", "", "", "stop", "start"]),
    stop_ordered=st.booleans(),
)
FAILED = Unit(Outcome.OK, "loaded", "failed", "failed", "signal")
usual_unit = st.sampled_from([None, None, None, FAILED, replace(FAILED, active="active", sub="running")])
units = usual_unit | usual_unit | usual_unit | any_unit


@dataclass(frozen=True)
class Look:
    """One look, and how the order that follows from it, if any, will go."""

    after: float
    verdict: Verdict
    incarnation: int | None
    unit: Unit | None
    delivered: bool
    result: Done
    proven: bool = True
    left: Left | None = None


looks = st.builds(
    Look,
    after=st.sampled_from([0.3, 1.0, 5.0, 11.0, 400.0]),
    verdict=verdicts,
    incarnation=st.sampled_from([1, 1, 1, 1, 1, 2, 3, None]),
    unit=units,
    delivered=st.booleans(),
    result=st.sampled_from([Done.DONE, Done.DONE, Done.FAILED, Done.UNSUPPORTED]),
    proven=st.booleans(),
    left=st.sampled_from(
        [None, None, Left(), Left((Identity(9, 9),)), Left(port="nginx (pid 12)"), Left(gpu=True)]
    ),
)
# What is seen lasts for some looks.
stories = st.lists(st.tuples(looks, st.integers(1, 8)), max_size=12).map(
    lambda scenes: [look for look, times in scenes for _ in range(times)]
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
        sight = Sight(at, one.verdict, target, one.unit, one.delivered, one.proven, one.left)
        before = standing
        move = look(standing, policy, sight, dry_run=dry_run)
        standing = move.standing
        if move.order is not None:
            orders.append(Ordered(at, move.order.action, move.order.target, before, sight, last))
            standing = outcome(standing, move.order.action, Result(one.result, ""), at).standing
        if one.verdict.fault or one.verdict.state is not State.WEDGED:
            last = sight
    return orders


@given(stories, policies)
def test_nothing_is_done_on_one_look_alone(story: list[Look], policy: Policy) -> None:
    """The first thing done in an incident rests on a fault seen twice in a row, of one incarnation."""
    for order in play(story, policy):
        if order.before.stage is Stage.CONFIRMING:
            assert order.sight.verdict.fault
            assert order.last is not None
            assert order.last.verdict.fault
            assert order.last.target == order.sight.target
        assert order.before.stage not in (Stage.WATCHING, Stage.HELD, Stage.REHEARSED)


@given(stories, policies)
def test_only_the_incarnation_at_hand_is_ever_signalled(story: list[Look], policy: Policy) -> None:
    for order in play(story, policy):
        if order.action in SIGNALS and order.before.stage is not Stage.RESTARTING:
            assert order.target is not None
            assert order.target == order.before.target
            assert order.sight.target in (order.target, None)


@given(stories, policies)
def test_a_server_that_serves_or_is_held_by_a_person_is_left_alone(story: list[Look], policy: Policy) -> None:
    for order in play(story, policy):
        assert order.sight.verdict.state not in SERVING | {State.PAUSED}


@given(stories, policies)
def test_the_admins_will_is_never_crossed(story: list[Look], policy: Policy) -> None:
    for order in play(story, policy):
        assert admin_stopped(order.sight.unit, order.before) is None


@given(stories, policies)
def test_restarts_never_exceed_their_limit(story: list[Look], policy: Policy) -> None:
    """Within any window, unless tokens were delivered in between."""
    never_forgiven = [replace(one, delivered=False) for one in story]
    times = [o.at for o in play(never_forgiven, policy) if o.action is Action.RESTART]
    for moment in times:
        within = [t for t in times if moment - policy.restart.window < t <= moment]
        assert len(within) <= policy.restart.max_restarts


@given(stories, policies)
def test_a_dry_run_orders_each_rung_once_in_an_incident(story: list[Look], policy: Policy) -> None:
    faulty = Verdict(State.WEDGED, Reason.FROZEN, fault=True)
    same = [replace(one, verdict=faulty, incarnation=1, unit=None, result=Done.DONE) for one in story]
    orders = play(same, policy, dry_run=True)
    assert len(orders) <= len(policy.escalation.ladder) + 1
    assert sum(order.action is Action.RESTART for order in orders) <= 1


# Killed, and succeeded by another


class Killed(Enum):
    """When the watchdog is killed, if at all: after a look; before, in or after what it orders."""

    NOT = auto()
    AFTER_THE_LOOK = auto()  # its order is kept, and not carried out
    BEFORE_THE_OUTCOME = auto()  # carried out, and nobody remembers how that went
    AFTER_THE_OUTCOME = auto()


@dataclass(frozen=True)
class Life:
    """A story, and when its watchdogs are killed: at its first orders, and at some looks without one."""

    story: list[Look]
    at_orders: list[Killed]
    at_looks: frozenset[int] = frozenset()


lives = st.builds(
    Life,
    stories,
    st.lists(st.sampled_from(Killed), max_size=9),
    st.frozensets(st.integers(0, 50), max_size=3),
)


@dataclass(frozen=True)
class Deed:
    """One order as the world saw it. `known`: its outcome was remembered, `carried`: it was carried out."""

    at: float
    action: Action
    target: Identity | None
    incident: int
    rung: int
    before: Standing
    sight: Sight
    known: bool
    carried: bool
    result: Done


@dataclass(frozen=True)
class Succession:
    """What was kept at a kill, and what was made of it."""

    kept: Standing
    taken: Standing
    began: float  # of the second one, since the machine's boot


def live(life: Life, policy: Policy) -> tuple[list[Deed], list[Succession]]:
    """Every order, and every kill. Each watchdog counts its time from its own beginning."""
    standing, boot, began = Standing(), 10_000.0, 10_000.0
    deeds: list[Deed] = []
    kills: list[Succession] = []
    for number, one in enumerate(life.story):
        boot += one.after
        at = boot - began
        gone = one.verdict.reason is Reason.GONE
        target = None if one.incarnation is None or gone else Identity(one.incarnation, one.incarnation)
        sight = Sight(at, one.verdict, target, one.unit, one.delivered, one.proven, one.left)
        before = standing
        move = look(standing, policy, sight)
        standing = move.standing
        killed = Killed.AFTER_THE_OUTCOME if number in life.at_looks else Killed.NOT
        if move.order is not None:
            killed = life.at_orders[len(deeds)] if len(deeds) < len(life.at_orders) else Killed.NOT
            known = killed in (Killed.NOT, Killed.AFTER_THE_OUTCOME)
            order = move.order
            carried = killed is not Killed.AFTER_THE_LOOK
            made = (order.action, order.target, order.incident, standing.rung)
            deeds.append(Deed(boot, *made, before, sight, known, carried, one.result))
            if known:
                standing = outcome(standing, order.action, Result(one.result, ""), at).standing
        if killed is not Killed.NOT:
            kept = json.loads(json.dumps(as_json(standing, began, at)))
            began = boot
            again, kept_at = from_json(kept, began)
            standing = take_over(again, 0.0, kept_at)
            kills.append(Succession(again, standing, began))
    return deeds, kills


@given(lives, policies)
def test_killed_or_not_no_rung_below_sigkill_is_ordered_twice(life: Life, policy: Policy) -> None:
    """Of one incident with one incarnation; SIGKILL at most once more for each kill."""
    deeds, _ = live(life, policy)
    climbed = Counter(
        (deed.incident, deed.target, deed.rung)
        for deed in deeds
        if deed.action in SIGNALS - {Action.SIGKILL} or (deed.action is Action.SIGKILL and deed.known)
        if deed.before.stage in (Stage.CONFIRMING, Stage.CLIMBING)
    )
    assert all(number == 1 for number in climbed.values()), climbed


@given(lives, policies)
def test_killed_or_not_only_the_incarnation_at_hand_is_signalled_and_never_one_that_serves(
    life: Life, policy: Policy
) -> None:
    for deed in live(life, policy)[0]:
        if deed.action in SIGNALS:
            assert deed.target == deed.before.target
            assert deed.before.stage is Stage.RESTARTING or deed.sight.target in (deed.target, None)
        proven = deed.sight.proven or not deed.before.resumed
        assert deed.sight.verdict.state is not State.PAUSED
        assert not (deed.sight.verdict.state in SERVING and proven)
        assert deed.sight.verdict.state is not State.SLEEPING


@given(lives, policies)
def test_killed_or_not_restarts_never_exceed_their_limit(life: Life, policy: Policy) -> None:
    """Within any window, unless tokens were delivered. One that nobody remembers counts once, or not."""
    never_forgiven = [replace(one, delivered=False) for one in life.story]
    deeds, _ = live(replace(life, story=never_forgiven), policy)
    restarts = [deed for deed in deeds if deed.action is Action.RESTART]
    for moment in [deed.at for deed in restarts]:
        within = [deed for deed in restarts if moment - policy.restart.window < deed.at <= moment]
        assert sum(deed.known for deed in within) <= policy.restart.max_restarts
        forgotten = sum(not deed.known for deed in within)
        assert sum(deed.carried for deed in within) <= policy.restart.max_restarts + forgotten


@given(lives, policies)
def test_no_kill_forgets_a_restart(life: Life, policy: Policy) -> None:
    """Nor makes one up: only of one whose outcome nobody knows it has to be seen whether there was one."""
    for kill in live(life, policy)[1]:
        if kill.kept.ordered is Action.RESTART:
            assert (*kill.taken.restarts, kill.kept.restarts[-1]) == kill.kept.restarts
        else:
            assert kill.taken.restarts == kill.kept.restarts


@given(lives, policies)
def test_killed_or_not_nothing_is_started_while_the_server_lives_on_after_sigkill(
    life: Life, policy: Policy
) -> None:
    deeds, _ = live(life, policy)
    killed: set[tuple[int, Identity | None]] = set()
    for deed in deeds:
        incident = (deed.incident, deed.before.target)
        if (
            deed.action is Action.SIGKILL
            and deed.known
            and deed.result is Done.DONE
            and not deed.before.ended_at
        ):
            killed.add(incident)
        if deed.action is Action.RESTART and incident in killed:
            # In `starting` its end has been seen, which forgets `ended_at`; that it is seen alive again after
            # that is the story's doing.
            assert (
                deed.before.ended_at is not None
                or deed.before.stage is Stage.STARTING
                or deed.sight.verdict.reason is Reason.GONE
                or (deed.sight.target not in (None, deed.before.target))
            )


@given(lives, policies)
def test_killed_or_not_nothing_is_started_beside_what_is_left(life: Life, policy: Policy) -> None:
    for deed in live(life, policy)[0]:
        if deed.action is Action.RESTART and deed.sight.left is not None:
            # A restart of a unit that runs ends all that is in it, and may be all that can: not ours alone.
            runs = deed.sight.unit is not None and deed.sight.unit.active in ("active", "activating")
            assert not deed.sight.left.processes or runs


@given(lives, policies)
def test_an_incident_that_was_taken_over_is_not_over_for_a_busy_look_that_proves_nothing(
    life: Life, policy: Policy
) -> None:
    for kill in live(life, policy)[1]:
        standing = kill.taken
        move = look(standing, policy, Sight(standing.until or 0.0, Verdict(State.BUSY), standing.target))
        assert move.report is None or move.report.outcome is not Done.HEALED
        if standing.stage is not Stage.WATCHING:
            assert move.standing.stage is not Stage.WATCHING


@given(stories, policies, st.frozensets(st.integers(0, 50), max_size=3), st.lists(st.booleans(), max_size=9))
def test_a_kill_changes_nothing_that_is_ordered(
    story: list[Look], policy: Policy, at_looks: frozenset[int], unknown: list[bool]
) -> None:
    """Where what is seen proves itself, and what was being done succeeds.

    Unknown outcomes of SIGKILL and of a restart are another story, and a confirmation begins anew.
    """
    clear = [replace(one, proven=True, result=Done.DONE, after=min(one.after, 11.0)) for one in story]
    quiet, _ = live(Life(clear, []), policy)
    at_orders = [
        Killed.BEFORE_THE_OUTCOME
        if forgotten and deed.action in (Action.CANCEL, Action.SIGTERM)
        else Killed.AFTER_THE_OUTCOME
        for deed, forgotten in zip(quiet, unknown, strict=False)
    ]
    deeds, kills = live(Life(clear, at_orders, at_looks), policy)
    assume(all(kill.kept.stage is not Stage.CONFIRMING for kill in kills))
    assert [(deed.at, deed.action, deed.target) for deed in deeds] == [
        (deed.at, deed.action, deed.target) for deed in quiet
    ]
