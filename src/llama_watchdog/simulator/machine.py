"""What a simulated server shows of itself to the kernel: CPU per thread, memory, disk, GPU.

Pure bookkeeping: the model says what it is at, and for how long; this adds it up, with seeded noise.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from llama_watchdog.core.observation import Gpu, Outcome, Process, Thread
from llama_watchdog.simulator.config import GIB, Compute, ServerConfig

TICKS = 100  # clock ticks a second: the grain of every CPU time in /proc
HTTP_NOISE = 0.002  # cores, of all HTTP threads together
ANSWER_COST = 0.0003  # CPU seconds for each question answered


class Activity(NamedTuple):
    """What a server is at: shares of a core, the main thread's state, bytes and faults a second."""

    main: float = 0.0
    helpers: float = 0.0  # each of the other compute threads
    gpu: float = 0.0
    state: str = "S"
    reads: float = 0.0
    writes: float = 0.0
    faults: float = 0.0


IDLE = Activity()
SPINNING = Activity(main=1.0, state="R")
PAGING = Activity(main=0.05, state="D", reads=20e6, faults=400.0)
DOWNLOADING = Activity(main=0.2, writes=50e6)
COMPUTING = {
    Compute.CPU: Activity(main=1.0, helpers=1.0, state="R"),
    Compute.CPU_WORKER: Activity(helpers=1.0),
    Compute.GPU: Activity(main=1.0, gpu=0.95, state="R"),
    Compute.RPC: Activity(main=0.002),
}


class Machine:
    """The process's counters. `loaded`: the share of the model that is in memory, kept by the model."""

    def __init__(self, config: ServerConfig, rng: Random, *, pid: int, start_ticks: int) -> None:
        self._config = config
        self._rng = rng
        self._pid = pid
        self._start_ticks = start_ticks
        self._main = 0.05
        self._helper = 0.0
        self._http = [0.0] * config.http_threads
        self._reads = 0.0
        self._writes = 0.0
        self._faults = 0.0
        self.loaded = 0.0

    @property
    def loading(self) -> Activity:
        """What loading the model looks like."""
        if not self._config.load_reads:
            return Activity(main=0.9, state="R")
        seconds = max(self._config.load_seconds, 0.001)
        return Activity(main=0.3, state="D", reads=self._config.model_bytes / seconds)

    def spend(self, seconds: float, activity: Activity, *, http: bool) -> None:
        """`seconds` of `activity`; `http`: the HTTP threads run, too."""
        self._main += activity.main * seconds
        self._helper += activity.helpers * seconds
        self._reads += activity.reads * seconds
        self._writes += activity.writes * seconds
        self._faults += activity.faults * seconds
        if http and self._http:
            self._http[int(self._rng.random() * len(self._http))] += HTTP_NOISE * seconds * self._rng.random()

    def answer(self) -> None:
        """An HTTP thread answers a question."""
        if self._http:
            self._http[int(self._rng.random() * len(self._http))] += ANSWER_COST

    def process(self, activity: Activity, *, state: str, tracer: int, frozen: bool) -> Process:
        """The process as a probe sees it now."""
        main, helper = int(self._main * TICKS) / TICKS, int(self._helper * TICKS) / TICKS
        helper_state = "R" if activity.helpers > 0.5 else "S"
        threads = [Thread(self._pid, state, main)]
        tid = self._pid
        for _ in range(self._config.threads - 1):
            tid += 1
            threads.append(Thread(tid, helper_state, helper))
        for seconds in self._http:
            tid += 1
            threads.append(Thread(tid, "S", int(seconds * TICKS) / TICKS))
        if state in "Tt":
            threads = [Thread(thread.tid, state, thread.cpu) for thread in threads]
        return Process(
            outcome=Outcome.OK,
            pid=self._pid,
            start_ticks=self._start_ticks,
            state=state,
            tracer=tracer,
            frozen=frozen,
            cpu=round(sum([thread.cpu for thread in threads]), 2),
            threads=tuple(threads),
            rss=GIB // 8 + int(self.loaded * self._config.model_bytes),
            read_bytes=int(self._reads),
            write_bytes=int(self._writes),
            major_faults=int(self._faults),
        )

    def gpu(self, activity: Activity) -> Gpu:
        """The GPU as a probe sees it now; UNSUPPORTED where the server uses none."""
        if self._config.compute is not Compute.GPU:
            return Gpu(Outcome.UNSUPPORTED)
        own = activity.gpu * (1.0 - 0.1 * self._rng.random())
        return Gpu(Outcome.OK, busy=own, own=own, memory=int(self.loaded * self._config.model_bytes))
