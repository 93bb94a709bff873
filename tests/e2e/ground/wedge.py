"""Wedge a running llama-server for real, its files unchanged: `wedge.py PID block|spin [LIBRARY]`.

    block   its main loop sleeps for ever: state S, no CPU time
    spin    its main loop spins for ever: state R, one core at 100 %

The main thread is stopped by ptrace for a moment, a few bytes of endless loop are written over the program's
`_start` (which never runs again), the thread is sent there and let go. No tracer stays attached, and the
HTTP threads go on, so `/health` says ok. Whether `/slots` answers depends on the moment: within a decode it
goes on answering, with frozen counters (builds from b10429 on); anywhere else, and so on an idle server, it
never answers again. With LIBRARY, the moment is one at which the main thread runs code of that library, as of
`libggml` while it decodes. SIGTERM is ignored from then on: its handler only asks the main loop to end.

A script of its own that imports the standard library alone: it also runs by the Python of the tree. Linux on
x86-64, with the right to ptrace.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import signal
import struct
import sys
import time
from pathlib import Path
from typing import TypeAlias

# Where the main thread is while it decodes: at work, or waiting for its helpers, as it does most of the time
# on a crowded machine. A regular expression.
DECODE = "libggml|libgomp"
WITHIN = 20.0  # seconds in which it has to be seen there
LOOPS = {
    "block": b"\xb8\x22\x00\x00\x00\x0f\x05\xeb\xf7",  # mov eax, 34 (pause); syscall; jmp back
    "spin": b"\xeb\xfe",  # jmp self
}
# <sys/ptrace.h>, and the indices of two registers in struct user_regs_struct of <sys/user.h>
GETREGS, SETREGS, _ATTACH, DETACH = 12, 13, 16, 17
ORIG_RAX, RIP, REGISTERS = 15, 16, 27
WALL = 0x40000000  # waitpid: for any kind of child or tracee
_ET_EXEC = 2

Registers: TypeAlias = ctypes.Array[ctypes.c_ulonglong]

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def wedge(pid: int, mode: str, library: str = "") -> None:
    """Send the main thread of `pid` into the endless loop `mode`, from within `library` where one is named.

    OSError where ptrace is not allowed, TimeoutError where the thread was never seen in the library.
    """
    loop, address = LOOPS[mode], entry_point(pid)
    registers = stop_within(pid, library)
    with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
        memory.seek(address)
        memory.write(loop)
    registers[RIP] = address
    registers[ORIG_RAX] = 2**64 - 1  # -1: do not restart the system call that ptrace interrupted
    ptrace(SETREGS, pid, registers)
    ptrace(DETACH, pid)
    os.kill(pid, signal.SIGCONT)


def stop_within(pid: int, library: str) -> Registers:
    """Attach to the thread while it runs code of the library; its registers."""
    deadline = time.monotonic() + WITHIN
    while time.monotonic() < deadline:
        ptrace(_ATTACH, pid)
        os.waitpid(pid, WALL)
        registers = (ctypes.c_ulonglong * REGISTERS)()
        ptrace(GETREGS, pid, registers)
        if re.search(library, _mapped_at(pid, registers[RIP])):
            return registers
        ptrace(DETACH, pid)
        time.sleep(0.005)  # much of it, so that being looked at does not keep it from its work
    raise TimeoutError(f"{pid} was never seen in {library}")


def _mapped_at(pid: int, address: int) -> str:
    """The file whose code is at that address; "" where none is."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        begin, end = (int(part, 16) for part in line.split(maxsplit=1)[0].split("-"))
        if begin <= address < end:
            return "".join(line.split(maxsplit=5)[5:])
    return ""


def ptrace(request: int, tid: int, data: Registers | None = None) -> None:
    if _libc.ptrace(request, tid, None, data) == -1:
        error = ctypes.get_errno()
        raise OSError(error, f"ptrace({request}) on {tid}: {os.strerror(error)}")


def entry_point(pid: int) -> int:
    """Address of the executable's `_start` in the running process."""
    exe = Path(f"/proc/{pid}/exe")
    with exe.open("rb") as file:
        header = file.read(64)
    (kind,) = struct.unpack_from("<H", header, 16)
    (entry,) = struct.unpack_from("<Q", header, 24)
    if kind == _ET_EXEC:  # not relocated
        return int(entry)
    maps, name = Path(f"/proc/{pid}/maps").read_text().splitlines(), str(exe.readlink())
    return min(int(line.split("-")[0], 16) for line in maps if line.endswith(name)) + int(entry)


if __name__ == "__main__":
    if platform.machine() != "x86_64" or sys.argv[2:3] not in (["block"], ["spin"]):
        sys.exit("usage, on x86-64: wedge.py PID block|spin [LIBRARY]")
    wedge(int(sys.argv[1]), *sys.argv[2:4])
