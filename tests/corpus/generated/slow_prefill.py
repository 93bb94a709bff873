"""Healthy, and slow: prefills of minutes a step, on builds that answer meanwhile and on silent ones."""

from __future__ import annotations

from dataclasses import replace

from llama_watchdog.simulator.config import Compute, ServerConfig, Task
from llama_watchdog.simulator.happenings import (
    Request,
)
from llama_watchdog.simulator.traces import Watcher
from tests.corpus.entry import Entry, healthy
from tests.corpus.generated.common import (
    CRAWL,
    EVERY_TEN,
    HOURLY,
    LATE,
    LONG,
    OLD,
    SILENT,
    on,
)
from tests.corpus.generated.noise import http_load, no_threads
from tests.corpus.generated.sight import (
    gpu_unknown,
    neighbour_gpu,
)
from tests.corpus.generated.story import story

SHALLOW = [Request(20.0 + 60.0 * n, Task(prompt=900, predict=20)) for n in range(30)]
DEEP = ServerConfig(prefill_rate=30.0, decode_rate=8.0, half_rate_depth=3300, context=32768, slots=1)


SLOW_PREFILL: list[Entry] = [
    healthy("F1", "crawl-cpu", "11 minutes a step at 3 tokens/s", story(30, LONG, config=CRAWL)),
    healthy(
        "F1", "crawl-steady", "the same, seen at every 5 s alone", story(30, LONG, config=CRAWL, steady=True)
    ),
    healthy(
        "F1", "crawl-gpu", "on a GPU, while one thread spins", story(30, LONG, config=on(CRAWL, Compute.GPU))
    ),
    healthy(
        "F1",
        "crawl-gpu-neighbour",
        "on a GPU that a neighbour uses, too",
        story(30, LONG, neighbour_gpu(), config=on(CRAWL, Compute.GPU), watcher=EVERY_TEN),
    ),
    healthy(
        "F1",
        "crawl-gpu-unknown",
        "on a GPU of which nothing is known, while one thread spins",
        story(30, LONG, gpu_unknown, config=on(CRAWL, Compute.GPU), watcher=EVERY_TEN),
    ),
    healthy(
        "F1",
        "step-of-90s-gpu-unknown",
        "90 s a step on a GPU of which nothing is known, while the process is still",
        story(
            30,
            [Request(20.0 + 400.0 * n, Task(4000, 200)) for n in range(4)],
            gpu_unknown,
            config=on(replace(CRAWL, prefill_rate=22.0, decode_rate=5.0), Compute.RPC),
            known={"rpc": False, "uses_gpu": True},
        ),
        unseen="wedged",
    ),
    healthy(
        "F1",
        "crawl-worker",
        "the main thread waits for workers",
        story(30, LONG, http_load(0.05), config=on(CRAWL, Compute.CPU_WORKER, threads=5)),
    ),
    healthy(
        "F1",
        "crawl-rpc",
        "on other machines",
        story(30, LONG, config=on(CRAWL, Compute.RPC), known={"rpc": True}, watcher=EVERY_TEN),
    ),
    healthy(
        "F1",
        "crawl-1s",
        "looked at every second",
        story(14, LONG, config=CRAWL, watcher=Watcher(interval=1.0)),
    ),
    healthy(
        "F1",
        "crawl-10s",
        "looked at every 10 s",
        story(30, LONG, config=CRAWL, watcher=Watcher(interval=10.0)),
    ),
    healthy(
        "F1",
        "crawl-no-rights",
        "nothing is known of the process",
        story(30, LONG, config=CRAWL, watcher=Watcher(sees_process=False, interval=10.0)),
    ),
    healthy(
        "F1",
        "crawl-no-threads",
        "only the CPU time of the whole process is known",
        story(30, LONG, no_threads, config=CRAWL, watcher=Watcher(sees_io=False, interval=10.0)),
    ),
    healthy(
        "F1",
        "crawl-one-thread",
        "one thread does all the work",
        story(30, LONG, config=on(CRAWL, Compute.CPU, threads=1), watcher=Watcher(interval=10.0)),
        unseen="loading suspect",
    ),
    healthy(
        "F1",
        "depth-tenfold",
        "ten times slower at 30,000 tokens than at first, after many short prompts",
        story(
            240,
            [*SHALLOW, Request(3000.0, Task(prompt=31000, predict=10))],
            config=DEEP,
            watcher=Watcher(interval=10.0),
        ),
    ),
    healthy(
        "F1",
        "silent-hour-cpu",
        "an old build says nothing for an hour, its threads busy",
        story(75, HOURLY, http_load(0.03), config=SILENT, form=LATE, watcher=EVERY_TEN),
    ),
    healthy(
        "F1",
        "silent-hour-worker",
        "the same, while the main thread waits for workers",
        story(75, HOURLY, config=on(SILENT, Compute.CPU_WORKER, threads=5), form=LATE, watcher=EVERY_TEN),
    ),
    healthy(
        "F1",
        "silent-hour-gpu",
        "the same on a GPU, after fast prefills",
        story(75, HOURLY, config=on(SILENT, Compute.GPU), form=OLD, watcher=Watcher(interval=10.0)),
    ),
    healthy(
        "F1",
        "silent-hour-rpc",
        "the same on other machines",
        story(
            75,
            HOURLY,
            config=on(SILENT, Compute.RPC),
            form=OLD,
            known={"rpc": True},
            watcher=Watcher(interval=10.0),
        ),
    ),
    healthy(
        "F1",
        "silent-hour-no-rights",
        "the same, and nothing is known of the process",
        story(75, HOURLY, config=SILENT, form=OLD, watcher=Watcher(sees_process=False, interval=10.0)),
    ),
    healthy(
        "F1",
        "no-counters",
        "no prompt counters, and half an hour a prompt",
        story(
            75,
            [Request(20.0, Task(prompt=1000, predict=30))],
            config=SILENT,
            form=OLD,
            steady=True,
            watcher=EVERY_TEN,
        ),
    ),
]
