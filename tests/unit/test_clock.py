"""The clocks of a watch."""

from __future__ import annotations

import re
import time

import pytest

from llama_watchdog.clock import WatchClock, wall_time


class Clocks:
    """The kernel's two clocks, as far apart as the host has slept."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monotonic, self.asleep = 1000.0, 50.0
        monkeypatch.setattr(time, "clock_gettime", self._read)

    def _read(self, which: int) -> float:
        return self.monotonic + (self.asleep if which == time.CLOCK_BOOTTIME else 0.0)


def test_a_watch_starts_at_zero_and_counts_the_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks(monkeypatch)
    clock = WatchClock()
    assert clock.now() == 0.0
    clocks.monotonic += 5.0
    assert clock.now() == 5.0
    assert (clock.moment().at, clock.moment().suspended) == (5.0, 0.0)


def test_what_the_host_has_slept_is_counted_and_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks(monkeypatch)
    clock = WatchClock()
    clocks.monotonic += 5.0
    clocks.asleep += 3600.0
    moment = clock.moment()
    assert (moment.at, moment.suspended) == (3605.0, 3600.0)
    clocks.monotonic += 5.0
    moment = clock.moment()
    assert (moment.at, moment.suspended) == (3610.0, 0.0)


def test_sleep_before_the_watch_is_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    Clocks(monkeypatch)
    assert WatchClock().moment().suspended == 0.0


def test_the_two_real_clocks_agree_while_nobody_sleeps() -> None:
    moment = WatchClock().moment()
    assert 0.0 <= moment.at < 1.0
    assert moment.suspended < 0.5


def test_the_time_for_people() -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", wall_time())
