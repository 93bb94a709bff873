"""What a standstill looks like by the process and the GPU: is anything being done, and by how many threads?

One sample proves nothing, so the steps between polls are classed (`steps`), and runs of like ones are kept:

    run      | is made of                                  | ended by
    ---------+---------------------------------------------+---------------------------------------------
    still    | still steps, and noisy ones in the minority | working, paging; the main thread spinning
    spinning | spinning steps, loud ones in the minority   | everything else; another thread spinning
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from llama_watchdog.core.observation import Observation, Outcome, Process, Watch
from llama_watchdog.core.steps import Step, classify, gpu_idle


class Evidence(StrEnum):
    """What a whole standstill looked like."""

    BLOCKED = "blocked"
    SPINNING = "spinning"
    COMPUTING = "computing"
    PAGING = "paging"
    PAUSED = "paused"
    UNKNOWN = "unknown"


# Steps shorter than this are judged together with the next one: a tick is a fifth of a core in 50 ms.
SHORTEST_STEP = 0.5


@dataclass(slots=True)
class _Run:
    """Consecutive steps of one kind."""

    since: float = 0.0
    quiet: float = 0.0
    noisy: float = 0.0
    tid: int | None = None

    def add(self, seconds: float, at: float, *, noisy: bool) -> None:
        if not self.quiet and not self.noisy:
            self.since = at - seconds
        if noisy:
            self.noisy += seconds
        else:
            self.quiet += seconds

    def end(self) -> None:
        self.quiet = self.noisy = 0.0
        self.tid = None

    @property
    def holds(self) -> bool:
        """Most of it is quiet."""
        return self.quiet > self.noisy


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
        self._before: Process | None = None
        self._at = 0.0
        self._elapsed = 0.0
        self._still = _Run()
        self._spin = _Run()
        self._last: Step | None = None

    def restart(self) -> None:
        """Forget everything: another incarnation, or a gap in the watch."""
        self._before = None
        self._still.end()
        self._spin.end()
        self._last = None

    def calm(self, observation: Observation) -> None:
        """The loop has just shown that it turns: whatever comes is measured from this poll on."""
        process = observation.process
        if process is None:
            return
        self.restart()
        if process.outcome is Outcome.OK:
            self._before, self._at = process, observation.at

    def see(self, observation: Observation) -> None:
        """Take in one poll of a standstill."""
        process = observation.process
        if process is None:
            return
        if process.outcome is not Outcome.OK:  # nothing is known of this step
            self.restart()
            return
        if self._before is None:
            self._before, self._at = process, observation.at
            return
        self._elapsed = observation.at - self._at
        if self._elapsed < SHORTEST_STEP:
            return
        step, tid = classify(self._before, process, self._elapsed)
        if gpu_idle(observation.gpu, uses_gpu=self.watch.uses_gpu) is False and step is not Step.PAGING:
            step, tid = Step.WORKING, None
        self._record(step, tid, process.pid, observation.at)
        self._before, self._at = process, observation.at

    def _record(self, step: Step, tid: int | None, main: int | None, at: float) -> None:
        seconds = self._elapsed
        self._last = step
        spins = step in (Step.SPINNING, Step.LOUD)
        # A helper that has a core to itself for a while, tokenising, does not make a blocked server work.
        if step in (Step.STILL, Step.NOISY) or (spins and tid != main):
            self._still.add(seconds, at, noisy=step is not Step.STILL)
        else:
            self._still.end()
        if not spins or self._spin.tid not in (None, tid):
            self._spin.end()
        if spins:
            self._spin.add(seconds, at, noisy=step is Step.LOUD)
            self._spin.tid = tid

    @property
    def one_thread(self) -> bool:
        """Whether a single thread of several is at work: spinning, or compiling, drafting, saving."""
        return self._spin.holds and self._one_of_several

    @property
    def _one_of_several(self) -> bool:
        """One thread of one just computes."""
        return self.watch.compute_threads is None or self.watch.compute_threads > 1

    @property
    def working(self) -> bool:
        """Whether the last step showed the CPU or the GPU at work."""
        return self._last is Step.WORKING

    def judge(self, observation: Observation, *, delivered: bool) -> tuple[Evidence, float]:
        """The evidence now, and since when it has held (0 for what is not followed as a run)."""
        process = observation.process
        if process is None or process.outcome is not Outcome.OK or self.watch.rpc:
            return Evidence.COMPUTING, 0.0
        idle = gpu_idle(observation.gpu, uses_gpu=self.watch.uses_gpu)
        if self._still.holds:
            return (Evidence.BLOCKED if idle else Evidence.UNKNOWN), self._still.since
        # Before the first token it may be compiling kernels.
        if self.one_thread and idle and delivered:
            return Evidence.SPINNING, self._spin.since
        return (Evidence.PAGING if self._last is Step.PAGING else Evidence.COMPUTING), 0.0
