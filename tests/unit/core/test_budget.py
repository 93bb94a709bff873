"""How long a standstill may last, and what follows once it has."""

from __future__ import annotations

from typing import Any

import pytest

from llama_watchdog.core.budget import Budget, pick, verdict_against
from llama_watchdog.core.evidence import Evidence
from llama_watchdog.core.pace import Learned, Pace
from llama_watchdog.core.policy import StallPolicy
from llama_watchdog.core.progress import Progress
from llama_watchdog.core.verdict import Reason, State, Verdict
from tests.support.facts import slot

POLICY = StallPolicy()


def picked(
    evidence: Evidence, *slots: Any, held: float = 0.0, learned: Learned | None = None, **more: Any
) -> Budget:
    """The budget of a loop that turned at 100 s, and moved a token at 90 s."""
    progress = Progress(aside_after=POLICY.unknown)
    progress.see(slots or (slot(decoded=5, prompt=100, done=100),), 90.0)
    progress.moved_at, progress.turned_at = 90.0, 100.0
    facts = {"load_moved_at": 0.0, "hangs": False, "answers_mid_step": False, **more}
    policy = facts.pop("policy", POLICY)
    return pick(policy, (evidence, held), progress, Pace(2048, learned), **facts)


@pytest.mark.parametrize(
    ("evidence", "held", "seconds", "began"),
    [
        (Evidence.BLOCKED, 0.0, 30.0, 100.0),
        (Evidence.BLOCKED, 120.0, 30.0, 120.0),  # it worked until 120
        (Evidence.SPINNING, 110.0, 60.0, 110.0),
        (Evidence.UNKNOWN, 0.0, 120.0, 100.0),
        (Evidence.PAGING, 0.0, 1800.0, 90.0),
        (Evidence.COMPUTING, 0.0, 7200.0, 90.0),
    ],
)
def test_the_budget_by_the_evidence(evidence: Evidence, held: float, seconds: float, began: float) -> None:
    budget = picked(evidence, held=held)
    assert (budget.seconds, budget.began) == (seconds, began)


def test_paging_runs_since_the_load_last_made_progress() -> None:
    assert picked(Evidence.PAGING, load_moved_at=250.0).began == 250.0


def test_slots_hanging_on_a_build_that_answers_in_mid_step_is_no_step() -> None:
    budget = picked(Evidence.COMPUTING, hangs=True, answers_mid_step=True)
    assert (budget.evidence, budget.seconds) == (Evidence.UNKNOWN, POLICY.unknown)
    assert picked(Evidence.COMPUTING, hangs=True).seconds == POLICY.computing


DECODES = slot(decoded=50, prompt=100, done=100)
PREFILLS = slot(prompt=4096, done=2048)


def test_a_learned_pace_takes_the_place_of_the_patience_for_an_unknown_one() -> None:
    known = Learned(prefill=3.0, prefill_depth=8192, decode=10.0, decode_depth=8192)
    slow = picked(Evidence.COMPUTING, PREFILLS, learned=known)
    assert slow.seconds == pytest.approx(5 * 2048 / 3.0)
    quick = picked(Evidence.COMPUTING, DECODES, learned=known)
    assert quick.seconds == POLICY.pace_floor


def test_a_pace_says_nothing_of_a_server_that_is_silent() -> None:
    known = Learned(prefill=300.0, prefill_depth=8192, decode=10.0, decode_depth=8192)
    assert picked(Evidence.COMPUTING, DECODES, learned=known, hangs=True).seconds == POLICY.computing


def against(lasting: float, streak: int, evidence: Evidence = Evidence.BLOCKED, **more: Any) -> Verdict:
    facts = {"policy": POLICY, "interval": 5.0, "at_ease": State.BUSY, "stalled": lasting, **more}
    budget = picked(evidence)
    return verdict_against(budget, budget.began + lasting, Reason.FROZEN, (0,), streak=streak, **facts)


@pytest.mark.parametrize(
    ("lasting", "streak", "state"),
    [
        (5.0, 2, State.BUSY),
        (11.0, 1, State.BUSY),  # a suspicion needs two looks
        (11.0, 2, State.SUSPECT),
        (29.0, 9, State.SUSPECT),
        (29.8, 9, State.WEDGED),  # a poll came 50 ms early
        (40.0, 2, State.SUSPECT),  # a wedge needs three looks
        (40.0, 3, State.WEDGED),
    ],
)
def test_from_ease_by_suspicion_to_a_wedge(lasting: float, streak: int, state: State) -> None:
    verdict = against(lasting, streak)
    assert verdict.state is state
    assert verdict.fault is (state is State.WEDGED)
    assert (verdict.reason is Reason.FROZEN) is (state is not State.BUSY)
    assert verdict.due == (0.0 if state is State.WEDGED else max(0.0, 30.0 - lasting))


def test_work_is_suspected_late() -> None:
    """A third of two hours would be a suspicion at every long prefill."""
    assert against(5000.0, 99, Evidence.COMPUTING).state is State.BUSY
    assert against(5800.0, 99, Evidence.COMPUTING).state is State.SUSPECT
