"""What systemd is told of the daemon itself: READY, STATUS, WATCHDOG, RELOADING, STOPPING, and for how long.

Without systemd (no NOTIFY_SOCKET) every call does nothing. A daemon within the unit of another service is
`Silent`, and has one request for it: `trigger`.
"""

from __future__ import annotations

import os
import time

import sdnotify  # type: ignore[import-untyped]  # it carries no types

SEND_TIMEOUT = 0.1  # seconds


class Notifier:
    """Speaks to the service manager that started us."""

    def __init__(self) -> None:
        self._systemd = sdnotify.SystemdNotifier() if os.environ.get("NOTIFY_SOCKET") else None
        if self._systemd is not None and self._systemd.socket is not None:
            # A manager that does not read its socket must not stop the watch; what it missed is told again.
            self._systemd.socket.settimeout(SEND_TIMEOUT)
        self._status = ""

    def ready(self) -> None:
        """The first round is done, or a reload is."""
        self._tell("READY=1")

    def status(self, line: str) -> None:
        """One readable line for `systemctl status`; sent only when it changes."""
        if line != self._status:
            self._status = line
            self._tell(f"STATUS={line}")

    def alive(self) -> None:
        """A round has been completed: nothing less keeps systemd's own watchdog quiet."""
        self._tell("WATCHDOG=1")

    def reloading(self) -> None:
        """A reload begins. MONOTONIC_USEC lets systemd tell this one from an earlier one."""
        self._tell(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def extend(self, seconds: float) -> None:
        """A start, reload or stop that is under way may take this long from now on."""
        self._tell(f"EXTEND_TIMEOUT_USEC={int(seconds * 1_000_000)}")

    def trigger(self) -> bool:
        """Have systemd kill the unit that we are in, by WatchdogSignal=, as if its own watchdog had run out.

        Whether it could be sent. Needs no WatchdogSec=, and NotifyAccess=all if we are not the main process.
        """
        if self._systemd is None or self._systemd.socket is None:
            return False
        try:
            self._systemd.socket.sendall(b"WATCHDOG=trigger")
        except OSError:
            return False
        return True

    def stopping(self) -> None:
        """We end, on purpose."""
        self._tell("STOPPING=1")

    def close(self) -> None:
        """Nothing more will be said."""
        if self._systemd is not None and self._systemd.socket is not None:
            self._systemd.socket.close()

    def _tell(self, words: str) -> None:
        if self._systemd is not None:
            # sdnotify writes Latin-1, and drops what that can't hold; systemd drops what is not UTF-8.
            self._systemd.notify(words.encode().decode("latin-1"))


class Silent(Notifier):
    """Says nothing: with NotifyAccess=all systemd would take our READY or STOPPING for the service's own."""

    def _tell(self, words: str) -> None:
        pass
