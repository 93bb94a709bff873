"""What systemd is told of the daemon itself: READY, STATUS, WATCHDOG, RELOADING, STOPPING.

Without systemd (no NOTIFY_SOCKET) every call does nothing.
"""

from __future__ import annotations

import time

import sdnotify  # type: ignore[import-untyped]  # it carries no types


class Notifier:
    """Speaks to the service manager that started us."""

    def __init__(self) -> None:
        self._socket = sdnotify.SystemdNotifier()
        self._status = ""

    def ready(self) -> None:
        """The first round is done, or a reload is."""
        self._socket.notify("READY=1")

    def status(self, line: str) -> None:
        """One readable line for `systemctl status`; sent only when it changes."""
        if line != self._status:
            self._status = line
            self._socket.notify(f"STATUS={line}")

    def alive(self) -> None:
        """A round has been completed: nothing less keeps systemd's own watchdog quiet."""
        self._socket.notify("WATCHDOG=1")

    def reloading(self) -> None:
        """A reload begins. MONOTONIC_USEC lets systemd tell this one from an earlier one."""
        self._socket.notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """We end, on purpose."""
        self._socket.notify("STOPPING=1")
