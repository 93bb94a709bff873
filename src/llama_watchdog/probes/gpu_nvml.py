"""NVIDIA's GPUs, by NVML: the library that nvidia-smi uses, through the package of the `nvidia` extra.

What belongs here is calling it and reading its answers. Its calls hang when the driver does.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Collection
from typing import Any

from llama_watchdog.core.observation import Gpu, Outcome
from llama_watchdog.probes.gpu_look import GpuLook

_RETRY = 60.0  # without its driver NVML fails at once, but may try to load the kernel module


class Nvml:
    """Keeps NVML open between looks. Not for two threads at once."""

    def __init__(
        self,
        *,
        load: Callable[[], Any] = lambda: importlib.import_module("pynvml"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load = load
        self._clock = clock
        self._library: Any = None
        self._tried: float | None = None
        self._sampled: dict[int, int] = {}  # by device: the last sample's time, microseconds of NVML's clock

    def look(self, pid: int) -> GpuLook | None:
        """None where there is no NVML. ERROR where it is there and none of its devices answers."""
        if not self._open():
            return None
        lib = self._library
        devices: dict[int, Any] = {}
        running: dict[int, int | None] = {}  # the process's memory, by device that it is on
        try:
            for index in range(lib.nvmlDeviceGetCount()):
                devices[index] = lib.nvmlDeviceGetHandleByIndex(index)
                for process in self._processes(devices[index]):
                    if process.pid == pid:
                        running[index] = process.usedGpuMemory
        except lib.NVMLError:
            if not devices:
                return GpuLook(Gpu(Outcome.ERROR), knows=False)
        loads = {index: self._busy(devices[index]) for index in running or devices}
        shares = [self._own(index, devices[index], pid, loads[index]) for index in running]
        memory = [size for size in running.values() if size is not None]
        gpu = Gpu(Outcome.OK, _most(loads.values()), _most(shares), sum(memory) if memory else None)
        return GpuLook(gpu, knows=bool(running))

    def _open(self) -> bool:
        if self._library is not None:
            return True
        now = self._clock()
        if self._tried is not None and now - self._tried < _RETRY:
            return False
        self._tried = now
        try:
            library = self._load()
        except ImportError:
            return False
        try:
            library.nvmlInit()
        except library.NVMLError:
            return False
        self._library = library
        return True

    def _processes(self, device: Any) -> list[Any]:
        lib = self._library
        found = []
        for ask in (lib.nvmlDeviceGetComputeRunningProcesses, lib.nvmlDeviceGetGraphicsRunningProcesses):
            try:
                found.extend(ask(device))
            except lib.NVMLError:  # not told for this device
                continue
        return found

    def _busy(self, device: Any) -> float | None:
        try:
            return float(self._library.nvmlDeviceGetUtilizationRates(device).gpu) / 100
        except self._library.NVMLError:  # a device split by MIG, or one that has fallen off its bus
            return None

    def _own(self, index: int, device: Any, pid: int, busy: float | None) -> float | None:
        """The process's largest share among the samples since the last look.

        No sample of anybody says that the device has idled, unless it says itself that it hasn't.
        """
        lib = self._library
        try:
            samples = lib.nvmlDeviceGetProcessUtilization(device, self._sampled.get(index, 0))
        except lib.NVMLError as error:
            if getattr(error, "value", None) != lib.NVML_ERROR_NOT_FOUND:
                return None
            samples = []
        valid = [sample for sample in samples if sample.smUtil <= 100]  # some drivers send garbage, too
        self._sampled[index] = max((s.timeStamp for s in valid), default=self._sampled.get(index, 0))
        if not valid:
            return 0.0 if busy == 0 else None
        return max((sample.smUtil / 100 for sample in valid if sample.pid == pid), default=0.0)


def _most(shares: Collection[float | None]) -> float | None:
    """The largest; None where one isn't known, as that could be a larger one."""
    known = [share for share in shares if share is not None]
    return max(known) if known and len(known) == len(shares) else None
