"""What happens to a simulated server and its host, and when: requests, faults, signals, suspends.

Times (`at`) are seconds of the server's own time, which stands still while the host is suspended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from llama_watchdog.simulator.config import Task
from llama_watchdog.simulator.faults import Fault


@dataclass(frozen=True, slots=True)
class Request:
    """A client asks. `leaves_after`: seconds until it gives up, answered or not; `name` is for `Leave`."""

    at: float
    task: Task = field(default_factory=Task)
    leaves_after: float | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Leave:
    """The client of that name gives up; without a name, all of them do, as when connections are closed."""

    at: float
    name: str = ""


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault begins; Fault.NONE ends it."""

    at: float
    fault: Fault


@dataclass(frozen=True, slots=True)
class Suspend:
    """The host sleeps for so long: by CLOCK_BOOTTIME time passes, by the server's clock none does."""

    at: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Sigterm:
    """The process gets SIGTERM."""

    at: float


@dataclass(frozen=True, slots=True)
class Sigkill:
    """The process is killed, and gone at once."""

    at: float


@dataclass(frozen=True, slots=True)
class Restart:
    """A new process starts, healthy unless said otherwise; the old one, if any, is gone."""

    at: float
    fault: Fault = Fault.NONE


Happening = Request | Leave | Strike | Suspend | Sigterm | Sigkill | Restart


def traffic(
    *,
    until: float,
    every: float = 60.0,
    prompt: tuple[int, int] = (20, 2000),
    predict: tuple[int, int] = (20, 800),
    seed: int = 0,
) -> Iterator[Request]:
    """Requests at random, `every` so many seconds on average, sized at random within the given bounds."""
    rng = Random(seed)  # noqa: S311 - noise, no secrets
    at = 0.0
    while (at := at + rng.expovariate(1.0 / every)) < until:
        yield Request(at, Task(prompt=rng.randint(*prompt), predict=rng.randint(*predict)))
