"""Which slots moved, and since when they have not: the only thing that counts as progress.

A slot moves when, within one task, one of its counters grows. CPU time, log lines and task ids that rise
while no token moves are no progress. Two clocks come of it:

- `moved_at`: when a token last moved, or there was nothing to do;
- `turned_at`: when the main loop last showed that it turns (a task came or went, or a token moved).

Times are the observations' own, `at`.
"""

from __future__ import annotations

from dataclasses import dataclass

from llama_watchdog.core.observation import Slot


@dataclass(slots=True)
class Track:
    """One slot's history within its incarnation of the server."""

    slot: Slot
    moved_at: float
    aside: bool = False  # stood still while others moved: its own trouble, not the loop's


def counters(slot: Slot) -> tuple[int, int, int]:
    """The numbers that can move, unknown ones as 0."""
    return slot.decoded or 0, slot.prompt_processed or 0, slot.prompt or 0


def moved(before: Slot, after: Slot) -> bool:
    """Whether a token moved between two looks at one slot."""
    old, new = counters(before), counters(after)
    if before.task == after.task and before.processing:
        return new[0] > old[0] or new[1] > old[1] or new[2] > old[2]
    # Another task, or the same one seen idle before: a fresh counter counts once it is above zero, unless
    # it is the last task's number, which an idle slot goes on showing.
    return new[:2] != old[:2] and (new[0] > 0 or new[1] > 0)


def _has_delivered(slot: Slot) -> bool:
    """Whether a slot's numbers show tokens delivered, now or by its last task.

    Today's builds set n_decoded and n_prompt_tokens_processed of an idle slot back to 0; what stays is the
    task's id and n_prompt_tokens, which then counts the tokens of the answer, too.
    """
    if slot.processing or slot.decoded:
        return (slot.decoded or 0) > 0
    return slot.task is not None and slot.prompt != 0


class Progress:
    """Follows every slot across polls."""

    def __init__(self, aside_after: float) -> None:
        self.aside_after = aside_after
        self.tracks: dict[int, Track] = {}
        self.moved_at = 0.0
        self.turned_at = 0.0
        self.delivered = False  # this incarnation has delivered tokens
        self.proven = False  # its main loop was seen to work since the clocks began: idle, or tokens moved

    def restart(self, at: float, *, forget: bool) -> None:
        """Start the clocks anew; with `forget` it is another incarnation, and nothing is known of it."""
        self.proven = False
        self.moved_at = self.turned_at = at
        for track in self.tracks.values():
            track.moved_at = at
            track.aside = False
        if forget:
            self.tracks.clear()
            self.delivered = False

    def shift(self, seconds: float) -> None:
        """Nothing was seen for `seconds`: they count neither as progress nor as a standstill."""
        self.moved_at += seconds
        self.turned_at += seconds
        for track in self.tracks.values():
            track.moved_at += seconds

    def see(self, slots: tuple[Slot, ...], at: float) -> bool:
        """Take in an answer of /slots; returns whether any slot moved."""
        anything = self._compare(slots, at)
        if not any(slot.processing for slot in slots):
            self.moved_at = self.turned_at = at
            self.proven = True
        elif anything:
            self.moved_at = self.turned_at = at
            self.proven = True
            self._set_aside(at)
        return anything

    def _compare(self, slots: tuple[Slot, ...], at: float) -> bool:
        anything = False
        had_delivered = self.delivered  # before this answer: the order of its slots must not matter
        for slot in slots:
            track = self.tracks.get(slot.id)
            if track is None:
                self.tracks[slot.id] = Track(slot, at)
                self.delivered = self.delivered or _has_delivered(slot)
                continue
            before = track.slot
            if slot == before:
                continue
            if moved(before, slot):
                anything = True
                track.moved_at = at
                track.aside = False
            self.delivered = self.delivered or _has_delivered(slot)
            if slot.task != before.task or slot.processing != before.processing:
                self.turned_at = at  # the loop turns, though perhaps without moving one token
                # Embeddings on a build without prompt counters: a task's end is all that ever shows.
                if slot.prompt_processed is None and not had_delivered:
                    anything = True
                if not slot.processing or not before.processing:
                    track.moved_at = at
                track.aside = False
            track.slot = slot
        if len(slots) != len(self.tracks):
            seen = {slot.id for slot in slots}
            self.tracks = {id_: track for id_, track in self.tracks.items() if id_ in seen}
        return anything

    def _set_aside(self, at: float) -> None:
        for track in self.tracks.values():
            if track.slot.processing and at - track.moved_at >= self.aside_after:
                track.aside = True

    def standing(self) -> tuple[list[Track], list[Track]]:
        """The slots at work: those that share the loop's clocks, and those set aside."""
        busy = [track for track in self.tracks.values() if track.slot.processing]
        return [t for t in busy if not t.aside], [t for t in busy if t.aside]
