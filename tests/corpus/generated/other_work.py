"""Healthy: work that moves no counter, many clients, impatient clients, generation without end."""

from __future__ import annotations

from llama_watchdog.simulator.config import Compute, ServerConfig, Task
from llama_watchdog.simulator.faults import Fault
from llama_watchdog.simulator.happenings import (
    Request,
    Strike,
    traffic,
)
from llama_watchdog.simulator.traces import Watcher
from tests.corpus.entry import Entry, healthy
from tests.corpus.generated.common import (
    CRAWL,
    EARLY,
    ENDLESS,
    EVERY_TEN,
    EVERY_TWENTY,
    FAST,
    IK,
    LATE,
    LONG,
    OLD,
)
from tests.corpus.generated.noise import writes
from tests.corpus.generated.sight import (
    http_taken,
    no_clients,
    text_before,
)
from tests.corpus.generated.story import story

OTHER_WORK: list[Entry] = [
    healthy(
        "F2",
        "health-in-queue-ik",
        "/health waits for the running step, too",
        story(30, LONG, config=CRAWL, form=IK),
    ),
    healthy(
        "F2",
        "health-in-queue-early",
        "the same in early 2024, under traffic of long prompts",
        story(
            60,
            traffic(until=3500, every=200.0, prompt=(500, 3000), predict=(20, 200), seed=3),
            config=ServerConfig(prefill_rate=40.0),
            form=EARLY,
        ),
    ),
    healthy(
        "F2",
        "http-threads-taken",
        "clients hold every HTTP thread for 20 minutes, and tokens flow",
        story(
            40,
            [Request(20.0 + n, Task(prompt=1000, predict=-1)) for n in range(4)],
            http_taken(400.0, 1600.0),
            config=ENDLESS,
            watcher=EVERY_TEN,
        ),
    ),
    healthy(
        "F2",
        "http-threads-taken-known",
        "the same on a server that is known to answer in the middle of its steps",
        story(
            60,
            [Request(20.0, Task(3900, 20)), *[Request(1000.0 + n, Task(1000, -1)) for n in range(4)]],
            http_taken(1600.0, 2800.0),
            config=ServerConfig(context=1 << 20, prefill_rate=30.0, decode_rate=5.0),
            watcher=EVERY_TEN,
        ),
    ),
    healthy(
        "F4",
        "cache-saved-90s",
        "a prompt cache is written to a slow disk for 90 s",
        story(
            30,
            [
                *FAST,
                Request(1000.0, Task(500, 9000)),
                Strike(1100.0, Fault.FREEZE),
                Strike(1190.0, Fault.NONE),
            ],
            writes(20e6, 1100.0, 1190.0),
        ),
    ),
    healthy(
        "F4",
        "image-82s",
        "an image is encoded for 82 s after fast prefills",
        story(25, [*FAST, Request(1000.0, Task(500, 100, encode_seconds=82.0))]),
    ),
    healthy(
        "F4",
        "image-82s-worker",
        "the same by workers, on a build that answers meanwhile",
        story(
            25,
            [*FAST, Request(1000.0, Task(500, 100, encode_seconds=82.0))],
            config=ServerConfig(compute=Compute.CPU_WORKER, threads=5),
        ),
    ),
    healthy(
        "F4",
        "image-82s-old",
        "the same on a build that does not",
        story(25, [*FAST, Request(1000.0, Task(500, 100, encode_seconds=82.0))], form=OLD),
    ),
    healthy(
        "F4",
        "image-10min",
        "a large image on a slow machine, the first after fast prompts",
        story(35, [*FAST, Request(1000.0, Task(500, 100, encode_seconds=600.0))]),
    ),
    healthy(
        "F4",
        "image-10min-after-text",
        "the same in the middle of a prompt, after a thousand tokens of text",
        story(
            35,
            [*FAST, Request(1000.0, Task(500, 100, encode_seconds=600.0))],
            text_before(1000, 990.0),
        ),
    ),
    healthy(
        "F4",
        "grammar-45s",
        "one thread is busy with a grammar for 45 s",
        story(
            30,
            [*FAST, Strike(1000.0, Fault.SPIN), Strike(1045.0, Fault.NONE), Request(1050.0, Task(500, 100))],
        ),
        unseen="wedged",
    ),
    healthy(
        "F5",
        "endless",
        "generation without end for three hours",
        story(180, [Request(20.0, Task(100, -1))], config=ENDLESS, watcher=EVERY_TWENTY),
    ),
    healthy(
        "F5",
        "endless-orphaned",
        "the same, and its client is long gone",
        story(
            60, [Request(20.0, Task(100, -1))], no_clients(600.0), config=ENDLESS, form=IK, watcher=EVERY_TEN
        ),
    ),
    healthy(
        "F6",
        "queue-of-eight",
        "eight slots and a queue behind them",
        story(
            60,
            [Request(10.0 + 3 * n, Task(600, 700)) for n in range(400)],
            config=ServerConfig(slots=8, endpoint_metrics=True, decode_rate=12.0),
        ),
    ),
    healthy(
        "F6",
        "no-slot-available",
        "503 with every slot busy, as builds of early 2024 say it",
        story(
            30,
            [Request(10.0 + 3 * n, Task(600, 700)) for n in range(200)],
            form=EARLY,
            config=ServerConfig(slots=2, decode_rate=12.0, endpoint_metrics=True),
            steady=True,
        ),
    ),
    healthy(
        "F6",
        "traffic-mixed",
        "an evening's traffic of all sizes, each task at its own pace",
        story(
            180,
            traffic(until=10500, every=25.0, seed=5),
            config=ServerConfig(half_rate_depth=2000, variation=0.4),
            watcher=Watcher(interval=10.0),
        ),
    ),
    healthy(
        "F10",
        "impatient-clients",
        "clients give up after seconds, hundreds of times",
        story(40, [Request(10.0 + 9 * n, Task(1800, 300), leaves_after=6.0 + n % 5) for n in range(380)]),
    ),
    healthy(
        "F10",
        "impatient-clients-old",
        "the same on a slow old build, which notices only when its step is over",
        story(
            40,
            [Request(10.0 + 20 * n, Task(1500, 300), leaves_after=15.0) for n in range(170)],
            config=ServerConfig(prefill_rate=50.0),
            form=LATE,
        ),
    ),
]
