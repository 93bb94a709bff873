"""The main loop by its slots: what neither the judge's stories nor the budgets tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from llama_watchdog.core.judge import Judge
from llama_watchdog.core.observation import Metrics, Observation, Outcome, Process, Slots
from llama_watchdog.core.policy import StallPolicy
from llama_watchdog.core.verdict import Reason, State, Verdict
from tests.support.facts import CPU_SERVER, seen, slot

UNREADABLE = Process(Outcome.UNSUPPORTED)


def idle(at: float, **parts: Any) -> Observation:
    return seen(at, slot(busy=False), **parts)


def verdicts(*observations: Observation, policy: StallPolicy | None = None) -> list[Verdict]:
    judge = Judge(policy or StallPolicy(), CPU_SERVER)
    return [judge.observe(observation) for observation in observations]


def metrics(processing: int, total: int, deferred: int = 0) -> Metrics:
    return Metrics(Outcome.OK, processing, deferred, total)


@pytest.mark.parametrize(
    ("outcome", "remedy"),
    [
        (Outcome.UNSUPPORTED, "/slots is switched off; start llama-server without --no-slots"),
        (Outcome.UNAUTHORIZED, "/slots wants an API key; set api_key_file"),
        (Outcome.MALFORMED, "/slots answers with something else"),
        (Outcome.ERROR, "/slots fails"),
    ],
)
def test_blind_at_once_and_says_why(outcome: Outcome, remedy: str) -> None:
    (verdict,) = verdicts(idle(0.0, slots=Slots(outcome)))
    assert verdict.state is State.BLIND
    assert verdict.text == f"nothing can be seen of its slots: {remedy}"


def test_a_few_failed_looks_do_not_blind_what_was_seen() -> None:
    failing = [idle(5.0 * n, slots=Slots(Outcome.ERROR)) for n in range(1, 6)]
    states = [verdict.state for verdict in verdicts(idle(0.0), *failing)]
    assert states[:3] == [State.IDLE] * 3
    assert states[-1] is State.BLIND


def test_what_is_not_seen_is_no_fault() -> None:
    """A wedge that was proven needs another proof once /slots fails: it may have healed meanwhile."""
    frozen = [seen(5.0 * n, slot(decoded=30)) for n in range(9)]
    unseen = seen(45.0, slot(decoded=30), slots=Slots(Outcome.ERROR))
    *_, wedged, last = verdicts(*frozen, unseen)
    assert (wedged.state, wedged.fault) == (State.WEDGED, True)
    assert (last.state, last.fault) == (State.WEDGED, False)


def test_time_that_was_not_seen_counts_for_nothing() -> None:
    """Neither as a standstill nor as progress."""
    frozen = [seen(5.0 * n, slot(decoded=30)) for n in range(4)]
    unseen = [seen(20.0, slot(decoded=30), slots=Slots(Outcome.SKIPPED))]
    again = [seen(25.0 + 5.0 * n, slot(decoded=30)) for n in range(6)]
    told = verdicts(*frozen, *unseen, *again)
    wedged = next(at for at, verdict in zip(range(0, 60, 5), told, strict=False) if verdict.fault)
    assert 35 <= wedged <= 45


def test_metrics_stand_in_for_slots_that_cannot_be_had() -> None:
    def look(n: int, total: int, processing: int = 1) -> Observation:
        return idle(5.0 * n, slots=Slots(Outcome.UNSUPPORTED), metrics=metrics(processing, total))

    moving = verdicts(*(look(n, 10 * n) for n in range(4)))
    assert [verdict.state for verdict in moving[1:]] == [State.BUSY] * 3
    assert verdicts(look(0, 10, processing=0))[0].state is State.IDLE
    stuck = verdicts(*(look(n, 10) for n in range(12)))
    assert stuck[-1].state is State.WEDGED


@pytest.mark.parametrize(
    ("process", "state"),
    [({}, State.WEDGED), ({"process": UNREADABLE}, State.WEDGED)],
    ids=["still", "unread"],
)
def test_requests_deferred_while_every_slot_is_idle_are_a_wedge(process: Any, state: State) -> None:
    told = verdicts(*(idle(5.0 * n, metrics=metrics(0, 10, deferred=2), **process) for n in range(9)))
    assert told[1].state is State.IDLE
    assert (told[-1].state, told[-1].reason) == (state, Reason.DEFERRED)


def test_deferred_requests_are_no_wedge_while_the_process_works() -> None:
    """Restoring a prompt cache, say, before the first slot is given away."""
    told = verdicts(
        *(idle(5.0 * n, cpu=(5.0 * n, 5.0 * n), metrics=metrics(0, 10, deferred=2)) for n in range(20))
    )
    assert {verdict.state for verdict in told} == {State.IDLE}


def test_deferred_requests_that_are_served_in_between_start_the_clock_anew() -> None:
    """At 20 s the queue was empty."""
    told = verdicts(
        *(idle(5.0 * n, metrics=metrics(0, 10, deferred=0 if n == 4 else 2)) for n in range(11)),
    )
    assert State.WEDGED not in {verdict.state for verdict in told[:10]}


def test_slots_and_health_that_both_hang_are_told_from_slots_alone() -> None:
    hang = [seen(5.0 * n, hangs=5.0) for n in range(9)]
    deaf = [seen(5.0 * n, hangs=5.0, health=Outcome.PENDING) for n in range(9)]
    assert verdicts(idle(0.0), *(seen(o.at + 5, hangs=5.0) for o in hang))[-1].reason is Reason.SLOTS_HANG
    told = verdicts(idle(0.0), *(seen(o.at + 5, hangs=5.0, health=Outcome.PENDING) for o in deaf))
    assert told[-1].reason is Reason.DEAF


def test_a_server_without_slots_that_no_longer_answers_at_all_is_deaf() -> None:
    def look(n: int) -> Observation:
        return idle(5.0 * n, slots=Slots(Outcome.UNSUPPORTED), health=Outcome.TIMEOUT)

    told = verdicts(*(look(n) for n in range(40)))
    assert State.WEDGED not in {verdict.state for verdict in told[:20]}
    assert (told[-1].state, told[-1].reason) == (State.WEDGED, Reason.DEAF)


def test_a_slot_that_stands_while_others_move_is_named_and_left_alone() -> None:
    def look(n: int) -> Observation:
        return seen(5.0 * n, slot(0, decoded=30), slot(1, decoded=10 * n), cpu=(5.0 * n, 5.0 * n))

    told = verdicts(*(look(n) for n in range(60)))
    assert told[-1].state is State.SUSPECT
    assert told[-1].slots == (0,)
    assert told[-1].text.endswith("while others move: left alone")
    assert not any(verdict.fault for verdict in told)


def test_a_failed_look_at_first_work_does_not_make_it_idle() -> None:
    """Kernels compile: one thread works before the first token."""
    polls = [seen(5.0 * n, slot(prompt=100), cpu=(5.0 * n, 0.0)) for n in range(8)]
    told = verdicts(*polls, replace(seen(40.0, cpu=(40.0, 0.0)), slots=Slots(Outcome.ERROR)))
    assert told[-2].state is State.LOADING
    assert told[-1].state is State.LOADING
