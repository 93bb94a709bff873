"""How long the standstill at hand may last, by the evidence, and what follows once it has.

evidence  | budget                                     | runs since
----------+--------------------------------------------+------------------------------------------------
blocked   | blocked                                    | the loop last turned, and the process is still
spinning  | spinning                                   | the loop last turned, and the thread spins
unknown   | unknown, or pace_factor × the step; also   | the loop last turned, and the process is still
          | for /slots hanging on a build that answers |
          | in mid-step                                |
paging    | loading                                    | a token moved, or the load made progress
computing | max(pace_floor, pace_factor × the step)    | a token moved
          | where its pace is known, else computing    |
"""

from __future__ import annotations

from dataclasses import dataclass

from llama_watchdog.core.evidence import Evidence
from llama_watchdog.core.observation import Slot
from llama_watchdog.core.pace import Pace, Phase, phase_of
from llama_watchdog.core.policy import StallPolicy
from llama_watchdog.core.progress import Progress
from llama_watchdog.core.verdict import Reason, State, Verdict

JITTER = 0.05  # of an interval: polls come a little early, too
SUSPICION = {Evidence.COMPUTING: 0.8, Evidence.PAGING: 0.8}  # of the budget; a third of it for the others


@dataclass(frozen=True, slots=True)
class Budget:
    """What a standstill may last: `seconds`, since `began`. `why` says where the figure is from."""

    evidence: Evidence
    seconds: float
    began: float
    why: str = ""


def pick(
    policy: StallPolicy,
    evidence: tuple[Evidence, float],
    progress: Progress,
    pace: Pace,
    *,
    load_moved_at: float,
    hangs: bool,
    answers_mid_step: bool,
) -> Budget:
    """The budget that is over first. `evidence`: what, and since when; `hangs`: /slots does not answer."""
    kind, held = evidence
    turned = max(progress.turned_at, held)
    if kind is Evidence.PAGING:
        return Budget(kind, policy.loading, max(progress.moved_at, load_moved_at))
    if hangs:
        why = "its phase can't be seen"
        computing = Budget(Evidence.COMPUTING, policy.computing, progress.moved_at, why)
    else:
        computing = _by_pace(policy, progress, pace)
    if kind is Evidence.BLOCKED:
        found = Budget(kind, policy.blocked, turned)
    elif kind is Evidence.SPINNING:
        found = Budget(kind, policy.spinning, turned)
    elif kind is Evidence.UNKNOWN:
        known = None if hangs else pace.longest(_at_work(progress))
        found = Budget(kind, max(policy.unknown, policy.pace_factor * known[0] if known else 0.0), turned)
    elif hangs and answers_mid_step:
        why = "this build answers /slots in the middle of a step"
        found = Budget(Evidence.UNKNOWN, policy.unknown, progress.turned_at, why)
    else:
        return computing
    # Tasks that come and go without a token moving set `turned` back for ever, but not the computing budget.
    return min(found, computing, key=lambda budget: budget.began + budget.seconds)


def _at_work(progress: Progress) -> tuple[Slot, ...]:
    return tuple(track.slot for track in progress.tracks.values() if track.slot.processing)


def _by_pace(policy: StallPolicy, progress: Progress, pace: Pace) -> Budget:
    kind = Evidence.COMPUTING
    slots = _at_work(progress)
    known = pace.longest(slots)
    if known is None:
        return Budget(kind, policy.computing, progress.moved_at, "its pace here is not known yet")
    step, words = known
    # What comes before the first batch can be many times what was ever seen there: the first image after
    # months of text. A load's patience suits it better than the floor.
    starts = any(phase_of(slot) is Phase.START for slot in slots)
    floor = max(policy.pace_floor, policy.loading) if starts else policy.pace_floor
    seconds = max(floor, policy.pace_factor * step)
    why = f"{policy.pace_factor:g} × {words}" if seconds > floor else f"the least, for {words}"
    return Budget(
        kind, min(seconds, max(policy.computing, policy.pace_factor * step)), progress.moved_at, why
    )


def verdict_against(
    budget: Budget,
    at: float,
    reason: Reason,
    slots: tuple[int, ...],
    *,
    streak: int,
    policy: StallPolicy,
    interval: float,
    at_ease: State,
    stalled: float,
) -> Verdict:
    """The verdict on a standstill of `stalled` seconds that was seen at `streak` looks in a row."""
    lasting = at - budget.began
    due = max(0.0, budget.seconds - lasting)
    if lasting >= budget.seconds - JITTER * interval and streak >= policy.confirmations:
        state, due = State.WEDGED, 0.0
    elif streak >= 2 and lasting >= budget.seconds * SUSPICION.get(budget.evidence, 1 / 3):
        state = State.SUSPECT
    else:
        return Verdict(at_ease, None, budget.evidence, stalled, budget.seconds, due, slots, note=budget.why)
    fault = state is State.WEDGED
    return Verdict(state, reason, budget.evidence, stalled, budget.seconds, due, slots, fault, budget.why)
