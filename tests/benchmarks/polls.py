"""What the benchmarks replay: a busy server of four slots and eight threads, for as long as one likes.

`python -m tests.benchmarks.polls DAYS` writes the trace of a watch of so many days, poll by poll.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from llama_watchdog.core.observation import Observation, Watch
from llama_watchdog.core.pace import Learned
from llama_watchdog.core.policy import Policy
from llama_watchdog.core.trace import Header, header_line, poll_line
from llama_watchdog.simulator.config import ServerConfig
from llama_watchdog.simulator.happenings import traffic
from llama_watchdog.simulator.model import ServerModel
from llama_watchdog.simulator.traces import VirtualWatch

DAY = 86_400.0
# Slow enough that prefills last several polls, and some of these stand still.
SERVER = ServerConfig(slots=4, threads=4, http_threads=4, prefill_rate=150.0, decode_rate=12.0)


@dataclass(frozen=True, slots=True)
class Mix:
    """Polls of all kinds, and how many are of each."""

    watch: Watch
    polls: list[Observation]
    idle: int
    moving: int
    still: int


def watch_for(seconds: float) -> tuple[Watch, Iterator[Observation]]:
    """Decoding, prefill, idleness and some standstill, a poll every 5 s; lazily."""
    happenings = traffic(until=seconds, every=35.0)
    watch = VirtualWatch(ServerModel(SERVER), happenings)
    return watch.facts, _polls(watch, seconds)


def _polls(watch: VirtualWatch, seconds: float) -> Iterator[Observation]:
    while watch.due < seconds:
        yield watch.poll()


def mix(polls: int) -> Mix:
    """So many polls, built beforehand."""
    facts, lazily = watch_for(polls * 5.0)
    built = list(lazily)
    idle = moving = 0
    for before, now in zip([built[0], *built], built, strict=False):
        assert before.slots is not None
        assert now.slots is not None
        if not any(slot.processing for slot in now.slots.slots):
            idle += 1
        elif now.slots.slots != before.slots.slots:
            moving += 1
    return Mix(facts, built, idle, moving, len(built) - idle - moving)


def lines_of(facts: Watch, polls: Iterator[Observation]) -> Iterator[str]:
    """As a trace, with the defaults of the policy."""
    yield header_line(Header(facts, Policy(), Learned()), recorded="2026-11-30T15:00:00Z")
    for poll in polls:
        yield poll_line(poll)


def main() -> None:
    """To standard output."""
    for line in lines_of(*watch_for(float(sys.argv[1]) * DAY)):
        sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
