"""Healthy, on machines that hiccup, page, or give it next to nothing of their cores."""

from __future__ import annotations

from llama_watchdog.simulator.config import ServerConfig, Task
from llama_watchdog.simulator.faults import Fault
from llama_watchdog.simulator.happenings import (
    Request,
    Strike,
)
from llama_watchdog.simulator.traces import Watcher
from tests.corpus.entry import Entry, healthy
from tests.corpus.generated.common import (
    ENDLESS,
    EVERY_TEN,
    FAST,
    GENERATES,
    LATE,
    spans,
)
from tests.corpus.generated.noise import Lens, crowded, one_thread
from tests.corpus.generated.story import story

WHEN = [100.0 + 120.0 * n for n in range(12)]
HICCUPS = [GENERATES, *spans(Fault.FREEZE, *[(at, at + 50.0) for at in WHEN])]
SHORT_HICCUPS = [GENERATES, *spans(Fault.FREEZE, *[(at, at + 23.0) for at in WHEN])]


def within(*, state: str, cpu: float = 0.0, faults: float = 0.0) -> list[Lens]:
    """The main thread as it is in each of the hiccups."""
    return [one_thread(at, at + 51.0, state=state, cpu=cpu, faults=faults) for at in WHEN]


SLOW_MACHINES: list[Entry] = [
    healthy(
        "F8",
        "hiccups-kernel-time",
        "50 s without a token again and again, while the kernel works in the main thread's name",
        story(30, HICCUPS, *within(state="R", cpu=1.0), config=ENDLESS),
        unseen="wedged",
    ),
    healthy(
        "F8",
        "hiccups-faults",
        "50 s each of page faults",
        story(30, HICCUPS, *within(state="D", cpu=0.1, faults=40.0), config=ENDLESS),
    ),
    healthy(
        "F8",
        "hiccups-disk-wait",
        "50 s each in state D, with nothing to be seen of a disk",
        story(30, HICCUPS, *within(state="D"), config=ENDLESS),
    ),
    healthy(
        "F8",
        "hiccups-still",
        "23 s each of perfect stillness, below the budget",
        story(30, SHORT_HICCUPS, config=ENDLESS),
        unseen="wedged",
    ),
    healthy(
        "F8",
        "paging-5min",
        "its pages come back from disk for five minutes",
        story(20, [GENERATES, Strike(300.0, Fault.PAGING), Strike(600.0, Fault.NONE)], config=ENDLESS),
    ),
    healthy(
        "F9",
        "quota-fifth",
        "a fifth of a core for four threads: 40 tokens/s of prefill, and 11 minutes a prompt",
        story(
            40,
            [Request(20.0 + 1000 * n, Task(3800, 60)) for n in range(3)],
            crowded(0.05),
            config=ServerConfig(prefill_rate=8.0, decode_rate=0.4),
        ),
    ),
    healthy(
        "F9",
        "quota-hundredth",
        "a hundredth of a core for eight threads: a token in 40 seconds",
        story(
            60,
            [Request(20.0, Task(20, 100))],
            crowded(0.00125),
            config=ServerConfig(prefill_rate=0.2, decode_rate=0.025, threads=8),
        ),
    ),
    healthy(
        "F9",
        "quota-fifth-old",
        "a fifth of a core, on a build that is silent all the while",
        story(
            60,
            [Request(20.0 + 1000 * n, Task(3800, 60)) for n in range(3)],
            crowded(0.05),
            config=ServerConfig(prefill_rate=8.0, decode_rate=0.4),
            form=LATE,
            watcher=Watcher(interval=2.0),
        ),
    ),
    healthy(
        "F9",
        "token-a-minute",
        "more threads than cores: a token a minute, after a faster day",
        story(
            90,
            [*FAST[:10], Request(1000.0, Task(20, 60))],
            crowded(0.3, since=990.0),
            config=ServerConfig(decode_rate=1 / 45),
            watcher=EVERY_TEN,
        ),
    ),
]
