"""The learned pace: rates by phase, valid only as deep as seen."""

from __future__ import annotations

import pytest

from llama_watchdog.core.observation import Slot
from llama_watchdog.core.pace import Learned, Pace, Phase, learned_from_json, phase_of
from tests.support.facts import slot

BATCH = 2048


def prefilling(done: int, ahead: int = BATCH, task: int = 1) -> Slot:
    """A prefill with `done` tokens processed, and the next `ahead` being computed."""
    return slot(task=task, prompt=done + ahead, done=done)


def learned_from(*polls: tuple[float, Slot | tuple[Slot, ...]]) -> Learned:
    pace = Pace(BATCH)
    for at, slots in polls:
        pace.see(slots if isinstance(slots, tuple) else (slots,), at)
    return pace.learned


def test_the_slowest_prefill_counts() -> None:
    """Three full batches, of 10, 20 and 10 s."""
    learned = learned_from(
        (0.0, slot(busy=False)),
        (5.0, prefilling(0)),
        (10.0, prefilling(BATCH)),
        (30.0, prefilling(2 * BATCH)),
        (40.0, prefilling(3 * BATCH)),
    )
    assert learned.prefill == pytest.approx(BATCH / 20.0)
    assert learned.prefill_depth == 4 * BATCH


def test_slots_share_a_batch_and_are_counted_together() -> None:
    half = BATCH // 2
    polls = [
        (10.0 * n, tuple(Slot(k, True, 1, 0, (n + 1) * half, n * half) for k in range(2))) for n in range(4)
    ]
    assert learned_from(*polls).prefill == pytest.approx(BATCH / 10.0)


def test_a_short_prompts_step_says_nothing_of_a_full_batch() -> None:
    learned = learned_from(
        (0.0, slot(busy=False)), (5.0, prefilling(0, 12)), (10.0, slot(prompt=12, done=12))
    )
    assert learned.prefill == 0.0


def test_the_slowest_decode_counts() -> None:
    decoding = [slot(decoded=n, prompt=50 + n, done=50) for n in (10, 60, 70, 170)]
    learned = learned_from(*[(5.0 * n, decoding[n]) for n in range(4)])
    assert learned.decode == pytest.approx(2.0)


def test_a_tasks_start_is_a_phase_of_its_own() -> None:
    """82 s of image encoding before any counter moves."""
    image = slot(task=2)
    polls = [(0.0, slot(busy=False))] + [(5.0 * n, image) for n in range(1, 18)]
    learned = learned_from(*polls, (90.0, prefilling(0, 600, task=2)))
    assert learned.start == pytest.approx(90.0, abs=5.0)
    assert learned.prefill == 0.0


def test_what_followed_a_gap_is_no_pace() -> None:
    pace = Pace(BATCH)
    pace.see((prefilling(0),), 0.0)
    pace.see((prefilling(BATCH),), 20.0)
    known = pace.learned
    pace.restart()
    pace.see((prefilling(2 * BATCH),), 5000.0)
    pace.see((prefilling(3 * BATCH),), 5020.0)
    assert pace.learned.prefill == known.prefill


@pytest.mark.parametrize(
    ("one", "phase"),
    [
        (slot(), Phase.START),
        (prefilling(0), Phase.PREFILL),
        (prefilling(BATCH), Phase.PREFILL),
        (slot(decoded=1, prompt=9, done=9), Phase.DECODE),
        (Slot(0, True, 1, decoded=0), None),
        (Slot(0, True, 1, decoded=5), Phase.DECODE),
    ],
)
def test_phases(one: Slot, phase: Phase | None) -> None:
    assert phase_of(one) is phase


KNOWN = Learned(prefill=100.0, prefill_depth=4000, decode=4.0, decode_depth=5000, start=90.0)


def test_the_step_at_hand_takes_as_long_as_its_phase_is_known_to() -> None:
    pace = Pace(BATCH, KNOWN)
    assert pace.longest((prefilling(0),)) == (BATCH / 100.0, "a batch of 2048 at 100 tokens/s")
    assert pace.longest((slot(decoded=9, done=9),)) == (0.25, "a step at 4 tokens/s")
    assert pace.longest((slot(),)) == (90.0, "a task's start of 90 s")


def test_the_slowest_slot_at_work_decides() -> None:
    longest = Pace(BATCH, KNOWN).longest((slot(0, decoded=9, done=9), prefilling(0)))
    assert longest is not None
    assert longest[0] == pytest.approx(BATCH / 100.0)


@pytest.mark.parametrize(
    "one", [prefilling(8000), slot(decoded=4000, done=8000), Slot(0, True, 1, decoded=0)], ids=str
)
def test_a_pace_holds_no_deeper_than_twice_what_was_seen(one: Slot) -> None:
    assert Pace(BATCH, KNOWN).longest((one,)) is None


def test_nothing_is_known_at_first() -> None:
    assert Pace(BATCH).longest((prefilling(0),)) is None


def test_what_was_learned_is_kept_as_json() -> None:
    assert learned_from_json(KNOWN.as_json()) == KNOWN


@pytest.mark.parametrize(
    "value", [{}, {"prefill": "fast"}, {"prefill": -1}, {"decode": float("inf")}, {"start": True}]
)
def test_what_is_no_sensible_pace_is_unknown(value: dict[str, object]) -> None:
    assert learned_from_json(value) == Learned()
