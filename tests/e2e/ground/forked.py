"""Fork a running llama-server, its files unchanged: a child that keeps the listening socket, and lives on.

As a server that aborts forks one for its backtrace. SIGTERM does not end it: the server's own handler, which
the child inherits, only asks a main loop to end. How a main thread is made to do what it never would is in
`wedge.py`; this one forks, and goes on as if nothing had been. Linux on x86-64, as root.
"""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

from tests.e2e.ground import wedge
from tests.e2e.ground.testbed import Testbed

_CONT = 7  # <sys/ptrace.h>
_RAX = 10  # its index in struct user_regs_struct of <sys/user.h>
_CODE = (
    b"\xb8\x39\x00\x00\x00\x0f\x05"  # mov eax, 57 (fork); syscall
    b"\x85\xc0\x74\x01\xcc"  # test eax, eax; jz over the next; int3, at which the parent is taken back
    + wedge.LOOPS["block"]
)


def fork(pid: int) -> int:
    """Let the process `pid` fork; the child's pid, as the process itself sees it.

    Its one thread sleeps for ever. OSError where ptrace is not allowed.
    """
    address = wedge.entry_point(pid)
    before = wedge.stop_within(pid, "")
    with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
        memory.seek(address)
        memory.write(_CODE)
    sent = type(before).from_buffer_copy(before)
    sent[wedge.RIP] = address
    sent[wedge.ORIG_RAX] = 2**64 - 1  # -1: nothing to be restarted in the meantime
    wedge.ptrace(wedge.SETREGS, pid, sent)
    wedge.ptrace(_CONT, pid)
    _, status = os.waitpid(pid, wedge.WALL)
    if not os.WIFSTOPPED(status) or os.WSTOPSIG(status) != signal.SIGTRAP:
        raise RuntimeError(f"{pid} was stopped by something else: {status:#x}")
    after = (ctypes.c_ulonglong * wedge.REGISTERS)()
    wedge.ptrace(wedge.GETREGS, pid, after)
    wedge.ptrace(wedge.SETREGS, pid, before)  # a system call that was interrupted begins again
    wedge.ptrace(wedge.DETACH, pid)
    os.kill(pid, signal.SIGCONT)
    return ctypes.c_longlong(after[_RAX]).value


def seen_outside(testbed: Testbed, unit: str, pid: int) -> int:
    """The pid by which this machine knows a process of that unit, which has `pid` inside."""
    for line in (testbed.cgroup / "system.slice" / unit / "cgroup.procs").read_text().splitlines():
        status = Path(f"/proc/{line}/status").read_text()
        if next(row for row in status.splitlines() if row.startswith("NSpid:")).split()[-1] == str(pid):
            return int(line)
    raise ProcessLookupError(f"{pid} is not in {unit}")
