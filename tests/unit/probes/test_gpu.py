"""What several drivers tell, joined; and a driver that hangs."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from llama_watchdog.core.observation import Gpu, Outcome
from llama_watchdog.probes.gpu import GpuProbe
from llama_watchdog.probes.gpu_drm import Drm
from llama_watchdog.probes.gpu_look import GpuLook
from llama_watchdog.probes.gpu_nvml import Nvml

OK = Outcome.OK


def look(monkeypatch: pytest.MonkeyPatch, nvml: GpuLook | None, drm: GpuLook | None) -> Gpu:
    monkeypatch.setattr(Nvml, "look", lambda *_: nvml)
    monkeypatch.setattr(Drm, "look", lambda *_: drm)
    return asyncio.run(GpuProbe().look(1))


def test_nothing_here_tells_a_load(monkeypatch: pytest.MonkeyPatch) -> None:
    assert look(monkeypatch, None, None) == Gpu(Outcome.UNSUPPORTED)


def test_the_driver_that_knows_the_process_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    knows = GpuLook(Gpu(OK, busy=0.0, own=0.0, memory=5), knows=True)
    neighbours = GpuLook(Gpu(OK, busy=1.0), knows=False)
    assert look(monkeypatch, knows, neighbours) == knows.gpu
    assert look(monkeypatch, neighbours, knows) == knows.gpu
    assert look(monkeypatch, None, knows) == knows.gpu
    assert look(monkeypatch, neighbours, None) == neighbours.gpu


def test_a_process_on_the_devices_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    one = GpuLook(Gpu(OK, busy=0.1, own=0.1, memory=5), knows=True)
    two = GpuLook(Gpu(OK, busy=None, own=0.7, memory=2), knows=True)
    assert look(monkeypatch, one, two) == Gpu(OK, busy=None, own=0.7, memory=7)
    silent = GpuLook(Gpu(OK, busy=0.3), knows=True)
    assert look(monkeypatch, one, silent) == Gpu(OK, busy=0.3, own=None, memory=5)
    assert look(monkeypatch, silent, one) == Gpu(OK, busy=0.3, own=None, memory=5)


def test_neighbours_of_two_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where neither knows the process, any device's load could be its own."""
    error = GpuLook(Gpu(Outcome.ERROR), knows=False)
    busy = GpuLook(Gpu(OK, busy=0.9), knows=False)
    idle = GpuLook(Gpu(OK, busy=0.0), knows=False)
    assert look(monkeypatch, busy, idle) == Gpu(OK, busy=0.9)
    assert look(monkeypatch, error, idle).outcome is Outcome.ERROR
    assert look(monkeypatch, error, None) == Gpu(Outcome.ERROR)


def test_a_stuck_driver_is_a_timeout_then_pending_until_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    answer = GpuLook(Gpu(OK, busy=0.0), knows=True)

    def hang(*_: object) -> GpuLook:
        release.wait(10)
        return answer

    monkeypatch.setattr(Nvml, "look", hang)
    monkeypatch.setattr(Drm, "look", lambda *_: None)

    async def story() -> list[Outcome]:
        probe = GpuProbe(timeout=0.05)
        outcomes = [(await probe.look(1)).outcome, (await probe.look(1)).outcome]
        release.set()
        while (last := await probe.look(1)).outcome is not OK:
            time.sleep(0.001)  # noqa: ASYNC251 - gives way to the thread, not to the loop
        return [*outcomes, last.outcome]

    assert asyncio.run(story()) == [Outcome.TIMEOUT, Outcome.PENDING, OK]


@pytest.mark.parametrize(
    ("told", "holds"),
    [
        (GpuLook(Gpu(OK, busy=0.0, own=0.0, memory=5), knows=True), True),
        (GpuLook(Gpu(OK, busy=1.0), knows=False), False),
        (None, False),
    ],
)
def test_memory_that_is_still_booked_to_a_dead_process(
    monkeypatch: pytest.MonkeyPatch, told: GpuLook | None, *, holds: bool
) -> None:
    monkeypatch.setattr(Nvml, "look", lambda *_: told)
    assert asyncio.run(GpuProbe().holds(1)) is holds


def test_a_driver_that_fails_books_nothing_and_one_that_hangs_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is started beside memory that may not be free; that is waited for only so long."""
    release = threading.Event()
    monkeypatch.setattr(Nvml, "look", lambda *_: release.wait(10))

    async def story() -> list[bool]:
        probe = GpuProbe(timeout=0.05)
        return [await probe.holds(1), await probe.holds(1)]

    assert asyncio.run(story()) == [True, True]
    release.set()

    def fails(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(Nvml, "look", fails)
    assert asyncio.run(GpuProbe().holds(1)) is False
