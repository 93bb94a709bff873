"""What systemd is told, as it arrives at its socket."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from llama_watchdog.notify import systemd
from llama_watchdog.notify.systemd import Notifier, Silent


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Where systemd listens."""
    where = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(where)
        listening.settimeout(2.0)
        monkeypatch.setenv("NOTIFY_SOCKET", where)
        yield listening


def heard(manager: socket.socket) -> str:
    return manager.recv(4096).decode()


def test_each_message_in_systemd_s_words(manager: socket.socket) -> None:
    notifier = Notifier()
    notifier.ready()
    notifier.alive()
    notifier.extend(2.5)
    notifier.stopping()
    told = [heard(manager) for _ in range(4)]
    assert told == ["READY=1", "WATCHDOG=1", "EXTEND_TIMEOUT_USEC=2500000", "STOPPING=1"]
    notifier.close()


def test_the_status_is_sent_when_it_changes(manager: socket.socket) -> None:
    notifier = Notifier()
    for line in ("chat: idle", "chat: idle", "chat: busy"):
        notifier.status(line)
    notifier.alive()
    assert [heard(manager) for _ in range(3)] == ["STATUS=chat: idle", "STATUS=chat: busy", "WATCHDOG=1"]
    notifier.close()


@pytest.mark.parametrize("line", ["chat: idle · code: busy", "at 5 × 12 s …", "größer ⚠"])
def test_a_status_is_utf_8_whatever_it_holds(manager: socket.socket, line: str) -> None:
    """systemd ignores one that is not."""
    notifier = Notifier()
    notifier.status(line)
    assert heard(manager) == f"STATUS={line}"
    notifier.close()


def test_a_reload_says_when_it_began(manager: socket.socket) -> None:
    """Without the time Type=notify-reload never takes it for one."""
    notifier = Notifier()
    before = time.monotonic_ns() // 1000
    notifier.reloading()
    reloading, when = heard(manager).split("\n")
    assert reloading == "RELOADING=1"
    assert before <= int(when.removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000
    notifier.close()


def test_a_manager_that_does_not_read_holds_nobody_up(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel queues ten messages or some more; a blocking write would wait for systemd for ever."""
    monkeypatch.setattr(systemd, "SEND_TIMEOUT", 0.001)
    notifier = Notifier()
    for _ in range(int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text()) + 10):
        notifier.alive()
    notifier.close()
    assert heard(manager) == "WATCHDOG=1"


def test_within_another_service_nothing_is_said_but_the_trigger(manager: socket.socket) -> None:
    """A READY or STOPPING would be taken for the service's own, and a WATCHDOG=1 for a sign of its life."""
    silent, asking = Silent(), Notifier()
    for call in (silent.ready, silent.alive, silent.reloading, silent.stopping):
        call()
    silent.status("chat: idle")
    silent.extend(1.0)
    assert asking.trigger()
    silent.close()
    asking.close()
    manager.setblocking(False)
    assert heard(manager) == "WATCHDOG=trigger"
    with pytest.raises(BlockingIOError):
        heard(manager)


def test_a_trigger_that_is_not_taken_is_no_success(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unlike the rest it is not told again anyway: whoever asks for it has to know."""
    monkeypatch.setattr(systemd, "SEND_TIMEOUT", 0.001)
    notifier = Notifier()
    sent = [
        notifier.trigger() for _ in range(int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text()) + 10)
    ]
    notifier.close()
    assert sent[0]
    assert not sent[-1]
    assert heard(manager) == "WATCHDOG=trigger"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # sdnotify leaves it open
@pytest.mark.parametrize("where", [None, "", "/nowhere/at/all"])
def test_without_systemd_nothing_happens(monkeypatch: pytest.MonkeyPatch, where: str | None) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if where is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", where)
    notifier = Notifier()
    notifier.ready()
    notifier.status("chat: idle")
    notifier.alive()
    notifier.reloading()
    notifier.stopping()
    assert not notifier.trigger()
    notifier.close()
