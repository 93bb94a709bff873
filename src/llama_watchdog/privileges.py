"""Capabilities that our service manager gave us, and which of the programs we start get them.

What belongs here is the kernel's ambient set: what every program started by us would inherit. It is emptied
at the start; one capability is raised again around the start of the one program that needs it. What we may do
ourselves stays as it is. Harmless where there is none, as for root, whose programs have its rights anyway.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

# <linux/prctl.h>
_PR_CAP_AMBIENT = 47
_IS_SET, _RAISE, _LOWER, _CLEAR_ALL = 1, 2, 3, 4
# <linux/capability.h>: those that a rung or a piece of evidence needs a program for
CAPABILITIES = {"dac_read_search": 2, "kill": 5, "net_admin": 12, "sys_ptrace": 19}

_libc = ctypes.CDLL(None, use_errno=True)


def drop_ambient() -> bool:
    """Empty this thread's ambient set; threads and programs started from then on inherit an empty one.

    To be called before anything else is started. False where the kernel has no such set (before 4.3), and so
    nothing to inherit, or where a sandbox forbids the call.
    """
    return _ambient(_CLEAR_ALL) == 0


def lower_ours() -> None:
    """As `drop_ambient`, but of the capabilities that are meant for us only.

    For a watchdog that starts the server: what its unit gives beyond is the server's, as CAP_IPC_LOCK is.
    """
    for number in CAPABILITIES.values():
        _ambient(_LOWER, number)


@contextmanager
def ambient(*capabilities: str) -> Iterator[bool]:
    """Within this, programs started by this thread inherit these `capabilities`, keys of CAPABILITIES.

    Yields whether all were raised; those that we have not been given are not, nor any for root, whose
    programs have them without. Whatever else this thread starts meanwhile inherits them as well: an `await`
    within needs a lock.
    """
    numbers = [CAPABILITIES[capability] for capability in capabilities]
    low = [number for number in numbers if _ambient(_IS_SET, number) != 1]
    raised = [number for number in low if _ambient(_RAISE, number) == 0]
    try:
        yield raised == low
    finally:
        for number in raised:
            _ambient(_LOWER, number)


def _ambient(what: int, number: int = 0) -> int:
    """The kernel's answer; -1 where it refuses."""
    unused = ctypes.c_ulong(0)
    return int(_libc.prctl(_PR_CAP_AMBIENT, ctypes.c_ulong(what), ctypes.c_ulong(number), unused, unused))
