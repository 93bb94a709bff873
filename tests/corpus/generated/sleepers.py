"""Servers that sleep: left to it, waking slowly, or never again."""

from __future__ import annotations

from llama_watchdog.simulator.config import ServerConfig, Task
from llama_watchdog.simulator.faults import Fault
from llama_watchdog.simulator.happenings import (
    Request,
    Strike,
)
from tests.corpus.entry import Acts, Entry, fault, healthy
from tests.corpus.generated.common import (
    AT,
    EVERY_TEN,
    EVERY_TWENTY,
    NO_RIGHTS,
    WORK,
    spans,
    wedge,
)
from tests.corpus.generated.noise import crowded, http_load, reads_unseen
from tests.corpus.generated.sight import (
    fresh_slots_after_sleep,
)
from tests.corpus.generated.story import story

ASLEEP = ServerConfig(sleep_idle_seconds=120.0, load_seconds=8.0)


SLEEPERS: list[Entry] = [
    healthy(
        "F7",
        "asleep-6h",
        "six hours asleep under watch",
        story(365, [Request(20.0, Task(50, 50))], config=ASLEEP, watcher=EVERY_TWENTY),
        lasting=("sleeping", 6 * 3600.0),
        unseen="suspect",
    ),
    healthy(
        "F7",
        "waking-from-cache",
        "waking takes four minutes, from the page cache",
        story(
            90,
            [Request(20.0 + 900.0 * n, Task(300, 200)) for n in range(5)],
            fresh_slots_after_sleep,
            config=ServerConfig(sleep_idle_seconds=120.0, load_seconds=240.0, load_reads=False),
            watcher=EVERY_TEN,
        ),
        seen="sleeping",
    ),
    healthy(
        "F7",
        "waking-20min",
        "waking takes twenty minutes, from a network disk that pauses",
        story(
            90,
            [
                Request(1300.0, Task(300, 200)),
                Request(3000.0, Task(300, 200)),
                *spans(Fault.LOAD_HANG, (3200, 3500)),
            ],
            fresh_slots_after_sleep,
            config=ServerConfig(sleep_idle_seconds=120.0, load_seconds=1200.0),
            watcher=EVERY_TEN,
        ),
        seen="sleeping",
        unseen="down",
    ),
    healthy(
        "F7",
        "waking-slow-network",
        "waking reads 2 MB/s from a network filesystem: no block device, hardly any CPU, but memory grows",
        story(
            60,
            [Request(1200.0, Task(300, 200))],
            crowded(0.008),
            reads_unseen,
            config=ServerConfig(sleep_idle_seconds=120.0, load_seconds=900.0, load_reads=False),
            watcher=EVERY_TEN,
        ),
        seen="sleeping",
    ),
    healthy(
        "F7",
        "sleep-undeclared",
        "its command line can't be seen: only /props says that it sleeps",
        story(
            60,
            [Request(20.0, Task(50, 50)), Request(1800.0, Task(50, 50))],
            config=ASLEEP,
            known={"can_sleep": False},
            watcher=NO_RIGHTS,
        ),
    ),
    healthy(
        "P1",
        "left-to-sleep",
        "a server that can sleep is asked for nothing that wakes it, whoever else watches it",
        story(
            120,
            [Request(20.0, Task(50, 50)), Request(3600.0, Task(50, 50))],
            http_load(0.02),
            config=ASLEEP,
            watcher=EVERY_TEN,
        ),
        lasting=("sleeping", 6500.0),
        unseen="suspect",
    ),
    fault(
        "F7",
        "wedged-before-its-sleep",
        "a server that can sleep is wedged with nothing to do, and does not fall asleep any more",
        wedge(
            [*WORK, Strike(290.0, Fault.BLOCK), Request(AT, Task(100, 100))],
            config=ServerConfig(sleep_idle_seconds=600.0, load_seconds=8.0),
        ),
        Acts(AT, 30.0, "slots-hang", "blocked"),
    ),
]
