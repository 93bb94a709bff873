"""Which boot this is, and the two clocks that a stored time is told by."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Now(NamedTuple):
    """`boottime`: seconds by CLOCK_BOOTTIME, which mean something within `boot` only; `wall`: seconds since
    1970 by the wall clock, which may jump."""

    boot: str
    boottime: float
    wall: float


def boot_id() -> str:
    """The kernel's name for this boot; empty where it can't be read, and then no two boots are the same."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def now() -> Now:
    """This moment, by both."""
    return Now(boot_id(), time.clock_gettime(time.CLOCK_BOOTTIME), time.time())
