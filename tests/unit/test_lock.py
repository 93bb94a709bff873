"""One watchdog a server, however the others end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from llama_watchdog.lock import TargetLock, holder

Lock = Callable[[str], TargetLock]


@pytest.fixture
def target() -> str:
    return f"127.0.0.1 port {uuid4()}"  # nobody else's


@pytest.fixture
def lock() -> Iterator[Lock]:
    """Makes locks; all are released with the test."""
    made: list[TargetLock] = []

    def make(target: str) -> TargetLock:
        made.append(TargetLock(target))
        return made[-1]

    yield make
    for one in made:
        one.release()


def test_the_first_has_it_and_the_second_hears_who(lock: Lock, target: str) -> None:
    first, second = lock(target), lock(target)
    assert first.take() == ""
    assert first.take() == ""
    assert f"(pid {os.getpid()}, uid {os.getuid()})" in second.take()
    assert (first.held, second.held, holder(target)) == (True, False, (os.getpid(), os.getuid()))


def test_it_is_free_once_it_is_released(lock: Lock, target: str) -> None:
    first, second = lock(target), lock(target)
    first.take()
    second.take()
    first.release()
    assert holder(target) is None
    assert second.take() == ""
    assert second.held


def test_another_target_has_another_lock(lock: Lock, target: str) -> None:
    one, other = lock(target), lock(target + "1")
    assert one.take() == other.take() == ""


def test_a_holder_that_is_killed_leaves_nothing_behind(lock: Lock, target: str) -> None:
    script = (
        "import sys, time; from llama_watchdog.lock import TargetLock; lock = TargetLock(sys.argv[1]);"
        "print(lock.take() or 'mine', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script, target], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "mine\n"
        assert f"(pid {child.pid}," in lock(target).take()
        child.kill()
        child.wait()
    assert lock(target).take() == ""


def test_asking_again_and_again_tells_the_same(lock: Lock, target: str) -> None:
    """The holder accepts no connection: its queue must not fill up and hide who it is."""
    first, second = lock(target), lock(target)
    first.take()
    assert len({second.take() for _ in range(50)}) == 1
