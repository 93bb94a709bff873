"""What a container expects of process 1: orphans are reaped, signals arrive, the exit status is passed on.

What belongs here is that much and no more: this process outlives every error of the rest, and it is started
before the rest is imported. Standard library only.

In a process of its own, since waiting for whatever has ended (waitpid(-1)) would take from asyncio the
statuses of its own children.
"""

from __future__ import annotations

import contextlib
import os
import signal

# What container engines and people send. SIGKILL and SIGSTOP from outside reach a process 1 without any help.
FORWARDED = frozenset(
    {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}
)


def split() -> int | None:
    """Go on as a child of an init: returns None there, and in the init, once the child has ended, its status.

    128 + n where signal n ended it. Whatever still runs by then is not waited for: with its process 1 a
    container ends. To be called before any thread is started. Raises OSError where no process can be made.
    """
    # As long as a signal is blocked it is kept, also for a pid 1, which without a handler would not get it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *FORWARDED})
    # Inherited as ignored, it would have the kernel reap, and no status be left.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child:
        return _attend(child)
    # A Ctrl-C at a container's terminal would otherwise come twice: from the terminal, and from the init.
    os.setsid()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return None


def _attend(child: int) -> int:
    while True:
        number = signal.sigwaitinfo({signal.SIGCHLD, *FORWARDED}).si_signo
        if number != signal.SIGCHLD:
            # Nobody else has got its pid: it is ours to reap, and was not yet.
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)
            continue
        status = _reap(child)
        if status is not None:
            return status


def _reap(child: int) -> int | None:
    """Reap whatever has ended, as one SIGCHLD may stand for many; the child's status if it is among them."""
    found = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
                found = code if code >= 0 else 128 - code
    return found
