"""One watchdog a server, however the others end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from llama_watchdog import lock as room
from llama_watchdog.lock import Holder, TargetLock, holder

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
    """Each round of the second asks the first, whose rounds make room for it."""
    first, second = lock(target), lock(target)
    first.take()
    said = set()
    for _ in range(50):
        said.add(second.take())
        first.take()
    assert len(said) == 1
    assert "" not in said


def test_who_has_it_by_now_counts(lock: Lock, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger that takes it after a watchdog's end disarms nobody; a watchdog after a stranger does."""
    lock(target).take()
    second, holders = lock(target), [Holder(1, 0), Holder(2, 4712), Holder(3, 0)]
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    monkeypatch.setattr(room, "_listener", lambda _address: holders.pop(0))
    assert [bool(second.take()) for _ in range(3)] == [True, False, True]


def test_one_that_never_tells_who_it_is_disarms_nobody(
    lock: Lock, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a stranger can do by leaving its queue full."""
    lock(target).take()
    second = lock(target)
    monkeypatch.setattr(room, "_listener", lambda _address: None)
    assert second.take() == ""
    second.release()
    assert not second.held


@pytest.mark.parametrize(
    ("uid", "believed"), [(0, True), (998, True), (4711, True), (1000, False), (4712, False)]
)
def test_only_root_services_and_we_ourselves_are_believed_to_be_watchdogs(
    lock: Lock, target: str, monkeypatch: pytest.MonkeyPatch, *, uid: int, believed: bool
) -> None:
    """Whoever just has an account could otherwise disarm one, by taking its lock's name."""
    lock(target).take()
    second = lock(target)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    monkeypatch.setattr(room, "_listener", lambda _address: Holder(0, uid))
    said = f"a process (pid 0, uid {uid})"
    assert second.take() == (said if believed else "")
    assert second.held is not believed
    assert str(second.stranger) == ("None" if believed else said)
    assert (holder(target) is not None) is believed
