"""Run a command under a pid of one's choice, as when the kernel has come round to it: `reborn.py PID CMD`.

The pid must be free, its former holder reaped. Needs root (clone3 with `set_tid`, Linux 5.5). Ends with the
command.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_SYS_CLONE3 = 435  # the same on every architecture


class _CloneArgs(ctypes.Structure):
    """struct clone_args of <linux/sched.h>."""

    _fields_ = (  # each of 64 bits
        *((name, ctypes.c_uint64) for name in ("flags", "pidfd", "child_tid", "parent_tid", "exit_signal")),
        *((name, ctypes.c_uint64) for name in ("stack", "stack_size", "tls")),
        *((name, ctypes.c_uint64) for name in ("set_tid", "set_tid_size", "cgroup")),
    )


def fork_as(pid: int) -> int:
    """As os.fork, but the child has that pid. Only for a process of one thread, whose child execs at once."""
    libc = ctypes.CDLL(None, use_errno=True)
    wanted = (ctypes.c_int * 1)(pid)
    arguments = _CloneArgs(exit_signal=signal.SIGCHLD, set_tid=ctypes.addressof(wanted), set_tid_size=1)
    result = libc.syscall(_SYS_CLONE3, ctypes.byref(arguments), ctypes.sizeof(arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"clone3 as {pid}: {os.strerror(error)}")
    return int(result)


if __name__ == "__main__":
    child = fork_as(int(sys.argv[1]))
    if child == 0:
        os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606  no shell is wanted here
    os.waitpid(child, 0)
