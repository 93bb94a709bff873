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
        self._address = (_PREFIX + target).encode()[:_NAME_BYTES]
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
            self._told = self._told or holder_of(self._address)
            return self._told
        self._socket, self._told = taken, ""
        return ""

    def release(self) -> None:
        """Let another one have it."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def is_watched(target: str) -> bool:
    """Whether a watchdog has the lock on this target."""
    lock = TargetLock(target)
    free = lock.take() == ""
    lock.release()
    return not free


def holder_of(address: bytes) -> str:
    """Who listens at an abstract address, for people."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        asking.connect(address)
        pid, uid, _ = struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        name = "a process"
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
        return f"{name} (pid {pid}, uid {uid})"
    return "another process"
