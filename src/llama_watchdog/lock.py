"""One watchdog a server: who may act on it.

What belongs here is the lock alone. It is a name in the kernel's abstract socket namespace: gone with its
holder, however that ends, the same for every user and state directory, and found by whoever shares the
server's network namespace, and so its port. Of two watchdogs in different ones neither sees the other.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from pathlib import Path

_PREFIX = "\0llama-watchdog: "
_NAME_BYTES = 107  # sun_path less a byte, unix(7)


class TargetLock:
    """The lock on one target, such as "127.0.0.1 port 8080"."""

    def __init__(self, target: str) -> None:
        self._address = _address(target)
        self._socket: socket.socket | None = None
        self._told = ""

    @property
    def held(self) -> bool:
        """Whether it is ours."""
        return self._socket is not None

    def take(self) -> str:
        """Take it, unless it is ours already. "": it is ours; else who has it, for people."""
        if self._socket is not None:
            return ""
        taken = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            taken.bind(self._address)
            taken.listen(8)
        except OSError:
            taken.close()
            # Asked once: nobody accepts these connections, and only so many fit into its queue.
            self._told = self._told or _described(self._address)
            return self._told
        self._socket, self._told = taken, ""
        return ""

    def release(self) -> None:
        """Let another one have it."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def holder(target: str) -> int | None:
    """The pid of the watchdog that has the lock on this target; None: none has."""
    found = _listener(_address(target))
    return None if found is None else found[0]


def _address(target: str) -> bytes:
    return (_PREFIX + target).encode()[:_NAME_BYTES]


def _listener(address: bytes) -> tuple[int, int] | None:
    """The pid and uid of who listens at an abstract address, if anybody does."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        asking.connect(address)
        pid, uid, _ = struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return pid, uid
    return None


def _described(address: bytes) -> str:
    found = _listener(address)
    if found is None:
        return "another process"
    name = "a process"
    with contextlib.suppress(OSError):
        name = Path(f"/proc/{found[0]}/comm").read_text(encoding="utf-8", errors="replace").strip()
    return f"{name} (pid {found[0]}, uid {found[1]})"
