"""NVIDIA's GPUs, by a stand-in for the module pynvml."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from llama_watchdog.core.observation import Gpu, Outcome
from llama_watchdog.probes.gpu_look import GpuLook
from llama_watchdog.probes.gpu_nvml import Nvml

PID = 4711
NEIGHBOUR = 9


class NVMLError(Exception):
    """As pynvml's: the code is its `value`."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value


NOT_SUPPORTED, NOT_FOUND, GPU_IS_LOST = 3, 6, 15


@dataclass
class Running:
    pid: int
    usedGpuMemory: int | None  # noqa: N815 - pynvml's name


@dataclass
class Sample:
    pid: int
    smUtil: int  # noqa: N815 - pynvml's name
    timeStamp: int = 1  # noqa: N815 - pynvml's name


@dataclass
class Device:
    """One GPU: its load in percent, who runs on it, and the driver's samples of their load."""

    gpu: int | None = 0
    running: list[Running] = field(default_factory=list)
    samples: list[Sample] | int = NOT_FOUND
    asked_since: list[int] = field(default_factory=list)


class Library:
    """The module pynvml, as far as it is used."""

    NVMLError = NVMLError
    NVML_ERROR_NOT_FOUND = NOT_FOUND

    def __init__(self, *devices: Device, broken: bool = False) -> None:
        self.devices = devices
        self.broken = broken
        self.inits = 0

    def nvmlInit(self) -> None:  # noqa: N802 - pynvml's name
        self.inits += 1
        if self.broken:
            raise NVMLError(GPU_IS_LOST)

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802 - pynvml's name
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Device:  # noqa: N802 - pynvml's name
        if self.broken:
            raise NVMLError(GPU_IS_LOST)
        return self.devices[index]

    def nvmlDeviceGetComputeRunningProcesses(self, device: Device) -> list[Running]:  # noqa: N802 - pynvml's name
        return device.running

    def nvmlDeviceGetGraphicsRunningProcesses(self, _: Device) -> list[Running]:  # noqa: N802 - pynvml's name
        raise NVMLError(NOT_SUPPORTED)

    def nvmlDeviceGetUtilizationRates(self, device: Device) -> Device:  # noqa: N802 - pynvml's name
        if device.gpu is None:
            raise NVMLError(NOT_SUPPORTED)
        return device

    def nvmlDeviceGetProcessUtilization(self, device: Device, since: int) -> list[Sample]:  # noqa: N802 - pynvml's name
        device.asked_since.append(since)
        if isinstance(device.samples, int):
            raise NVMLError(device.samples)
        return device.samples


def look(*devices: Device) -> GpuLook | None:
    return Nvml(load=lambda: Library(*devices)).look(PID)


def seen(*, busy: float | None, own: float | None, memory: int | None) -> GpuLook:
    return GpuLook(Gpu(Outcome.OK, busy, own, memory), knows=True)


def test_the_devices_that_the_process_is_on() -> None:
    mine = Device(60, [Running(PID, 1000), Running(NEIGHBOUR, 5)], [Sample(PID, 40), Sample(NEIGHBOUR, 20)])
    other = Device(100, [Running(NEIGHBOUR, 5)], [Sample(NEIGHBOUR, 100)])
    second = Device(10, [Running(PID, 500)], [Sample(PID, 10)])
    assert look(mine, other, second) == seen(busy=0.6, own=0.4, memory=1500)


def test_a_neighbours_load_is_not_the_processs() -> None:
    device = Device(100, [Running(PID, 1000)], [Sample(NEIGHBOUR, 100)])
    assert look(device) == seen(busy=1.0, own=0.0, memory=1000)


def test_an_idle_device_has_no_samples() -> None:
    """Drivers answer "not found" then."""
    assert look(Device(0, [Running(PID, 1000)], NOT_FOUND)) == seen(busy=0.0, own=0.0, memory=1000)
    assert look(Device(0, [Running(PID, 1000)], [])) == seen(busy=0.0, own=0.0, memory=1000)


def test_no_samples_of_a_busy_device_say_nothing_of_the_process() -> None:
    assert look(Device(80, [Running(PID, 1000)], NOT_FOUND)) == seen(busy=0.8, own=None, memory=1000)


def test_a_driver_without_shares_or_loads() -> None:
    assert look(Device(30, [Running(PID, None)], NOT_SUPPORTED)) == seen(busy=0.3, own=None, memory=None)
    assert look(Device(None, [Running(PID, 7)], NOT_SUPPORTED)) == seen(busy=None, own=None, memory=7)


def test_one_device_of_two_without_shares_leaves_the_whole_unknown() -> None:
    idle = Device(0, [Running(PID, 1)], [Sample(PID, 0)])
    silent = Device(50, [Running(PID, 1)], NOT_SUPPORTED)
    assert look(idle, silent) == seen(busy=0.5, own=None, memory=2)


def test_garbage_samples_are_left_out() -> None:
    """Some drivers return a hundred samples with loads of millions of percent."""
    device = Device(50, [Running(PID, 1)], [Sample(PID, 4_000_000, 10**18), Sample(PID, 50)])
    assert look(device) == seen(busy=0.5, own=0.5, memory=1)


def test_only_new_samples_are_asked_for() -> None:
    device = Device(50, [Running(PID, 1)], [Sample(PID, 50, timeStamp=77), Sample(PID, 20, timeStamp=99)])
    nvml = Nvml(load=lambda: Library(device))
    nvml.look(PID)
    nvml.look(PID)
    assert device.asked_since == [0, 99]


def test_a_process_that_nobody_knows() -> None:
    """In another pid namespace, or not using the GPU: all that is known is the busiest device."""
    assert look(Device(10), Device(70)) == GpuLook(Gpu(Outcome.OK, busy=0.7), knows=False)
    assert look(Device(0), Device(None)) == GpuLook(Gpu(Outcome.OK, busy=None), knows=False)


def test_a_lost_gpu_is_an_error() -> None:
    library = Library(Device())
    nvml = Nvml(load=lambda: library)
    nvml.look(PID)
    library.broken = True
    assert nvml.look(PID) == GpuLook(Gpu(Outcome.ERROR), knows=False)


@pytest.mark.parametrize("missing", ["package", "driver"])
def test_without_nvml_nothing_is_told_and_little_is_tried(missing: str) -> None:
    now = [0.0]
    tries = []

    def load() -> Library:
        tries.append(now[0])
        if missing == "package":
            raise ImportError("no module named pynvml")
        return Library(broken=True)

    nvml = Nvml(load=load, clock=lambda: now[0])
    for _ in range(3):
        assert nvml.look(PID) is None
        now[0] += 59.0
    assert tries == [0.0, 118.0]


def test_nvml_is_opened_once() -> None:
    library = Library(Device())
    nvml = Nvml(load=lambda: library)
    nvml.look(PID)
    nvml.look(PID)
    assert library.inits == 1
