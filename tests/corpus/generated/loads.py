"""Healthy: long loads, downloads, kernels that compile; and loads that hang."""

from __future__ import annotations

from llama_watchdog.simulator.config import Compute, ServerConfig, Task
from llama_watchdog.simulator.faults import Fault
from llama_watchdog.simulator.happenings import (
    Request,
    Strike,
)
from llama_watchdog.simulator.traces import Watcher
from tests.corpus.entry import Acts, Entry, fault, healthy
from tests.corpus.generated.common import (
    AT,
    EVERY_TEN,
    LATE,
    OLD,
    WORK,
    spans,
    wedge,
)
from tests.corpus.generated.noise import crowded, http_load
from tests.corpus.generated.sight import (
    fresh_slots_after_sleep,
    gpu_memory_only,
    gpu_unknown,
    unit,
)
from tests.corpus.generated.story import story

FORTY = 2400.0  # seconds
HANGS_AT_ONCE = Acts(0.0, 1800.0, "load", None)


LOADS: list[Entry] = [
    healthy("F3", "load-40min", "from a network disk", story(45, config=ServerConfig(load_seconds=FORTY))),
    healthy(
        "F3",
        "load-40min-cached",
        "from the page cache, without one read",
        story(45, config=ServerConfig(load_seconds=FORTY, load_reads=False), watcher=EVERY_TEN),
    ),
    healthy(
        "F3",
        "load-40min-gpu-memory",
        "straight into GPU memory, which alone grows",
        story(
            45,
            (),
            gpu_memory_only,
            config=ServerConfig(load_seconds=FORTY, compute=Compute.GPU),
            watcher=EVERY_TEN,
        ),
    ),
    healthy(
        "F3",
        "load-in-bursts",
        "the network disk pauses for 10, 20 and 25 minutes",
        story(
            120,
            spans(Fault.LOAD_HANG, (300, 900), (1500, 2700), (3000, 4500)),
            config=ServerConfig(load_seconds=FORTY),
            watcher=EVERY_TEN,
        ),
    ),
    healthy(
        "F3",
        "load-no-rights",
        "an hour and a half of 503, and nothing is known of the process",
        story(
            100, config=ServerConfig(load_seconds=5400.0), watcher=Watcher(sees_process=False, interval=10.0)
        ),
    ),
    healthy(
        "F3",
        "load-no-io",
        "only memory can be seen to grow",
        story(45, config=ServerConfig(load_seconds=FORTY), watcher=Watcher(sees_io=False, interval=10.0)),
    ),
    healthy(
        "F3",
        "load-40min-crowded",
        "on a machine that gives it a tenth of a core",
        story(45, (), crowded(0.1), config=ServerConfig(load_seconds=FORTY, load_reads=False)),
    ),
    healthy(
        "F12",
        "kernels-compile-10min",
        "one thread compiles kernels for ten minutes before the first token",
        story(
            30,
            [Request(60.0, Task(500, 300))],
            config=ServerConfig(warmup_seconds=600.0, load_seconds=20.0, compute=Compute.GPU),
        ),
        seen="loading",
    ),
    healthy(
        "F12",
        "kernels-compile-cpu",
        "the same on a server without a GPU, old build: silent",
        story(
            30,
            [Request(60.0, Task(500, 300))],
            form=OLD,
            config=ServerConfig(warmup_seconds=600.0, load_seconds=20.0),
        ),
    ),
    healthy(
        "F12",
        "kernels-compile-after-waking",
        "after each waking anew",
        story(
            60,
            [Request(60.0, Task(500, 300)), Request(1500.0, Task(500, 300))],
            fresh_slots_after_sleep,
            config=ServerConfig(warmup_seconds=400.0, load_seconds=20.0, sleep_idle_seconds=60.0),
        ),
    ),
    healthy(
        "F12",
        "kernels-compile-gpu-unknown",
        "on a GPU of which nothing is known",
        story(
            30,
            [Request(60.0, Task(500, 300))],
            gpu_unknown,
            config=ServerConfig(warmup_seconds=600.0, load_seconds=20.0, compute=Compute.GPU),
        ),
    ),
    healthy(
        "F14",
        "download-1h",
        "an hour's download before it listens",
        story(
            75,
            [Request(4000.0)],
            config=ServerConfig(download_seconds=3600.0, load_seconds=60.0),
            watcher=EVERY_TEN,
        ),
        seen="loading",
    ),
    healthy(
        "F14",
        "download-1h-unit",
        "the same in a unit, without the right to see its writes",
        story(
            75,
            [Request(4000.0)],
            unit(0.0, sub="running"),
            watcher=Watcher(sees_io=False, interval=10.0),
            config=ServerConfig(download_seconds=3600.0, load_seconds=60.0),
        ),
        unseen="suspect down",
    ),
    fault(
        "K7",
        "load-hangs",
        "from its first second on: asleep",
        wedge([], config=ServerConfig(load_seconds=600.0), begins_with=Fault.LOAD_HANG, minutes=34),
        HANGS_AT_ONCE,
    ),
    fault(
        "K7",
        "load-hangs-midway",
        "half-way through",
        wedge([Strike(AT, Fault.LOAD_HANG)], config=ServerConfig(load_seconds=600.0), minutes=39),
        Acts(AT, 1800.0, "load", None),
    ),
    fault(
        "K7",
        "load-spins",
        "one core at 100 %",
        wedge(
            [Strike(AT, Fault.LOAD_SPIN)],
            http_load(0.02),
            config=ServerConfig(load_seconds=600.0),
            minutes=39,
        ),
        Acts(AT, 1800.0, "load", None),
    ),
    fault(
        "K7",
        "load-hangs-old-unseen",
        "and nothing is known of the process: no progress can be told from none",
        wedge(
            [],
            config=ServerConfig(load_seconds=600.0),
            begins_with=Fault.LOAD_HANG,
            form=LATE,
            watcher=Watcher(interval=20.0, sees_process=False),
            minutes=128,
        ),
        Acts(0.0, 7200.0, "load", None),
    ),
    fault(
        "K7",
        "waking-hangs",
        "it does not come back from its sleep",
        wedge(
            [*WORK, Strike(590.0, Fault.LOAD_HANG), Request(600.0, Task(100, 100))],
            config=ServerConfig(sleep_idle_seconds=60.0, load_seconds=300.0),
            minutes=46,
        ),
        Acts(600.0, 1800.0, "load", None),
    ),
    fault(
        "K7",
        "download-hangs",
        "it never listens",
        wedge([], config=ServerConfig(download_seconds=600.0), begins_with=Fault.BLOCK, minutes=34),
        HANGS_AT_ONCE,
    ),
]
