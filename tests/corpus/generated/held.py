"""Servers stopped from outside, hosts that sleep, a watchdog that is starved."""

from __future__ import annotations

from llama_watchdog.simulator.config import ServerConfig, Task
from llama_watchdog.simulator.faults import Fault
from llama_watchdog.simulator.happenings import (
    Request,
    Strike,
    Suspend,
)
from llama_watchdog.simulator.traces import Watcher
from tests.corpus.entry import Acts, Entry, fault, healthy
from tests.corpus.generated.common import (
    AT,
    ENDLESS,
    EVERY_TEN,
    GENERATES,
    OLD,
    SERVER,
    WORK,
    held,
)
from tests.corpus.generated.story import story

HELD: list[Entry] = [
    healthy(
        "F11",
        "sigstop-20min",
        "SIGSTOP",
        story(30, held(Fault.STOPPED, 90, 1290), config=ENDLESS),
        seen="paused",
    ),
    healthy(
        "F11",
        "debugger-20min",
        "a debugger",
        story(30, held(Fault.TRACED, 90, 1290), config=ENDLESS),
        seen="paused",
    ),
    healthy(
        "F11",
        "paused-container-20min",
        "a frozen cgroup, every thread in state S",
        story(30, held(Fault.CGROUP_FROZEN, 90, 1290), config=ENDLESS),
        seen="paused",
    ),
    healthy(
        "F11",
        "debugger-20min-idle-old",
        "a debugger on an idle server of an old build",
        story(30, [Strike(90.0, Fault.TRACED), Strike(1290.0, Fault.NONE)], form=OLD),
        seen="paused",
    ),
    healthy(
        "F11",
        "debugger-unseen",
        "a debugger that the watch has no right to see",
        story(
            30,
            held(Fault.TRACED, 90, 1290),
            config=ENDLESS,
            watcher=Watcher(sees_process=False, interval=10.0),
        ),
    ),
    healthy(
        "F11",
        "sampled-by-a-debugger",
        "stopped for 8 s out of every 20",
        story(
            30,
            [
                GENERATES,
                *[
                    Strike(100.0 + 20.0 * n + dt, fault)
                    for n in range(60)
                    for dt, fault in ((0.0, Fault.TRACED), (8.0, Fault.NONE))
                ],
            ],
            config=ENDLESS,
        ),
        seen="paused",
    ),
    healthy(
        "F11",
        "host-asleep-8h",
        "the host sleeps a night in mid-generation",
        story(30, [GENERATES, Suspend(300.0, 8 * 3600.0)], config=ENDLESS),
    ),
    healthy(
        "F11",
        "host-asleep-again-and-again",
        "a laptop in a train, an old build in a long prefill",
        story(
            60,
            [Request(20.0, Task(3900, 50)), *[Suspend(120.0 + 200.0 * n, 700.0) for n in range(16)]],
            config=ServerConfig(prefill_rate=3.0),
            form=OLD,
            watcher=EVERY_TEN,
        ),
    ),
    healthy(
        "F11",
        "watchdog-starved",
        "the watch does not get to run for minutes, again and again",
        story(
            60,
            [Request(20.0, Task(3900, 300)), Request(1500.0, Task(3900, 300))],
            config=ServerConfig(prefill_rate=6.0, decode_rate=2.0),
            starved=((100, 190), (300, 420), (700, 1000), (1600, 1640), (2000, 2200)),
        ),
    ),
    healthy(
        "F11",
        "watchdog-starved-while-stopped",
        "and the server is stopped for most of each such span, by the same overloaded host",
        story(
            40,
            [
                GENERATES,
                *[
                    Strike(at, fault)
                    for n in range(8)
                    for at, fault in ((100.0 + 240 * n, Fault.FREEZE), (180.0 + 240 * n, Fault.NONE))
                ],
            ],
            config=ENDLESS,
            starved=tuple((98.0 + 240 * n, 178.0 + 240 * n) for n in range(8)),
        ),
    ),
    fault(
        "F11",
        "wedged-after-a-debugger",
        "it is stopped for ten minutes, and stands still from then on",
        story(
            24,
            [
                *WORK,
                Request(280.0, Task(100, 100_000)),
                Strike(AT, Fault.TRACED),
                Strike(900.0, Fault.FREEZE),
            ],
            config=SERVER,
        ),
        Acts(900.0, 30.0, "frozen", "blocked"),
    ),
]
