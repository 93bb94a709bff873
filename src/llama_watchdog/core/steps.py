"""One step between two polls, classed by what the process and the GPU did in it.

    step     | means
    ---------+--------------------------------------------------------------------
    still    | no thread works, nothing is read, written or paged in, GPU idle
    noisy    | as still, but for a little CPU of threads that only serve HTTP
    spinning | one thread takes all it can get, the others (nearly) nothing
    loud     | as spinning, but the others together use up to half a core
    paging   | in the disk's or the pager's hands: state D, reads, major faults
    working  | anything else: CPU or GPU at work

The main thread needs no rule of its own beyond "no CPU": depending on the build it computes itself, or waits
for a worker that does.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from llama_watchdog.core.observation import Gpu, Outcome, Process, Thread

# Shares of one core. A blocked main thread was measured at exactly 0; one clock tick (10 ms) is allowed for
# its wake-up by our own signal or by a probe.
MAIN_STILL = 0.01
TICK = 0.011
# HTTP threads answering probes and tokenising a client's retries stay below this, each and together.
NOISE = 0.20
# A client that retries a long prompt makes a second thread tokenise it; two computing threads use more.
HALF_CORE = 0.50
# A spinning thread shares its core with whatever else the machine runs: on two cores under a load of 5 it was
# measured at 0.6 to 0.8, and always runnable. So a whole core counts, or all that a runnable thread gets.
WHOLE_CORE = 0.90
SOME_CORE = 0.10
OTHERS = 0.25  # of the spinning thread's time; a second thread that computes takes about as much as the first
GPU_IDLE = 0.05
# Bytes a second. A wedged server that logs its clients' retries to a file was measured at up to 2 kB/s.
LOG_LINES = 100_000


class Step(StrEnum):
    """What one step looked like."""

    STILL = "still"
    NOISY = "noisy"
    SPINNING = "spinning"
    LOUD = "loud"
    PAGING = "paging"
    WORKING = "working"


def gpu_idle(gpu: Gpu | None, *, uses_gpu: bool | None) -> bool | None:
    """Whether the GPU does nothing for this server; `None` where that can't be known."""
    if uses_gpu is False:
        return True
    if gpu is None or gpu.outcome is not Outcome.OK:
        return None
    load = gpu.own if gpu.own is not None else gpu.busy  # a neighbour's load is not ours
    return None if load is None else load < GPU_IDLE


def classify(before: Process, after: Process, seconds: float) -> tuple[Step, int | None]:
    """What the process did within `seconds`, the GPU left aside; of a spinning thread also its id."""
    reads = _grew(before.read_bytes, after.read_bytes)
    if after.state == "D" or reads or _grew(before.major_faults, after.major_faults):
        return Step.PAGING, None
    wrote = _wrote(before.write_bytes, after.write_bytes, seconds)
    if before.threads is None or after.threads is None:
        return _by_total(before.cpu, after.cpu, seconds, wrote=wrote), None
    usage = _usage(before.threads, after.threads, after.pid)
    return _spinning(usage, seconds) or (_still(usage, seconds, wrote=wrote), None)


class _Usage(NamedTuple):
    """CPU seconds of one step: of the main thread, of the busiest, of all; and how many can run now."""

    main: float
    top: float
    top_tid: int | None
    top_state: str
    total: float
    runnable: int


def _usage(before: tuple[Thread, ...], after: tuple[Thread, ...], pid: int | None) -> _Usage:
    earlier = {thread.tid: thread.cpu for thread in before}
    main = top = total = 0.0
    top_tid, top_state, runnable = None, "", 0
    for tid, state, cpu in after:
        used = cpu - earlier.get(tid, cpu)
        total += used
        if tid == pid:
            main = used
        if used > top:
            top, top_tid, top_state = used, tid, state
        if state in ("R", "D"):
            runnable += 1
    return _Usage(main, top, top_tid, top_state, total, runnable)


def _by_total(before: float | None, after: float | None, seconds: float, *, wrote: bool) -> Step:
    """Without the threads only a process that does nothing at all can be told."""
    if before is None or after is None or wrote:
        return Step.WORKING
    return Step.STILL if after - before <= max(MAIN_STILL * seconds, TICK) else Step.WORKING


def _spinning(usage: _Usage, seconds: float) -> tuple[Step, int | None] | None:
    whole = usage.top >= WHOLE_CORE * seconds
    if not whole and (usage.top_state != "R" or usage.top < SOME_CORE * seconds):
        return None
    others = usage.total - usage.top
    if others <= min(NOISE * seconds, OTHERS * usage.top):
        return Step.SPINNING, usage.top_tid
    if whole and others <= HALF_CORE * seconds:
        return Step.LOUD, usage.top_tid
    return None


def _still(usage: _Usage, seconds: float, *, wrote: bool) -> Step:
    if usage.main > max(MAIN_STILL * seconds, TICK) or usage.total > HALF_CORE * seconds:
        return Step.WORKING
    # Under a CPU quota or on a starved machine healthy threads get less than any threshold; what gives
    # them away is that they want to run: state R, at nearly every look.
    if usage.runnable or wrote or usage.total > NOISE * seconds:
        return Step.NOISY
    return Step.STILL


def _wrote(before: int | None, after: int | None, seconds: float) -> bool:
    """More than log lines."""
    return before is not None and after is not None and after - before > LOG_LINES * seconds


def _grew(before: int | None, after: int | None) -> bool:
    return before is not None and after is not None and after > before
