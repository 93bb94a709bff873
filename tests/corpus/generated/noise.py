"""What a machine adds to a simulated server's threads and disks: noise, crowding, hiccups. A lens for each.

A lens lies between the server and the watch's eyes: it changes how a server looks, never what it does. It is
made anew for each trace, and gets the polls in their order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from llama_watchdog.core.observation import Observation, Outcome, Thread
from llama_watchdog.simulator.config import ServerConfig

See = Callable[[Observation], Observation]
Lens = Callable[[ServerConfig, Random], See]
Use = Callable[[int, Thread, float, float], tuple[str, float]]

PAGE = 4096


class Threads:
    """Rewrites CPU times step by step. `use`: of the nth thread and its use of a span, the state and use."""

    def __init__(self) -> None:
        self._start: int | None = None
        self._at = 0.0
        self._raw: dict[int, float] = {}
        self._shown: dict[int, float] = {}

    def rewrite(self, o: Observation, use: Use) -> Observation:
        """The same poll, with other threads."""
        process = o.process
        if process is None or process.outcome is not Outcome.OK or process.threads is None:
            return o
        if process.start_ticks != self._start:
            self._start, self._at = process.start_ticks, o.at
            self._raw, self._shown = {}, {}
        span = o.at - self._at - o.suspended
        halted = process.frozen or process.state in ("T", "t")
        threads = []
        for n, thread in enumerate(process.threads):
            used = thread.cpu - self._raw.get(thread.tid, thread.cpu)
            state, shown = (thread.state, used) if halted else use(n, thread, used, span)
            total = self._shown.get(thread.tid, thread.cpu) + max(0.0, min(shown, span))
            self._raw[thread.tid], self._shown[thread.tid] = thread.cpu, total
            threads.append(Thread(thread.tid, state, round(total, 4)))
        self._at = o.at
        cpu = round(sum([thread.cpu for thread in threads]), 2)
        seen = replace(process, threads=tuple(threads), cpu=cpu, state=threads[0].state)
        return replace(o, process=seen)


def noise(config: ServerConfig, rng: Random) -> See:
    """Any machine: cores are shared, HTTP threads answer other people's questions, memory breathes."""
    threads = Threads()

    def use(n: int, thread: Thread, used: float, span: float) -> tuple[str, float]:
        if n < config.threads:
            return thread.state, used * (1.0 - 0.12 * rng.random() ** 3)
        asked = 0.06 * span * rng.random() if rng.random() < 0.03 else 0.0
        return ("R" if asked > 0.04 * span else thread.state), used + asked

    def see(o: Observation) -> Observation:
        o = threads.rewrite(o, use)
        if o.process is not None and o.process.rss is not None:
            o = replace(o, process=replace(o.process, rss=o.process.rss + PAGE * rng.randrange(60)))
        if o.gpu is not None and o.gpu.busy is not None and rng.random() < 0.05:
            o = replace(o, gpu=replace(o.gpu, busy=min(1.0, o.gpu.busy + 0.02)))  # a desktop's cursor
        return o

    return see


def crowded(share: float, since: float = 0.0) -> Lens:
    """Whatever computes gets only that share of a core, on a busy machine or by a quota, and wants more."""

    def begin(config: ServerConfig, rng: Random) -> See:
        threads, at = Threads(), 0.0

        def use(n: int, thread: Thread, used: float, span: float) -> tuple[str, float]:
            if n >= config.threads or at < since:
                return thread.state, used
            works = used > 0.2 * span
            return ("R" if works and rng.random() < 0.97 else thread.state), used * share

        def see(o: Observation) -> Observation:
            nonlocal at
            at = o.at
            return threads.rewrite(o, use)

        return see

    return begin


def one_thread(
    since: float, until: float, *, state: str, cpu: float = 0.0, faults: float = 0.0, n: int = 0
) -> Lens:
    """For a while the nth thread is in that state and uses that share of a core; major faults a second."""

    def begin(_: ServerConfig, rng: Random) -> See:
        threads, inside, faulted = Threads(), False, 0.0

        def use(number: int, thread: Thread, used: float, span: float) -> tuple[str, float]:
            chosen = number == n and inside
            return (state, span * cpu * (0.95 + 0.05 * rng.random())) if chosen else (thread.state, used)

        def see(o: Observation) -> Observation:
            nonlocal inside, faulted
            inside = since <= o.at < until
            faulted = faults * max(0.0, min(o.at, until) - since)
            o = threads.rewrite(o, use)
            if not faults or o.process is None or o.process.major_faults is None:
                return o
            return replace(o, process=replace(o.process, major_faults=o.process.major_faults + int(faulted)))

        return see

    return begin


def http_load(share: float, since: float = 0.0, until: float = 1e9) -> Lens:
    """An HTTP thread tokenises what clients send: that share of a core, in spells."""

    def begin(config: ServerConfig, rng: Random) -> See:
        threads, at = Threads(), 0.0

        def use(n: int, thread: Thread, used: float, span: float) -> tuple[str, float]:
            if n != config.threads or not since <= at < until:
                return thread.state, used
            return ("R" if rng.random() < 3.0 * share else "S"), used + span * share * (0.5 + rng.random())

        def see(o: Observation) -> Observation:
            nonlocal at
            at = o.at
            return threads.rewrite(o, use)

        return see

    return begin


def reads_unseen(_: ServerConfig, __: Random) -> See:
    """What it reads comes over the network: no block device, no major fault, and it waits in state S."""
    threads = Threads()

    def see(o: Observation) -> Observation:
        o = threads.rewrite(o, lambda _, thread, used, __: ("S" if used < 1.0 else thread.state, used))
        if o.process is None or o.process.outcome is not Outcome.OK:
            return o
        return replace(o, process=replace(o.process, read_bytes=4096, major_faults=17))

    return see


def writes(rate: float, since: float, until: float = 1e9) -> Lens:
    """The process writes so many bytes a second, in whole pages."""

    def begin(_: ServerConfig, __: Random) -> See:
        def see(o: Observation) -> Observation:
            if o.process is None or o.process.write_bytes is None or o.at < since:
                return o
            written = int(rate * (min(o.at, until) - since)) // PAGE * PAGE
            return replace(o, process=replace(o.process, write_bytes=o.process.write_bytes + written))

        return see

    return begin


def no_threads(_: ServerConfig, __: Random) -> See:
    """Only the CPU time of the whole process can be had."""
    return lambda o: replace(o, process=replace(o.process, threads=None)) if o.process else o
