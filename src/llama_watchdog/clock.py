"""The clocks of a watch: seconds since it began, the host's suspends included and told apart."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Moment:
    """`at`: seconds since the watch began by CLOCK_BOOTTIME, which runs on while the host sleeps;
    `suspended`: how many of those since the last moment it slept."""

    at: float
    suspended: float


class WatchClock:
    """Starts at 0 when made. CLOCK_MONOTONIC stands still in a suspend: the difference is the sleep."""

    def __init__(self) -> None:
        self.began = time.clock_gettime(time.CLOCK_BOOTTIME)  # seconds since the machine's start
        self._asleep = self._sleep_so_far()

    def now(self) -> float:
        """Seconds since the watch began."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self.began

    def moment(self) -> Moment:
        """Now, with the time slept since the last call."""
        asleep = self._sleep_so_far()
        slept = max(0.0, asleep - self._asleep)
        self._asleep = asleep
        return Moment(self.now(), slept)

    @staticmethod
    def _sleep_so_far() -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


def wall_time() -> str:
    """The time for people: ISO 8601, UTC, whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
