"""Short ways to say what a watch sees: for tests of the core."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from llama_watchdog.core.judge import Judge
from llama_watchdog.core.observation import (
    Gpu,
    Health,
    Observation,
    Outcome,
    Process,
    Slot,
    Slots,
    Thread,
    Watch,
)
from llama_watchdog.core.policy import StallPolicy
from llama_watchdog.core.verdict import Verdict

PID = 4711
OK = Outcome.OK
CPU_SERVER = Watch(uses_gpu=False, compute_threads=4)


def slot(
    number: int = 0, *, busy: bool = True, task: int = 1, decoded: int = 0, prompt: int = 0, done: int = 0
) -> Slot:
    """One slot of today's format."""
    return Slot(number, busy, task, decoded, prompt, done)


def process(
    cpu: Iterable[float] = (0.0, 0.0), *, state: str = "S", start: int = 1, **more: object
) -> Process:
    """A process whose threads have used `cpu` seconds so far, the main thread first."""
    threads = tuple(Thread(PID + n, state if n == 0 else "S", used) for n, used in enumerate(cpu))
    facts = Process(OK, PID, start, state, cpu=sum(cpu), threads=threads, rss=1 << 30)
    return replace(facts, **{"read_bytes": 0, "write_bytes": 0, "major_faults": 0, **more})  # type: ignore[arg-type]  # any field


def seen(
    at: float,
    *slots: Slot,
    cpu: Iterable[float] = (0.0, 0.0),
    hangs: float | None = None,
    health: Outcome = OK,
    **parts: object,
) -> Observation:
    """One poll: these slots, or with `hangs` a /slots that has been asked so many seconds ago."""
    answer = Slots(OK, 0.001, slots) if hangs is None else Slots(Outcome.PENDING, hangs)
    facts = Observation(at, health=Health(health), slots=answer, process=process(cpu))
    return replace(facts, **parts)  # type: ignore[arg-type]  # any field


IDLE_GPU = Gpu(OK, busy=0.0, own=0.0)


def judged(
    observations: Iterable[Observation], *, watch: Watch = CPU_SERVER, policy: StallPolicy | None = None
) -> Iterator[tuple[float, Verdict]]:
    """Every verdict, with its time."""
    judge = Judge(policy or StallPolicy(), watch)
    for observation in observations:
        yield observation.at, judge.observe(observation)
