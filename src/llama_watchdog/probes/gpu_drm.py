"""The GPUs of the kernel's own drivers (amdgpu, xe, i915 and more), by /proc/PID/fdinfo and /sys.

What belongs here is reading those files: the kernel's "DRM client usage stats", amdgpu's `gpu_busy_percent`,
and the memory of ROCm's processes, whose work the client stats leave out.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from llama_watchdog.core.observation import Gpu, Outcome
from llama_watchdog.probes.gpu_look import GpuLook
from llama_watchdog.probes.procfs import ProcessFolder

_UNITS = {"": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_LINE = re.compile(r"^drm-([^:\s]+):\s*(\S+)[ \t]*(\S*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Client:
    """One DRM client: an opened device, which several file descriptors can share. Memory in bytes."""

    device: str
    engines: dict[str, int]  # busy nanoseconds, or cycles
    clocks: dict[str, int]  # all cycles that passed, where engines count cycles
    capacity: dict[str, int]  # how many engines go by one name
    memory: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Before:
    """The last look: of which process, when in nanoseconds, and what was seen."""

    pid: int
    at: int
    clients: dict[str, _Client]


class Drm:
    """Remembers the last look, since the counters only grow. Not for two threads at once."""

    def __init__(
        self,
        *,
        proc: str = "/proc",
        sysfs: Path = Path("/sys"),
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._proc = proc
        self._sysfs = sysfs
        self._clock = clock
        self._before: _Before | None = None

    def look(self, pid: int) -> GpuLook | None:
        """None where no device tells anything. `own` needs two looks, and the right to read open files."""
        clients, rocm = self._clients(pid)
        now = _Before(pid, self._clock(), clients)
        before, self._before = self._before, now
        compute_memory = self._rocm_memory(pid)
        memory = max(sum(sum(c.memory.values()) for c in clients.values()), compute_memory or 0)
        rocm = rocm or compute_memory is not None
        busy = self._busy({client.device for client in clients.values()})
        knows = bool(clients) or rocm
        if not knows and busy is None:
            return None
        own = _share(before, now) if before is not None and before.pid == pid and not rocm else None
        return GpuLook(Gpu(Outcome.OK, busy=busy, own=own, memory=memory if knows else None), knows)

    def _clients(self, pid: int) -> tuple[dict[str, _Client], bool]:
        """Its clients by device and id, and whether it has opened ROCm's device."""
        try:
            with ProcessFolder(pid, self._proc) as folder:
                files = folder.open_files() or []
                texts = [folder.read(f"fdinfo/{n}") for n, target in files if target.startswith("/dev/dri/")]
        except ProcessLookupError:
            return {}, False
        told = [text.decode(errors="replace") for text in texts if text and b"drm-client-id" in text]
        clients = dict(_parse(text) for text in told)
        return clients, any(target == "/dev/kfd" for _, target in files)

    def _rocm_memory(self, pid: int) -> int | None:
        """Bytes of GPU memory of a process that computes by ROCm; None where it doesn't."""
        sizes = [_number(file) for file in self._sysfs.glob(f"class/kfd/kfd/proc/{pid}/vram_*")]
        return sum(size or 0 for size in sizes) if sizes else None

    def _busy(self, devices: Iterable[str]) -> float | None:
        """The load of these PCI devices, None where one doesn't tell; of the busiest without any."""
        files = [self._sysfs / "bus/pci/devices" / device / "gpu_busy_percent" for device in devices]
        everywhere = () if files else self._sysfs.glob("class/drm/card*/device/gpu_busy_percent")
        percents = [_number(file) for file in (*files, *everywhere)]
        told = [percent for percent in percents if percent is not None]
        return max(told) / 100 if told and len(told) == len(percents) else None


def _parse(text: str) -> tuple[str, _Client]:
    lines = _LINE.findall(text)
    words = {key: value for key, value, _ in lines}
    numbers = {key: int(value) * _UNITS.get(unit, 1) for key, value, unit in lines if value.isdigit()}

    def named(prefix: str) -> dict[str, int]:
        return {key.removeprefix(prefix): number for key, number in numbers.items() if key.startswith(prefix)}

    capacity = named("engine-capacity-")
    device = words.get("pdev", "")
    client = _Client(
        device,
        engines={name: n for name, n in named("engine-").items() if not name.startswith("capacity-")}
        | named("cycles-"),
        clocks=named("total-cycles-"),
        capacity=capacity,
        memory=named("memory-") | named("resident-"),  # the older name, and the newer
    )
    return f"{device}/{words.get('client-id')}", client


def _share(before: _Before, now: _Before) -> float | None:
    """The busiest engine's load by these clients, 0 to 1; None where no client is in both looks."""
    loads: dict[tuple[str, str], float] = {}
    for name, client in now.clients.items():
        earlier = before.clients.get(name)
        for engine, count in client.engines.items():
            if earlier is None or engine not in earlier.engines:
                continue
            if engine in client.clocks:
                passed = client.clocks[engine] - earlier.clocks.get(engine, 0)
            else:
                passed = now.at - before.at
            used = max(count - earlier.engines[engine], 0)
            load = used / passed / max(client.capacity.get(engine, 1), 1) if passed > 0 else 0.0
            key = client.device, engine
            loads[key] = loads.get(key, 0.0) + load
    return min(max(loads.values()), 1.0) if loads else None


def _number(path: Path) -> int | None:
    try:
        with path.open() as file:
            text = file.read(64).strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
