"""What the process and the GPU say about a standstill: is anything being done, and by how many threads?

One sample proves nothing, so each step between two polls is classed, and runs of like steps are kept:

    step     | means                                                              | ends a run of
    ---------+--------------------------------------------------------------------+---------------
    still    | no thread works, nothing is read, written or paged in, GPU idle    | spinning
    noisy    | as still, but for a little CPU of threads that only serve HTTP     | spinning
    spinning | one thread at a whole core, the others (nearly) still, GPU idle    | still
    loud     | as spinning, but the others together use up to half a core         | still
    paging   | in the disk's or the pager's hands: state D, reads, major faults   | both
    working  | anything else: CPU or GPU at work                                  | both

Runs tolerate noise while most of their time is quiet. The main thread needs no rule of its own beyond
"no CPU": depending on the build it computes itself, or waits for a worker that does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from llama_watchdog.core.observation import Gpu, Observation, Outcome, Process, Thread, Watch


class Evidence(StrEnum):
    """What a whole standstill looked like."""

    BLOCKED = "blocked"
    SPINNING = "spinning"
    COMPUTING = "computing"
    PAGING = "paging"
    PAUSED = "paused"
    UNKNOWN = "unknown"


# Shares of one core. A blocked main thread was measured at exactly 0; one clock tick (10 ms) is allowed for
# its wake-up by our own signal or by a probe.
MAIN_STILL = 0.01
TICK = 0.011
# HTTP threads answering probes and tokenising a client's retries stay below this, each and together.
NOISE = 0.20
# A client that retries a long prompt makes a second thread tokenise it; two computing threads use more.
HALF_CORE = 0.50
# A spinning thread shares its core with whatever else the machine runs.
WHOLE_CORE = 0.90
GPU_IDLE = 0.05
# Steps shorter than this are judged together with the next one: a tick is a fifth of a core in 50 ms.
SHORTEST_STEP = 0.5


class _Step(StrEnum):
    STILL = "still"
    NOISY = "noisy"
    SPINNING = "spinning"
    LOUD = "loud"
    PAGING = "paging"
    WORKING = "working"


@dataclass(slots=True)
class _Run:
    """Consecutive steps of one kind."""

    since: float = 0.0
    quiet: float = 0.0
    noisy: float = 0.0
    tid: int | None = None

    def add(self, seconds: float, *, at: float, noisy: bool) -> None:
        if not self.quiet and not self.noisy:
            self.since = at - seconds
        if noisy:
            self.noisy += seconds
        else:
            self.quiet += seconds
        if self.noisy > self.quiet:  # most of it is noise: that was no stillness
            self.end()

    def end(self) -> None:
        self.quiet = self.noisy = 0.0
        self.tid = None

    @property
    def holds(self) -> bool:
        return self.quiet > 0


def stopped_by_hand(process: Process | None) -> str | None:
    """Why the process cannot run although nothing is wrong with it; `None` where it can."""
    if process is None or process.outcome is not Outcome.OK:
        return None
    if process.tracer:
        return "a debugger is attached"
    if process.state in ("T", "t"):
        return "its process is stopped by a signal"
    if process.frozen:
        return "its cgroup is frozen"
    return None


class EvidenceLog:
    """Collects the steps of one incarnation; tells what the standstill so far looks like."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self._before: Observation | None = None
        self._elapsed = 0.0
        self._still = _Run()
        self._spin = _Run()
        self._last = _Step.WORKING

    def restart(self) -> None:
        """Forget everything: another incarnation, or a gap in the watch."""
        self._before = None
        self._elapsed = 0.0
        self._still.end()
        self._spin.end()
        self._last = _Step.WORKING

    def see(self, observation: Observation, seconds: float) -> None:
        """Take in one poll, `seconds` after the last one."""
        process = observation.process
        if process is None or process.outcome is not Outcome.OK:
            if process is not None:  # asked, and not readable: nothing is known of this step
                self.restart()
            return
        before = self._before
        if before is None or before.process is None:
            self._before = observation
            self._elapsed = 0.0
            return
        self._elapsed += seconds
        if self._elapsed < SHORTEST_STEP:
            return
        step, tid = self._classify(before.process, process, observation.gpu, self._elapsed)
        self._record(step, tid, observation.at)
        self._before = observation
        self._elapsed = 0.0

    def _record(self, step: _Step, tid: int | None, at: float) -> None:
        seconds = self._elapsed
        self._last = step
        if step in (_Step.STILL, _Step.NOISY):
            self._still.add(seconds, at=at, noisy=step is _Step.NOISY)
        else:
            self._still.end()
        if step in (_Step.SPINNING, _Step.LOUD):
            if self._spin.tid not in (None, tid):
                self._spin.end()
            self._spin.add(seconds, at=at, noisy=step is _Step.LOUD)
            if self._spin.holds:
                self._spin.tid = tid
        else:
            self._spin.end()

    def _classify(
        self, before: Process, after: Process, gpu: Gpu | None, seconds: float
    ) -> tuple[_Step, int | None]:
        if after.state == "D" or _grew(before.read_bytes, after.read_bytes):
            return _Step.PAGING, None
        if _grew(before.major_faults, after.major_faults):
            return _Step.PAGING, None
        if self._gpu_idle(gpu) is False:
            return _Step.WORKING, None
        if before.threads is None or after.threads is None:
            return self._by_total(before, after, seconds), None
        return self._by_thread(
            before.threads, after, seconds, wrote=_grew(before.write_bytes, after.write_bytes)
        )

    @staticmethod
    def _by_total(before: Process, after: Process, seconds: float) -> _Step:
        """Without the threads only a process that does nothing at all can be told."""
        if before.cpu is None or after.cpu is None:
            return _Step.WORKING
        used = after.cpu - before.cpu
        still = used <= max(MAIN_STILL * seconds, TICK) and not _grew(before.write_bytes, after.write_bytes)
        return _Step.STILL if still else _Step.WORKING

    @staticmethod
    def _by_thread(
        before: Iterable[Thread], after: Process, seconds: float, *, wrote: bool
    ) -> tuple[_Step, int | None]:
        threads = after.threads or ()
        earlier = {thread.tid: thread.cpu for thread in before}
        top_tid: int | None = None
        main = top = total = 0.0
        runnable = 0
        for tid, state, cpu in threads:
            used = cpu - earlier.get(tid, cpu)
            total += used
            if tid == after.pid:
                main = used
            if used > top:
                top, top_tid = used, tid
            if state in ("R", "D"):
                runnable += 1
        if top >= WHOLE_CORE * seconds:
            others = total - top
            if others <= NOISE * seconds:
                return _Step.SPINNING, top_tid
            return (_Step.LOUD if others <= HALF_CORE * seconds else _Step.WORKING), top_tid
        if main > max(MAIN_STILL * seconds, TICK):
            return _Step.WORKING, None
        # Under a CPU quota or on a starved machine healthy threads get less than any threshold; what gives
        # them away is that they want to run: state R, at nearly every look.
        if runnable or wrote or total > NOISE * seconds:
            return _Step.NOISY, None
        return _Step.STILL, None

    def _gpu_idle(self, gpu: Gpu | None) -> bool | None:
        """Whether the GPU does nothing for this server; `None` where that can't be known."""
        if self.watch.uses_gpu is False:
            return True
        if gpu is None or gpu.outcome is not Outcome.OK:
            return None
        if gpu.own is not None:  # a neighbour's load is not ours
            return gpu.own < GPU_IDLE
        if gpu.busy is not None:
            return gpu.busy < GPU_IDLE
        return None

    @property
    def one_thread(self) -> bool:
        """Whether a single thread is at work: spinning, or compiling, drafting, saving."""
        return self._spin.holds

    @property
    def working(self) -> bool:
        """Whether the last step showed the CPU or the GPU at work."""
        return self._last is _Step.WORKING and self._before is not None

    def judge(self, observation: Observation, *, delivered: bool) -> tuple[Evidence, float]:
        """The evidence now, and since when it has held (0 for what is not followed as a run)."""
        process = observation.process
        if process is None or process.outcome is not Outcome.OK or self.watch.rpc:
            return Evidence.COMPUTING, 0.0
        gpu_idle = self._gpu_idle(observation.gpu)
        if self._still.holds:
            return (Evidence.BLOCKED if gpu_idle else Evidence.UNKNOWN), self._still.since
        # One thread of one computes; before the first token it may be compiling kernels.
        one_of_several = self.watch.compute_threads is None or self.watch.compute_threads > 1
        if self._spin.holds and gpu_idle and delivered and one_of_several:
            return Evidence.SPINNING, self._spin.since
        return (Evidence.PAGING if self._last is _Step.PAGING else Evidence.COMPUTING), 0.0


def _grew(before: int | None, after: int | None) -> bool:
    return before is not None and after is not None and after > before
