"""One blocking call at a time, and none that is waited for too long."""

from __future__ import annotations

import asyncio
import threading

import pytest

from llama_watchdog.worker import StillBusyError, Worker


def fail() -> int:
    raise KeyError("x")


def test_results_and_errors_are_the_calls_own() -> None:
    async def story() -> None:
        worker = Worker("test")
        assert await worker.run(lambda: 42, 5) == 42
        with pytest.raises(KeyError):
            await worker.run(fail, 5)
        assert await worker.run(threading.current_thread, 5) is not threading.main_thread()

    asyncio.run(story())


def test_a_call_that_hangs_costs_one_thread_however_often_it_is_tried() -> None:
    release = threading.Event()
    faults: list[object] = []

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        worker = Worker("hanging")
        with pytest.raises(TimeoutError):
            await worker.run(release.wait, 0.01)
        for _ in range(5):
            with pytest.raises(StillBusyError):
                await worker.run(lambda: 1, 0.01)
        assert [thread.name for thread in threading.enumerate()].count("hanging") == 1
        release.set()
        while True:
            try:
                assert await worker.run(lambda: 1, 5) == 1  # the late answer is not taken for this one's
            except StillBusyError:
                await asyncio.sleep(0)
            else:
                return

    asyncio.run(story())
    assert faults == []


def test_a_call_that_ends_after_its_loop_is_no_error() -> None:
    """The watch was shut down meanwhile; an unhandled exception in a thread would fail the test."""
    release = threading.Event()

    async def story() -> None:
        with pytest.raises(TimeoutError):
            await Worker("late").run(release.wait, 0.01)

    asyncio.run(story())
    late = [thread for thread in threading.enumerate() if thread.name == "late"]
    release.set()
    for thread in late:
        thread.join(5)


def test_no_thread_to_be_had_is_an_oserror(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def story() -> None:
        worker = Worker("test")
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(OSError, match="can't start"):
                await worker.run(lambda: 1, 5)
        assert await worker.run(lambda: 1, 5) == 1

    asyncio.run(story())
