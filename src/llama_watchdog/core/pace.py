"""How fast this server works when it is healthy, by phase: so that a slow one gets the time it needs.

Rates are learned, not durations: a short prompt's step says nothing of how long a full batch takes.

    phase   | what is learned                          | what a standstill in it may last
    --------+------------------------------------------+-----------------------------------------------
    prefill | tokens/s of all slots together           | factor × a full batch ÷ the slowest rate
    decode  | steps/s of one slot                      | factor × one step ÷ the slowest rate
    start   | seconds from a task's first sight to its | factor × the longest (images are encoded there,
            | first movement                           | caches restored: other work than any batch)

A rate holds up to twice the depth of context that it was seen at, since attention grows with depth. What
moved after an incident or a gap in the watch is no pace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from llama_watchdog.core.observation import Slot

DEPTH_MARGIN = 2.0
# Of a full batch: shorter steps are dominated by what every step costs, and by how often we look.
WORTH_LEARNING = 0.25
DEEPER = 1.1  # a depth is worth a new figure once it is so much deeper


class Phase(StrEnum):
    """What a slot at work is doing."""

    START = "start"
    PREFILL = "prefill"
    DECODE = "decode"


def phase_of(slot: Slot) -> Phase | None:
    """The phase of a slot at work; `None` where its build shows no prompt counters to tell it by.

    While a batch of the prompt is computed, n_prompt_tokens is ahead of what is processed and cached by it;
    before and between batches, as while an image is encoded, it is not.
    """
    if slot.decoded:
        return Phase.DECODE
    if slot.prompt_processed is None:
        return None
    ahead = (slot.prompt or 0) > slot.prompt_processed + (slot.cached or 0)
    return Phase.PREFILL if ahead else Phase.START


def depth(slot: Slot) -> int:
    """Tokens of context that a slot has to attend to."""
    return max(slot.prompt or 0, (slot.prompt_processed or 0) + (slot.decoded or 0))


@dataclass(frozen=True, slots=True)
class Learned:
    """What is known so far; 0: nothing. Rates per second, depths in tokens, `start` in seconds."""

    prefill: float = 0.0
    prefill_depth: int = 0
    decode: float = 0.0
    decode_depth: int = 0
    start: float = 0.0

    def as_json(self) -> dict[str, float]:
        """For traces and the state directory."""
        return asdict(self)


def learned_from_json(value: Mapping[str, Any]) -> Learned:
    """As `as_json` wrote it; what is missing or no sensible number is unknown."""

    def number(key: str) -> float:
        figure = value.get(key)
        fine = isinstance(figure, int | float) and not isinstance(figure, bool) and 0 <= figure < float("inf")
        return float(figure) if fine and figure is not None else 0.0

    return Learned(
        number("prefill"),
        int(number("prefill_depth")),
        number("decode"),
        int(number("decode_depth")),
        number("start"),
    )


@dataclass(slots=True)
class _Mark:
    """One task's last movement: when, its slot then, and whether it has moved at all."""

    at: float
    slot: Slot
    moved: bool = False


class Pace:
    """Learns from each answer of /slots. Every time is `at` of an observation."""

    def __init__(self, batch_size: int, learned: Learned | None = None) -> None:
        self.batch_size = batch_size
        self.learned = learned or Learned()
        self._marks: dict[int, _Mark] = {}
        self._last_at: float | None = None
        self._prefill_since: float | None = (
            None  # when the running batch was begun, at the latest look before
        )

    def restart(self) -> None:
        """What comes next has no beginning that was seen."""
        self._marks.clear()
        self._last_at = None
        self._prefill_since = None

    def see(self, slots: tuple[Slot, ...], at: float) -> None:
        """Take in one answer of /slots."""
        before, marks = self._last_at, self._marks
        prefilled = deepest = 0
        pending = False
        for slot in slots:
            if not slot.processing:
                if marks:
                    marks.pop(slot.id, None)
                continue
            mark = marks.get(slot.id)
            if mark is None or mark.slot.task != slot.task:
                # It began somewhere between the two looks: the earlier end makes it slow rather than fast.
                marks[slot.id] = _Mark(at if before is None else before, slot)
            elif slot != mark.slot:
                grown = self._follow(mark, slot, at)
                if grown:
                    prefilled += grown
                    deepest = max(deepest, depth(slot))
            pending = pending or not slot.decoded
        if pending or prefilled or self._prefill_since is not None:
            self._learn_prefill(prefilled, deepest, at, before, slots)
        self._last_at = at

    def _follow(self, mark: _Mark, slot: Slot, at: float) -> int:
        """What one task has done since its last movement; returns the prompt tokens it has processed."""
        before = mark.slot
        decoded = (slot.decoded or 0) - (before.decoded or 0)
        processed = (slot.prompt_processed or 0) - (before.prompt_processed or 0)
        if decoded <= 0 and processed <= 0 and (slot.prompt or 0) <= (before.prompt or 0):
            return 0
        if not mark.moved:
            self._learn_start(at - mark.at)
        elif decoded > 0 and before.decoded:
            self._learn_decode(decoded / (at - mark.at), depth(slot))
        mark.at, mark.slot, mark.moved = at, slot, True
        return max(0, processed)

    def _learn_start(self, seconds: float) -> None:
        if seconds > self.learned.start:
            self.learned = replace(self.learned, start=seconds)

    def _learn_decode(self, rate: float, deep: int) -> None:
        known = self.learned
        if not known.decode or rate < known.decode or deep > DEEPER * known.decode_depth:
            slowest = min(rate, known.decode) if known.decode else rate
            self.learned = replace(known, decode=slowest, decode_depth=max(deep, known.decode_depth))

    def _learn_prefill(
        self, tokens: int, deep: int, at: float, before: float | None, slots: tuple[Slot, ...]
    ) -> None:
        """All slots share one batch: its tokens together, over the time since the batch before it."""
        since, known = self._prefill_since, self.learned
        if tokens >= max(1.0, WORTH_LEARNING * self.batch_size) and since is not None:
            rate = tokens / (at - since)
            slowest = min(rate, known.prefill) if known.prefill else rate
            self.learned = replace(known, prefill=slowest, prefill_depth=max(deep, known.prefill_depth))
        if not any(slot.processing and phase_of(slot) is Phase.PREFILL for slot in slots):
            self._prefill_since = None
        elif tokens:
            self._prefill_since = at
        elif since is None:
            self._prefill_since = before

    def longest(self, slots: tuple[Slot, ...]) -> tuple[float, str] | None:
        """Seconds that the step at hand may take by what is known, and in words; `None`: not known."""
        longest, words = 0.0, ""
        for slot in slots:
            known = self._step_of(slot)
            if known is None:
                return None
            if known[0] > longest or not words:
                longest, words = known
        return (longest, words) if words else None

    def _step_of(self, slot: Slot) -> tuple[float, str] | None:
        learned, deep, phase = self.learned, depth(slot), phase_of(slot)
        if phase is Phase.DECODE and learned.decode and deep <= DEPTH_MARGIN * learned.decode_depth:
            return 1.0 / learned.decode, f"a step at {learned.decode:.2g} tokens/s"
        if phase is Phase.PREFILL and learned.prefill and deep <= DEPTH_MARGIN * learned.prefill_depth:
            seconds = self.batch_size / learned.prefill
            return seconds, f"a batch of {self.batch_size} at {learned.prefill:.3g} tokens/s"
        if phase is Phase.START and learned.start:
            return learned.start, f"a task's start of {learned.start:.0f} s"
        return None
