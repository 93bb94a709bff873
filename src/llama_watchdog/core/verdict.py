"""What the judge says of a server, with the one line that tells a person why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from llama_watchdog.core.evidence import Evidence


class State(StrEnum):
    """The verdicts. The last two are the escalation's: it has done what it may."""

    IDLE = "idle"
    BUSY = "busy"
    LOADING = "loading"
    SLEEPING = "sleeping"
    SUSPECT = "suspect"
    BLIND = "blind"
    PAUSED = "paused"
    WEDGED = "wedged"
    DOWN = "down"
    UNKILLABLE = "unkillable"
    HELD = "held"


SERVING = frozenset({State.IDLE, State.BUSY, State.SLEEPING})


class Reason(StrEnum):
    """What stands still."""

    FROZEN = "frozen"  # /slots answers, the counters stand
    SLOTS_HANG = "slots-hang"
    DEAF = "deaf"  # /slots and /health hang
    DEFERRED = "deferred"  # every slot idle, and requests wait
    CANARY = "canary"
    LOAD = "load"
    REFUSED = "refused"
    GONE = "gone"


# Where closing the clients' connections cannot help: a loop that hangs never hears of it, and requests that
# are put off for ever would only be put out of sight.
BEYOND_CANCEL = frozenset(Reason) - {Reason.FROZEN}


@dataclass(frozen=True, slots=True)
class Verdict:
    """One judgement. `stalled_for` and `budget` are seconds; `due` is how long until the budget is over.

    `fault` says that the budget is over and enough was seen: the server needs help.
    """

    state: State
    reason: Reason | None = None
    evidence: Evidence | None = None
    stalled_for: float = 0.0
    budget: float | None = None
    due: float | None = None
    slots: tuple[int, ...] = ()
    fault: bool = False
    note: str = ""

    @property
    def text(self) -> str:
        """One line for people."""
        return _tell(self)


LONG_STEP = 10.0  # seconds without a moving counter that are worth a word

_PLAIN = {
    State.IDLE: "every slot is idle",
    State.BUSY: "tokens are moving",
    State.LOADING: "the model is being loaded",
    State.SLEEPING: "asleep until the next request",
    State.BLIND: "nothing can be seen of its slots",
    State.PAUSED: "stopped from outside",
    State.HELD: "restarting it has not helped; hands off until it serves again",
    State.UNKILLABLE: "alive after SIGKILL; nothing is started beside it",
}

_EVIDENCE = {
    Evidence.BLOCKED: "no CPU, no GPU",
    Evidence.SPINNING: "one thread spins, the others are still",
    Evidence.COMPUTING: "computing",
    Evidence.PAGING: "reading or paging",
    Evidence.PAUSED: "paused",
    Evidence.UNKNOWN: "its GPU's load can't be known",
}


def _tell(verdict: Verdict) -> str:
    if verdict.state is State.BUSY and verdict.budget is not None and not verdict.slots:
        return f"waiting for /slots, for {seconds(verdict.stalled_for)} so far"
    if verdict.state is State.BUSY and verdict.budget is not None and verdict.stalled_for < LONG_STEP:
        return "at work"
    if verdict.state is State.BUSY and verdict.stalled_for:
        return f"at work: {_slots(verdict.slots)} last moved {seconds(verdict.stalled_for)} ago"
    if verdict.reason is None:
        plain = _PLAIN.get(verdict.state, verdict.state.value)
        return f"{plain}: {verdict.note}" if verdict.note else plain
    span = seconds(verdict.stalled_for)
    what = {
        Reason.FROZEN: f"{_slots(verdict.slots)} stood still for {span}",
        Reason.SLOTS_HANG: f"/slots has not answered for {span}",
        Reason.DEAF: f"neither /health nor /slots has answered for {span}",
        Reason.DEFERRED: f"requests wait while every slot has been idle for {span}",
        Reason.CANARY: f"a canary request got no token for {span}",
        Reason.LOAD: f"loading has made no progress for {span}",
        Reason.REFUSED: f"connections have been refused for {span}",
        Reason.GONE: "its process has ended",
    }[verdict.reason]
    parts = [what]
    if verdict.evidence is not None:
        parts.append(_EVIDENCE[verdict.evidence])
        if verdict.budget and verdict.state is State.SUSPECT:
            parts.append(f"a wedge after {seconds(verdict.budget)}")
    if verdict.note:
        parts.append(verdict.note)
    return ", ".join(parts)


def _slots(ids: tuple[int, ...]) -> str:
    if not ids:
        return "its slots"
    return f"slot {ids[0]}" if len(ids) == 1 else f"slots {', '.join(map(str, ids))}"


def seconds(span: float) -> str:
    """A span for people: `31 s`, `12 min`, `2 h`."""
    if span < 120:
        return f"{span:.0f} s"
    if span < 7200:
        return f"{span / 60:.0f} min"
    return f"{span / 3600:.1f} h".replace(".0 h", " h")
