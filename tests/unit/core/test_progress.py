"""What counts as progress, and what only looks like it."""

from __future__ import annotations

import pytest

from llama_watchdog.core.observation import Slot
from llama_watchdog.core.progress import Progress
from tests.support.facts import slot


def watch_of(*polls: tuple[Slot, ...]) -> Progress:
    """A progress that has seen these polls, 5 s apart."""
    progress = Progress(aside_after=120.0)
    for number, slots in enumerate(polls):
        progress.see(slots, 5.0 * number)
    return progress


@pytest.mark.parametrize("grown", [slot(decoded=1), slot(prompt=1), slot(done=1)])
def test_each_counter_that_grows_within_a_task_is_progress(grown: Slot) -> None:
    assert watch_of((slot(),), (grown,)).moved_at == 5.0


def test_counters_that_stand_are_no_progress() -> None:
    progress = watch_of((slot(decoded=5),), (slot(decoded=5),), (slot(decoded=5),))
    assert progress.moved_at == progress.turned_at == 0.0


def test_a_new_task_shows_that_the_loop_turns_but_is_no_progress() -> None:
    """Tasks that come and go without one token moving: a public report's server did so for hours."""
    progress = watch_of(*[(slot(task=n, decoded=9),) for n in range(4)])
    assert progress.moved_at == 0.0
    assert progress.turned_at == 15.0


def test_a_new_task_that_has_decoded_already_is_progress() -> None:
    assert watch_of((slot(task=1, decoded=9),), (slot(task=2, decoded=3),)).moved_at == 5.0


def test_tasks_that_end_are_progress_where_nothing_else_can_show() -> None:
    """Embeddings on a build without prompt counters move no counter, ever."""
    polls = [(Slot(0, True, task, decoded=0),) for task in (1, 5, 9)]
    assert watch_of(*polls).moved_at == 10.0


def test_nothing_to_do_is_no_standstill() -> None:
    assert watch_of(*[(slot(busy=False, decoded=7),)] * 5).moved_at == 20.0


def test_the_order_of_slots_does_not_matter() -> None:
    here = watch_of((slot(0, decoded=1), slot(1, decoded=1)), (slot(1, decoded=2), slot(0, decoded=1)))
    assert here.moved_at == 5.0
    assert here.tracks[1].moved_at == 5.0
    assert here.tracks[0].moved_at == 0.0


def test_a_slot_that_stands_while_another_moves_is_set_aside() -> None:
    polls = [(slot(0, decoded=4), slot(1, decoded=n)) for n in range(30)]
    standing, aside = watch_of(*polls).standing()
    assert [track.slot.id for track in standing] == [1]
    assert [track.slot.id for track in aside] == [0]


def test_a_slot_set_aside_is_taken_back_once_it_moves() -> None:
    polls = [(slot(0, decoded=4), slot(1, decoded=n)) for n in range(30)]
    _, aside = watch_of(*polls, (slot(0, decoded=5), slot(1, decoded=30))).standing()
    assert aside == []


def test_what_was_not_seen_does_not_count() -> None:
    progress = watch_of((slot(decoded=5),), (slot(decoded=5),))
    progress.shift(100.0)
    assert progress.moved_at == 100.0


def test_a_generation_that_was_over_between_two_polls_has_delivered() -> None:
    """As seen on b11669: an idle slot's n_decoded is 0 again, its task and n_prompt_tokens stay."""
    assert watch_of((Slot(0, False),), (slot(busy=False, task=7, prompt=83),)).delivered


def test_a_task_that_moved_no_token_has_delivered_nothing() -> None:
    assert not watch_of((Slot(0, False),), (slot(busy=False, task=7, prompt=0),)).delivered
    assert not watch_of((Slot(0, False),), (slot(busy=True, task=7, prompt=83),)).delivered


def test_the_order_of_slots_does_not_matter_for_what_was_delivered() -> None:
    """One slot ends with tokens while another, on a build without counters, merely takes a new task."""
    before = (Slot(0, True, 1), Slot(1, True, 1))
    ends, delivers = Slot(0, True, 2), Slot(1, False, 1)
    one, other = watch_of(before, (ends, delivers)), watch_of(before, (delivers, ends))
    assert one.moved_at == other.moved_at
    assert one.tracks[0].moved_at == other.tracks[0].moved_at
