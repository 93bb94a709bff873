"""What is left of a server whose process has ended: processes of its tree, and a taken port.

What belongs here is telling the dead server's own from strangers: whatever is named here may be killed.
"""

from __future__ import annotations

import contextlib
import os

from llama_watchdog.core.action import Identity
from llama_watchdog.core.observation import Left
from llama_watchdog.probes import finding
from llama_watchdog.probes.finding import Door, Found, Group
from llama_watchdog.probes.procfs import ProcessFolder, pids


def of(ended: Found, group: Group | None, door: Door) -> Left:
    """Of the session that it led, of its socket or of its cgroup.

    Reads every process of the machine, so only for while a server is down.
    """
    processes = []
    session = None if _is_reused(ended.identity) else ended.identity.pid
    for pid in pids():
        with contextlib.suppress(ProcessLookupError), ProcessFolder(pid) as folder:
            stat = folder.stat()
            if stat.state in "ZX" or pid == os.getpid():
                continue
            if stat.session == session or _is_of(pid, folder, ended, group):
                processes.append(Identity(pid, stat.start_ticks))
    return Left(tuple(processes), port=_holder(door))


def _is_reused(ended: Identity) -> bool:
    """Whether its pid is another process's now. None gets it while anybody is left of the session it led."""
    try:
        with ProcessFolder(ended.pid) as folder:
            return folder.stat().start_ticks != ended.start_ticks
    except ProcessLookupError:
        return False


def _is_of(pid: int, folder: ProcessFolder, ended: Found, group: Group | None) -> bool:
    """With its listening socket open, or in a cgroup without a main process."""
    if group is not None and group.path is not None and group.main_pid is None and finding.inside(pid, group):
        return True
    return bool(ended.sockets and (folder.sockets() or frozenset()) & ended.sockets)


def _holder(door: Door) -> str:
    """Who listens at the url although the server has ended, for people; "": nobody."""
    if not door.listening:
        return ""
    holder = finding.holder(door.listening)
    return "a process that we may not look into" if holder is None else finding.describe(holder)
