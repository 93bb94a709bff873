"""One watchdog a server: who may act on it.

What belongs here is the lock alone. It is a name in the kernel's abstract socket namespace: gone with its
holder, however that ends, the same for every user and state directory, and found by whoever shares the
server's network namespace, and so its port. Of two watchdogs in different ones neither sees the other.

Any user may take such a name. So of its holders only root, services and our own user are believed to be
watchdogs: whoever just has an account can't disarm one.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from pathlib import Path
from typing import NamedTuple

_PREFIX = "\0llama-watchdog: "
_NAME_BYTES = 107  # sun_path less a byte, unix(7)
_FIRST_ACCOUNT = 1000  # of a person: UID_MIN of login.defs(5); below it are root and services


class Holder(NamedTuple):
    """Who has a lock. `pid` as our pid namespace has it, 0 where it is of another one."""

    pid: int
    uid: int

    @property
    def believed(self) -> bool:
        """Whether it can be a watchdog that we have to give way to."""
        return self.uid < _FIRST_ACCOUNT or self.uid == os.geteuid()

    def __str__(self) -> str:
        name = "a process"
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{self.pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
        return f"{name} (pid {self.pid}, uid {self.uid})"


_UNKNOWN = Holder(0, 1 << 32)  # nobody's uid


class TargetLock:
    """The lock on one target, such as "127.0.0.1 port 8080"."""

    def __init__(self, target: str) -> None:
        self._address = _address(target)
        self._socket: socket.socket | None = None
        self._holder: Holder | None = None
        self.stranger: Holder | None = None  # has taken the name, and is not believed

    @property
    def held(self) -> bool:
        """Whether we may act: it is ours, or only a stranger's."""
        return self._socket is not None or self.stranger is not None

    def take(self) -> str:
        """Take it, or keep it. "": we may act; else who may, for people. For each round of a watch."""
        if self._socket is not None:
            _make_room(self._socket)
            return ""
        taken = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        taken.setblocking(False)
        try:
            taken.bind(self._address)
            taken.listen(8)
        except OSError:
            taken.close()
            return self._give_way()
        self._socket, self._holder, self.stranger = taken, None, None
        return ""

    def _give_way(self) -> str:
        # One that doesn't tell has not made room for a while, as a watchdog that works does.
        self._holder = _listener(self._address) or self._holder or _UNKNOWN
        self.stranger = None if self._holder.believed else self._holder
        return "" if self.stranger is not None else str(self._holder)

    def release(self) -> None:
        """Let another one have it."""
        self.stranger = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def holder(target: str) -> Holder | None:
    """The watchdog that has the lock on this target; None: none has."""
    found = _listener(_address(target))
    return found if found is not None and found.believed else None


def _make_room(listening: socket.socket) -> None:
    """Let go of those who have asked who we are: only so many fit into the queue."""
    with contextlib.suppress(OSError):
        while True:
            listening.accept()[0].close()


def _address(target: str) -> bytes:
    return (_PREFIX + target).encode()[:_NAME_BYTES]


def _listener(address: bytes) -> Holder | None:
    """Who listens at an abstract address, if anybody does."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        asking.connect(address)
        pid, uid, _ = struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return Holder(pid, uid)
    return None
