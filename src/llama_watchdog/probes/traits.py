"""What a llama-server was started with, as far as judging depends on it.

What belongs here is llama-server's flags, variables and devices. Nothing else of its command line and
environment leaves this room: they can hold API keys.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from llama_watchdog.probes.procfs import ProcessFolder

DEFAULT_BATCH = 2048
# The port without --port: 8080 of old, 9931 as newer builds' --help says.
DEFAULT_PORTS = frozenset({8080, 9931})

_VALUES = {
    "-b": "batch",
    "--batch-size": "batch",
    "-t": "threads",
    "--threads": "threads",
    "-tb": "threads-batch",
    "--threads-batch": "threads-batch",
    "--rpc": "rpc",
    "--sleep-idle-seconds": "sleep",
    "--port": "port",
    "-m": "model",
    "--model": "model",
    "-hf": "repo",
    "-hfr": "repo",
    "--hf-repo": "repo",
}
_SWITCHES = {"--metrics": "metrics"}
_VARIABLES = {
    "LLAMA_ARG_BATCH": "batch",
    "LLAMA_ARG_THREADS": "threads",
    "LLAMA_ARG_RPC": "rpc",
    "LLAMA_ARG_SLEEP_IDLE_SECONDS": "sleep",
    "LLAMA_ARG_PORT": "port",
    "LLAMA_ARG_MODEL": "model",
    "LLAMA_ARG_HF_REPO": "repo",
    "LLAMA_ARG_ENDPOINT_METRICS": "metrics",
    "LLAMA_ARG_METRICS": "metrics",  # before b4000 or so
}
VARIABLES = frozenset(_VARIABLES)
_TRUE = frozenset({"1", "on", "true", "enabled"})

_GPU_NODE = re.compile(r"/dev/(nvidia(ctl|-uvm|\d+)|kfd|dri/(renderD|card)\d+|dxg)\b")
_GPU_NODES = ("nvidia[0-9]*", "nvidiactl", "kfd", "dri/renderD*", "dxg")


@dataclass(frozen=True, slots=True)
class Traits:
    """What is known of one incarnation from how it was started and what it has open. None: can't be told.

    `batch_size` is --batch-size in tokens. `compute_threads` is the smaller of --threads and --threads-batch,
    since with either at 1 a single busy thread is work. `rpc` and `can_sleep` are False also where only an
    environment that we may not read could say otherwise. `model` is the model's path or repository.
    """

    batch_size: int
    compute_threads: int | None
    uses_gpu: bool | None
    rpc: bool
    can_sleep: bool
    metrics: bool | None
    model: str | None


UNKNOWN = Traits(DEFAULT_BATCH, None, None, rpc=False, can_sleep=False, metrics=None, model=None)


def read(folder: ProcessFolder, environment: Mapping[str, str] | None) -> Traits:
    """The traits of a process. `environment` is its own, or what its unit gives it; None: not to be had."""
    said = options(folder.arguments(), environment or {})
    metrics = said.get("metrics", "").lower() in _TRUE
    threads = _threads(said.get("threads"), folder.pid)
    batch_threads = _threads(said.get("threads-batch"), folder.pid) if "threads-batch" in said else threads
    return Traits(
        batch_size=_positive(said.get("batch")) or DEFAULT_BATCH,
        compute_threads=min(threads, batch_threads) if threads and batch_threads else None,
        uses_gpu=uses_gpu(folder),
        rpc=bool(said.get("rpc")),
        can_sleep=_positive(said.get("sleep")) is not None,
        metrics=metrics if metrics or environment is not None else None,
        model=said.get("model") or said.get("repo"),
    )


def stated_port(folder: ProcessFolder) -> int | None:
    """The port that its command line asks for, or its environment if we may read it, or None."""
    return _positive(options(folder.arguments(), folder.environment() or {}).get("port"))


def options(arguments: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """What is said of each option: the last flag, else the variable. `--flag value` and `--flag=value`.

    llama-server takes `--batch_size` for `--batch-size`.
    """
    said = {option: environment[name] for name, option in _VARIABLES.items() if name in environment}
    rest: Iterable[str] = iter(arguments[1:])
    for argument in rest:
        name, equals, value = argument.partition("=")
        if name.startswith("--"):
            name = name.replace("_", "-")
        if name in _SWITCHES:
            said[_SWITCHES[name]] = "1"
        elif name in _VALUES:
            said[_VALUES[name]] = value if equals else next(iter(rest), "")
    return said


def uses_gpu(folder: ProcessFolder) -> bool | None:
    """Whether it has a GPU's device open. Without the right to know: False if this machine has none."""
    files = folder.open_files()
    if files is not None:
        return any(_GPU_NODE.match(target) for _, target in files)
    return None if machine_has_gpu() else False


def machine_has_gpu(dev: Path = Path("/dev"), sysfs: Path = Path("/sys")) -> bool:
    """Whether a GPU's device node or driver is here. A sandbox with its own /dev still shows the driver."""
    if any(True for pattern in _GPU_NODES for _ in dev.glob(pattern)):
        return True
    return (sysfs / "module/nvidia").exists() or any(True for _ in (sysfs / "class/drm").glob("renderD*"))


def _threads(said: str | None, pid: int) -> int | None:
    """--threads as llama-server takes it: by default the physical cores, and for 0 or less every CPU."""
    try:
        cpus = os.sched_getaffinity(pid)
    except OSError:
        return None
    number = _number(said)
    if number is not None:
        return number if number > 0 else len(cpus)
    return len({_siblings(cpu) for cpu in cpus})


def _siblings(cpu: int) -> str:
    """The CPUs of one physical core."""
    try:
        with Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").open() as file:
            return file.read(256)
    except OSError:
        return str(cpu)


def _number(said: str | None) -> int | None:
    try:
        return int(said or "")
    except ValueError:
        return None


def _positive(said: str | None) -> int | None:
    number = _number(said)
    return number if number is not None and number > 0 else None
