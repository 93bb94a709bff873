"""What the generated stories share: servers, their work, how they are looked at, how they are wedged."""

from __future__ import annotations

from dataclasses import replace

from llama_watchdog.simulator.config import Compute, ServerConfig, Task
from llama_watchdog.simulator.faults import Fault
from llama_watchdog.simulator.formats import FORMATS
from llama_watchdog.simulator.happenings import Happening, Request, Strike
from llama_watchdog.simulator.traces import Watcher
from tests.corpus.entry import Acts
from tests.corpus.generated.noise import Lens
from tests.corpus.generated.story import Story, story

OLD, EARLY, LATE, IK = FORMATS["b9247"], FORMATS["2024-early"], FORMATS["2024-late"], FORMATS["ik"]
EVERY_SECOND = Watcher(interval=1.0)
EVERY_TEN, EVERY_TWENTY = Watcher(interval=10.0), Watcher(interval=20.0)
NO_RIGHTS = Watcher(interval=10.0, sees_process=False)
NOTHING_KNOWN = {"uses_gpu": None, "compute_threads": None}

CRAWL = ServerConfig(prefill_rate=3.0, decode_rate=0.5)  # 11 minutes for a full batch
SILENT = ServerConfig(prefill_rate=0.56, decode_rate=2.0)  # an hour for a full batch
ENDLESS = ServerConfig(context=1 << 20, decode_rate=20.0)
SERVER = ServerConfig(load_seconds=8.0, context=1 << 20)
GPU = replace(SERVER, compute=Compute.GPU)
METRICS = replace(SERVER, load_seconds=0.0, endpoint_metrics=True)

LONG = [Request(20.0, Task(prompt=3900, predict=20))]
HOURLY = [Request(20.0, Task(prompt=2040, predict=20))]
FAST = [Request(20.0 + 30.0 * n, Task(prompt=1500, predict=100)) for n in range(30)]
GENERATES = Request(20.0, Task(prompt=200, predict=100_000))

AT = 300.0  # when most faults strike
WORK = [Request(20.0 + 30.0 * n, Task(1500, 200)) for n in range(8)]  # before it: a pace is learned
BLOCKED = Acts(AT, 30.0, "frozen", "blocked")
HANGS = Acts(AT, 30.0, "slots-hang", "blocked")
BY_PACE = Acts(AT, 300.0, "frozen", "computing")


def on(config: ServerConfig, compute: Compute, threads: int = 4) -> ServerConfig:
    """The same server with its work done elsewhere."""
    return replace(config, compute=compute, threads=threads)


def spans(fault: Fault, *when: tuple[float, float]) -> list[Happening]:
    """The fault begins and is lifted, again and again."""
    return [strike for begin, end in when for strike in (Strike(begin, fault), Strike(end, Fault.NONE))]


def held(fault: Fault, begin: float, end: float) -> list[Happening]:
    """A generation, and somebody who holds the process for a while."""
    return [GENERATES, *spans(fault, (begin, end))]


def decoding(fault: Fault, at: float = AT) -> list[Happening]:
    """It strikes in the middle of an answer."""
    return [*WORK, Request(at - 20.0, Task(100, 100_000), name="stuck"), Strike(at, fault)]


def prefilling(fault: Fault) -> list[Happening]:
    """It strikes in the middle of a step of a prompt."""
    return [*WORK, Request(AT - 1.0, Task(4000, 100)), Strike(AT, fault)]


def idle(fault: Fault) -> list[Happening]:
    """It strikes with nothing to do."""
    return [*WORK, Strike(AT, fault)]


def wedge(
    happenings: list[Happening],
    *lenses: Lens,
    minutes: float = 9.0,
    config: ServerConfig = SERVER,
    **more: object,
) -> Story:
    """A wedge on a server that has worked before."""
    return story(minutes, happenings, *lenses, config=config, **more)
