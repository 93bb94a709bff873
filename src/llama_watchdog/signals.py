"""Signals to exactly one incarnation of a server, and to the processes that descend from it.

Each goes through a pidfd that is opened first and checked afterwards: a pid that was reused in the meantime
can't be hit, since the start time read then is of whatever holds the pid from the opening on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from llama_watchdog.core.action import Done, Identity, Result

_PASSES = 5  # each finds what was forked during the one before: with everything killed, two are enough


async def signal_tree(identity: Identity, sig: signal.Signals) -> Result:
    """Send `sig` to this one process; SIGKILL to everything that descends from it, too.

    DONE says that the signal was sent, or that there is nobody left to get it; not that anything has ended.
    """
    tree = _Tree(identity)
    # Before the kill: once the main process is dead, its children can no longer be told by their parent.
    seen = tree.grow() if sig is signal.SIGKILL else []
    try:
        _send(identity, sig)
    except ProcessLookupError:
        return Result(Done.DONE, f"pid {identity.pid} is already gone")
    except _StrangerError:
        return Result(Done.FAILED, f"pid {identity.pid} is another process now: not signalled")
    except PermissionError:
        return Result(
            Done.UNSUPPORTED,
            f"no right to signal pid {identity.pid}: needs root, CAP_KILL, or a unit for systemd to signal",
        )
    except OSError as error:
        return Result(
            Done.UNSUPPORTED, f"no pidfd for pid {identity.pid} (Linux 5.3 or newer): {error.strerror}"
        )
    sent = f"sent {sig.name} to pid {identity.pid}"
    if sig is not signal.SIGKILL:
        return Result(Done.DONE, sent)
    killed, spared = _kill_descendants(tree, seen)
    if killed:
        sent += f" and {killed} descendant{'s' if killed > 1 else ''}"
    if spared:
        return Result(
            Done.FAILED, f"{sent}, but not to pid {', '.join(map(str, spared))}: needs root or CAP_KILL"
        )
    return Result(Done.DONE, sent)


async def kill_each(members: Sequence[Identity]) -> Result:
    """SIGKILL to what a server that has ended has left: these processes, and whatever descends from them."""
    killed, spared = 0, []
    for member in members:
        if identify(member.pid) != member:  # gone: its pid, and so its session's number, may be a stranger's
            continue
        more, denied = _kill_descendants(_Tree(member), [member])
        killed += more
        spared += denied
    text = f"sent SIGKILL to {killed} process{'es' if killed != 1 else ''} that the server has left"
    if not spared:
        return Result(Done.DONE, text)
    pids = ", ".join(map(str, spared))
    return Result(
        Done.FAILED if killed else Done.UNSUPPORTED, f"{text}, but not to pid {pids}: needs root or CAP_KILL"
    )


async def ended(identity: Identity) -> bool:
    """Whether this process has ended, all its threads included; reaped by its parent or not (state Z).

    A main thread in state Z whose other threads are still stuck in the kernel has not ended. Raises OSError
    where the kernel has no pidfds.
    """
    with _opened(identity) as pidfd:
        return pidfd is None or _exited(pidfd)


async def wait_ended(identity: Identity, timeout: float) -> bool:  # noqa: ASYNC109 - it is the answer, no error
    """Wait up to `timeout` seconds for this process to end; whether it has. Raises as `ended`."""
    with _opened(identity) as pidfd:
        if pidfd is None:
            return True
        loop = asyncio.get_running_loop()
        exited = asyncio.Event()
        loop.add_reader(pidfd, exited.set)
        try:
            async with asyncio.timeout(timeout):
                await exited.wait()
        except TimeoutError:
            return _exited(pidfd)
        finally:
            loop.remove_reader(pidfd)
        return True


def descendants(identity: Identity) -> list[Identity]:
    """Its children, theirs and so on; never the calling process itself.

    Where it leads its session, as what systemd starts does, its orphans are among them, also when it has
    ended itself: the session's number is nobody else's for as long as anyone is in it. None where its pid is
    another's.
    """
    return _Tree(identity).grow() if identify(identity.pid) in (identity, None) else []


def identify(pid: int) -> Identity | None:
    """The process that has this pid now; None where there is none."""
    stat = _stat(pid)
    return None if stat is None else stat.identity


class _StrangerError(Exception):
    """The pid belongs to another process now."""


def _send(identity: Identity, sig: signal.Signals) -> None:
    """Raises ProcessLookupError where it has ended, _StrangerError, PermissionError; OSError: no pidfds."""
    pidfd = os.pidfd_open(identity.pid)
    try:
        stat = _stat(identity.pid)
        if stat is None or _exited(pidfd):
            raise ProcessLookupError
        if stat.identity != identity:
            raise _StrangerError
        signal.pidfd_send_signal(pidfd, sig)
    finally:
        os.close(pidfd)


@contextlib.contextmanager
def _opened(identity: Identity) -> Iterator[int | None]:
    """A pidfd of this process; None where the process is gone, and where its pid is another's."""
    try:
        pidfd = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        yield None
        return
    try:
        stat = _stat(identity.pid)
        yield pidfd if stat is not None and stat.identity == identity else None
    finally:
        os.close(pidfd)


def _exited(pidfd: int) -> bool:
    """A pidfd is readable from the moment the last thread of its process is dead."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def _kill_descendants(tree: _Tree, seen: list[Identity]) -> tuple[int, list[int]]:
    """Kill `seen`, and what the tree has grown meanwhile: how many, and the pids that were denied to us."""
    killed = 0
    spared = []
    for _ in range(_PASSES):
        for member in seen:
            try:
                _send(member, signal.SIGKILL)
                killed += 1
            except (ProcessLookupError, _StrangerError):
                continue
            except PermissionError:
                spared.append(member.pid)
        seen = tree.grow()
        if not seen:
            break
    return killed, spared


class _Stat(NamedTuple):
    """What /proc/PID/stat tells of kinship."""

    identity: Identity
    parent: int
    session: int


def _stat(pid: int) -> _Stat | None:
    """None where there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # the last: of others, with hidepid=1
        return None
    fields = text.rpartition(")")[2].split()  # from field 3 on; the name before it may hold anything
    return _Stat(Identity(pid, int(fields[19])), parent=int(fields[1]), session=int(fields[3]))


class _Tree:
    """The descendants of one process as far as they have been seen, orphans included.

    A parent that dies leaves its children to init or a subreaper. But a session is inherited only, and its
    number, the pid of its leader, is nobody else's while it lasts: whoever is in it descends from its leader.
    """

    def __init__(self, root: Identity) -> None:
        self._known = {root}

    def grow(self) -> list[Identity]:
        """Look at every process of the machine once more; who is new in the tree."""
        pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
        stats = {pid: stat for pid in pids if (stat := _stat(pid)) is not None}
        grown: list[Identity] = []
        while True:
            sessions = {known.pid for known in self._known}
            new = [
                stat.identity
                for stat in stats.values()
                if stat.identity not in self._known
                and stat.identity.pid != os.getpid()
                and (stat.session in sessions or self._knows(stats.get(stat.parent)))
            ]
            if not new:
                return grown
            grown += new
            self._known.update(new)

    def _knows(self, parent: _Stat | None) -> bool:
        return parent is not None and parent.identity in self._known
