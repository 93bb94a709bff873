"""What the simulated server is, and the facts it gives: plain frozen values, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

GIB = 1 << 30


class Compute(StrEnum):
    """Where llama_decode runs, and so what the process shows while it does."""

    CPU = "cpu"  # the main thread and its helpers, each a whole core
    CPU_WORKER = "cpu-worker"  # likewise, but the main thread waits for a worker: some builds after b10429
    GPU = "gpu"  # the GPU, while the main thread spins
    RPC = "rpc"  # other machines: here nothing shows


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """A server and its machine. Rates are tokens a second, sizes bytes."""

    slots: int = 4
    context: int = 4096  # n_ctx of one slot, in tokens
    batch_size: int = 2048
    prefill_rate: float = 500.0
    decode_rate: float = 30.0
    half_rate_depth: int = 0  # tokens of context at which the rates have halved; 0: depth costs nothing
    variation: float = 0.0  # each task's own speed differs by up to this share
    answers_mid_step: bool = True  # False: /slots waits for the running step (builds up to b10428)
    health_in_queue: bool = False  # /health waits, too (early 2024, ik_llama.cpp)
    endpoint_slots: bool = True
    endpoint_metrics: bool = False
    download_seconds: float = 0.0  # before it listens, writing to disk
    load_seconds: float = 0.0
    load_reads: bool = True  # False: the model comes from the page cache, and only memory grows
    warmup_seconds: float = 0.0  # of one busy thread, before the first step after a load (kernels compile)
    sleep_idle_seconds: float | None = None
    second_sigterm_hangs: bool = False
    compute: Compute = Compute.CPU
    threads: int = 4  # compute threads, the main thread among them
    http_threads: int = 4
    model_bytes: int = 4 * GIB
    pid: int = 4711


@dataclass(frozen=True, slots=True)
class Task:
    """One request. `predict`: tokens to generate, -1 without limit, 0 for an embedding."""

    prompt: int = 12
    predict: int = 100
    encode_seconds: float = 0.0  # an image, encoded before any counter moves
    text: str = ""  # the prompt, shown by builds that show it


class TaskState(NamedTuple):
    """How far one task has come: tokens generated so far, and whether it is over."""

    decoded: int
    over: bool


@dataclass(frozen=True, slots=True)
class SlotState:
    """What a server knows of one slot. `task` -1: it had none yet."""

    id: int
    context: int
    processing: bool
    task: int = -1
    prompt: int = 0  # tokens in the context, those of the running step included
    processed: int = 0  # prompt tokens of the steps that have ended
    decoded: int = 0
    predict: int = -1
    text: str = ""

    @property
    def remaining(self) -> int:
        """n_remain: -1 where there is no limit, or no task."""
        return self.predict - self.decoded if self.processing and self.predict >= 0 else -1


@dataclass(frozen=True, slots=True)
class HealthFacts:
    """What /health says: a server that listens either loads or is ready."""

    loading: bool
    idle: int = 0
    processing: int = 0


@dataclass(frozen=True, slots=True)
class PropsFacts:
    """What /props says."""

    sleeping: bool
    slots: int
    context: int


@dataclass(frozen=True, slots=True)
class MetricsFacts:
    """What /metrics says, since the start of the process."""

    processing: int = 0
    deferred: int = 0
    decode_total: int = 0
    prompt_total: int = 0
    predicted_total: int = 0
