"""Whether a load makes progress."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from llama_watchdog.core.loading import GROWTH, LoadProgress
from llama_watchdog.core.observation import Gpu, Observation, Outcome
from tests.support.facts import process

GIB = 1 << 30


def look(at: float, memory: int | None = None, **figures: Any) -> Observation:
    gpu = None if memory is None else Gpu(Outcome.OK, memory=memory)
    return Observation(at, process=process((at, 0.0), **figures), gpu=gpu)


def load(*looks: Observation) -> float:
    """When a load that was looked at like that last made progress."""
    progress = LoadProgress()
    progress.restart(0.0)
    for observation in looks:
        progress.see(observation, observation.at)
    return progress.moved_at


@pytest.mark.parametrize("figure", ["read_bytes", "write_bytes", "rss", "memory"])
def test_growth_of_any_figure_is_progress(figure: str) -> None:
    """Reads of a model, writes of a download, memory from the page cache, memory of the GPU."""
    assert load(*(look(5.0 * n, **{figure: n * GIB}) for n in range(5))) == 20.0


def test_pages_that_come_from_the_disk_are_progress() -> None:
    assert load(look(0.0), look(5.0, major_faults=300), look(10.0, major_faults=301)) == 5.0


def test_cpu_alone_is_none_nor_is_the_memory_that_answering_us_takes() -> None:
    assert load(*(look(5.0 * n, rss=GIB + 4096 * n) for n in range(20))) == 0.0


def test_slow_growth_adds_up() -> None:
    """From a network disk a poll may bring less than a mebibyte."""
    assert load(*(look(5.0 * n, read_bytes=n * GROWTH // 4) for n in range(9))) == 40.0


def test_what_cannot_be_read_says_nothing() -> None:
    gone = replace(look(5.0, rss=9 * GIB), process=replace(process(rss=9 * GIB), outcome=Outcome.TIMEOUT))
    assert load(look(0.0, read_bytes=None), gone, look(10.0, read_bytes=None)) == 0.0


def test_a_new_load_is_measured_from_its_own_start() -> None:
    progress = LoadProgress()
    progress.see(look(5.0, rss=9 * GIB), 5.0)
    progress.restart(10.0)
    progress.see(look(10.0, rss=GIB), 10.0)
    progress.see(look(15.0, rss=2 * GIB), 15.0)
    assert progress.moved_at == 15.0
