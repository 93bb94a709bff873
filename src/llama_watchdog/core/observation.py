"""The frozen facts of one poll: what each probe saw of a server, and how the asking itself went.

Probes build these, traces store them, the judge reads them. A part that was not asked is `None`; a fact
that could not be had is `None` within its part. Times are seconds; CPU times are CPU seconds since the
process (or thread) began; sizes are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from llama_watchdog.core.action import Identity


class Outcome(StrEnum):
    """How one question to the world went. Only TIMEOUT and PENDING say that something hangs."""

    OK = "ok"
    PENDING = "pending"  # asked in an earlier poll, not yet answered
    TIMEOUT = "timeout"  # no whole answer within its timeout
    LOADING = "loading"  # answered 503: the model is being loaded
    REFUSED = "refused"  # nothing listens there
    UNREACHABLE = "unreachable"  # the network or the name failed: says nothing of the server
    UNAUTHORIZED = "unauthorized"  # 401, 403
    UNSUPPORTED = "unsupported"  # switched off, or not to be had here
    MALFORMED = "malformed"  # answered, but not with what that endpoint answers
    ERROR = "error"  # any other failure, such as a 500 or a reset connection
    SKIPPED = "skipped"  # deliberately not asked this time
    GONE = "gone"  # the process that was watched has ended


HANGS = frozenset({Outcome.PENDING, Outcome.TIMEOUT})


@dataclass(frozen=True, slots=True)
class Health:
    """`GET /health`. Answered by an HTTP thread: OK says nothing of the main loop."""

    outcome: Outcome
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot of `GET /slots`, whatever the build calls its keys. Missing counters are `None`.

    An idle slot goes on showing the numbers of its last task.
    """

    id: int
    processing: bool
    task: int | None = None
    decoded: int | None = None  # n_decoded: tokens generated in this task
    prompt: int | None = None  # n_prompt_tokens: tokens of the prompt in the context
    prompt_processed: int | None = None  # n_prompt_tokens_processed; None on builds without prompt counters
    remaining: int | None = None  # n_remain; -1: generation has no limit
    context: int | None = None  # n_ctx
    cached: int | None = None  # n_prompt_tokens_cache: tokens of the prompt that were there already


@dataclass(frozen=True, slots=True)
class Slots:
    """`GET /slots`. `body` is the list as served, with everything private taken out (`wire.redact`)."""

    outcome: Outcome
    seconds: float = 0.0
    slots: tuple[Slot, ...] = ()
    body: object = None


@dataclass(frozen=True, slots=True)
class Props:
    """`GET /props`."""

    outcome: Outcome
    sleeping: bool | None = None
    total_slots: int | None = None
    build: str | None = None
    model: str | None = None  # path or name of the model
    router: bool = False


@dataclass(frozen=True, slots=True)
class Metrics:
    """`GET /metrics`: only the figures that tell something of a wedge."""

    outcome: Outcome
    processing: int | None = None  # requests_processing
    deferred: int | None = None  # requests_deferred: accepted, waiting for a slot
    decode_total: int | None = None  # n_decode_total: calls of llama_decode so far


@dataclass(frozen=True, slots=True)
class Canary:
    """A request of our own for one token, where that is asked for. `seconds` since it was sent."""

    outcome: Outcome
    seconds: float = 0.0


class Thread(NamedTuple):
    """One thread of the server: its id, its state letter as in /proc, its CPU seconds so far."""

    tid: int
    state: str
    cpu: float


@dataclass(frozen=True, slots=True)
class Process:
    """The server's process. `pid` and `start_ticks` together name one incarnation of it."""

    outcome: Outcome
    pid: int | None = None
    start_ticks: int | None = None  # field 22 of /proc/PID/stat: clock ticks after boot
    state: str | None = None  # of the main thread: R S D T t Z
    tracer: int = 0  # TracerPid: 0 where no debugger is attached
    frozen: bool = False  # its cgroup is frozen: state S, but it cannot run
    cpu: float | None = None
    threads: tuple[Thread, ...] | None = None
    rss: int | None = None
    read_bytes: int | None = None  # None without the right to read /proc/PID/io
    write_bytes: int | None = None
    major_faults: int | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """The GPU's load, 0 to 1: `busy` of the device, `own` of this process alone; `memory` of this process."""

    outcome: Outcome
    busy: float | None = None
    own: float | None = None
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """The systemd unit that runs the server: what its manager, and so its admin, wants of it."""

    outcome: Outcome
    load: str = ""  # loaded, masked, not-found
    active: str = ""  # active, inactive, failed, activating, deactivating
    sub: str = ""  # running, auto-restart, stop-sigterm …
    result: str = ""  # success, exit-code, signal, timeout, start-limit-hit …
    job: str = ""  # a pending job's type: start, stop, restart; "" where there is none
    exit_status: int | None = None  # of the last main process that ended
    stop_ordered: bool = False  # it was asked to stop before its main process ended


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of a server whose process has ended. Until it is gone, nothing is started beside it."""

    processes: tuple[Identity, ...] = ()  # of its tree, or with its listening socket still open
    port: str = ""  # who listens at its url, for people
    gpu: bool = False  # a driver still books memory to it


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything one poll saw. `at`: seconds since the watch began, by CLOCK_BOOTTIME, of the whole poll.

    `suspended` is how much of the step since the last poll the host slept; `clients` counts the
    connections to the server that are not ours (`None`: can't be told).
    """

    at: float
    suspended: float = 0.0
    clients: int | None = None
    health: Health | None = None
    slots: Slots | None = None
    props: Props | None = None
    metrics: Metrics | None = None
    process: Process | None = None
    gpu: Gpu | None = None
    unit: Unit | None = None
    canary: Canary | None = None
    left: Left | None = None


@dataclass(frozen=True, slots=True)
class Watch:
    """What is known of the watched server before any poll: the first line of a trace.

    Written anew for each incarnation. `None` means that it could not be found out, and is judged with
    caution: an unknown GPU may be a busy one.
    """

    server: str = "default"
    interval: float = 5.0
    build: str | None = None
    batch_size: int = 2048  # llama-server's default of --batch-size
    uses_gpu: bool | None = None
    compute_threads: int | None = None
    rpc: bool = False
    can_sleep: bool = False
