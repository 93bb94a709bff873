"""Which process is the server: the llama-server that listens where the url points, run by its supervisor.

What belongs here is telling the server from wrappers, proxies and other strangers. Judged by a stranger's
stillness a server in the middle of its work would be killed, so where it can't be told there is no process.

    at the url's end           | the server is
    ---------------------------+--------------------------------------------------------------------------
    a listener, holder seen    | that holder, if it is a llama-server, and the supervisor's or of the pid file
    a listener, holders hidden | the one llama-server of the listener's user, of the supervisor or of
                               | the pid file; with neither, the one whose command line names the port
    nothing                    | the one llama-server of the supervisor or of the pid file that listens
                               | nowhere else: it loads, or downloads its model; with neither, none
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from llama_watchdog.core.action import Identity
from llama_watchdog.probes import cgroups, sockets, traits
from llama_watchdog.probes.place import Place
from llama_watchdog.probes.procfs import ProcessFolder, Stat, pids

_COMM_LENGTH = 15  # TASK_COMM_LEN less its NUL
_PID_FILE_BYTES = 64
_GENERATIONS = 64  # between a supervisor's child and the server there may be wrappers


class NotFoundError(Exception):
    """Why there is no process to be told, in one line for people."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the settings say of the server's process. `pid_file` and `supervisor` narrow it down."""

    place: Place
    process_name: str
    supervisor: str | None = None  # its name, for people
    pid_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """What the supervisor says of its server now: the cgroup, and the main process to choose among several.

    Without a cgroup of their own they are the tree below the main process.
    """

    path: str | None
    main_pid: int | None = None


@dataclass(frozen=True, slots=True)
class Door:
    """What the url's end looks like now. `listening` None: the socket tables can't be read."""

    listening: frozenset[int] | None  # inodes of the listening sockets
    users: frozenset[int] = frozenset()  # the uids that opened them
    clients: int | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """The server, and the listening sockets by which it was found: none while it doesn't listen yet."""

    identity: Identity
    sockets: frozenset[int]


@dataclass(frozen=True, slots=True)
class _Candidate:
    pid: int
    stat: Stat


def look_at_door(place: Place, addresses: frozenset[bytes]) -> Door:
    """Who listens at the url's end, and how many are connected to it."""
    if place.path is not None:
        return Door(sockets.unix_listeners(place.path))
    table = sockets.tcp(port=place.port)
    if table is None:
        return Door(None)
    serving = sockets.listeners(table, addresses)
    return Door(
        frozenset(entry.inode for entry in serving),
        frozenset(entry.uid for entry in serving),
        sockets.clients(table, serving) if serving else None,
    )


def find(wanted: Wanted, door: Door, group: Group | None) -> Found:
    """The server's process. Raises NotFoundError with the reason where there is none, or several."""
    narrowed = bool(wanted.supervisor or wanted.pid_file)
    if door.listening is not None and not door.listening and not narrowed:
        raise NotFoundError(f"nothing listens on {wanted.place}")
    candidates = [c for c in _candidates(wanted) if _belongs(c.pid, wanted, group)]
    hidden = [c for c in candidates if wanted.supervisor and _has_own_network(c.pid)]
    if hidden:
        chosen = hidden  # as in a container: what listens here is the engine's proxy, and no rival
    elif door.listening:
        holding = {c.pid: _holds(c.pid, door.listening) for c in candidates}
        chosen = [c for c in candidates if holding[c.pid]]
        if not chosen:
            chosen = [c for c in candidates if holding[c.pid] is None and _fits(c.pid, wanted, door)]
    else:
        chosen = [c for c in candidates if not _listens_elsewhere(c.pid, wanted)]
    server = _one_of(chosen, group)
    if server is not None:
        return Found(Identity(server.pid, server.stat.start_ticks), door.listening or frozenset())
    if chosen:
        names = ", ".join(str(c.pid) for c in chosen)
        raise NotFoundError(f"{len(chosen)} {wanted.process_name} processes could be it: {names}")
    raise NotFoundError(_why_none(wanted, door, candidates))


def describe(pid: int) -> str:
    """A process for people: "nginx (pid 12)"."""
    try:
        with ProcessFolder(pid) as folder:
            return f"{folder.stat().comm} (pid {pid})"
    except ProcessLookupError:
        return f"a process that has ended (pid {pid})"


def _candidates(wanted: Wanted) -> list[_Candidate]:
    """Every living llama-server, or that of the pid file."""
    if wanted.pid_file is None:
        found = (_candidate(pid, wanted.process_name) for pid in pids())
        return [candidate for candidate in found if candidate is not None]
    try:
        with wanted.pid_file.open("rb") as file:
            words = file.read(_PID_FILE_BYTES).split()
    except OSError as error:
        raise NotFoundError(f"{wanted.pid_file}: {error.strerror}") from error
    if not words or not words[0].isdigit():
        raise NotFoundError(f"{wanted.pid_file} holds no pid")
    pid = int(words[0])
    candidate = _candidate(pid, wanted.process_name)
    if candidate is None:
        raise NotFoundError(f"{wanted.pid_file} names {describe(pid)}, not {wanted.process_name}")
    return [candidate]


def _candidate(pid: int, name: str) -> _Candidate | None:
    try:
        with ProcessFolder(pid) as folder:
            stat = folder.stat()
            if stat.state in "ZX" or not _is_named(folder, stat.comm, name):
                return None
            return _Candidate(pid, stat)
    except ProcessLookupError:
        return None


def _is_named(folder: ProcessFolder, comm: str, name: str) -> bool:
    """By its executable, or by the name of its main thread. A script has the latter too, and is no server."""
    if folder.program() == name:
        return True
    if comm != name[:_COMM_LENGTH]:
        return False
    interpreter, *rest = folder.arguments() or ("",)
    first = next((argument for argument in rest if not argument.startswith("-")), "")
    return interpreter.rpartition("/")[2] == name or first.rpartition("/")[2] != name


def _belongs(pid: int, wanted: Wanted, group: Group | None) -> bool:
    """Whether its supervisor runs it, where one is given."""
    return wanted.supervisor is None or (group is not None and inside(pid, group))


def inside(pid: int, group: Group) -> bool:
    """Whether a process belongs to what the supervisor runs."""
    try:
        if group.path is not None:
            with ProcessFolder(pid) as folder:
                return cgroups.inside(folder.read("cgroup") or b"", group.path)
        for _ in range(_GENERATIONS):
            if pid == group.main_pid:
                return True
            with ProcessFolder(pid) as folder:
                pid = folder.stat().parent
    except ProcessLookupError:
        pass
    return False


def _has_own_network(pid: int) -> bool:
    """Whether its ports are others than ours; where we may not know, they are taken for ours."""
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino != Path("/proc/self/ns/net").stat().st_ino
    except OSError:
        return False


def _holds(pid: int, listening: frozenset[int]) -> bool | None:
    """Whether it has one of these sockets open; None without the right to know."""
    try:
        with ProcessFolder(pid) as folder:
            held = folder.sockets()
    except ProcessLookupError:
        return False
    return None if held is None else bool(held & listening)


def _fits(pid: int, wanted: Wanted, door: Door) -> bool:
    """Whether what anyone may read speaks for it: the socket's user, and the port of its command line."""
    try:
        with ProcessFolder(pid) as folder:
            if door.users and not door.users & folder.users():
                return False
            port = traits.stated_port(folder)
    except ProcessLookupError:
        return False
    if wanted.supervisor or wanted.pid_file:  # an environment that we may not read can give it any port
        return port in (None, wanted.place.port) or wanted.place.path is not None
    return wanted.place.port in (traits.DEFAULT_PORTS if port is None else {port})


def _listens_elsewhere(pid: int, wanted: Wanted) -> bool:
    """Whether it serves somewhere else than at the url's end, so that it isn't just loading."""
    table = sockets.tcp()
    inodes = frozenset(entry.inode for entry in table or ())
    held = _holds(pid, inodes) if table is not None else None
    return held if held is not None else not _fits(pid, wanted, Door(None))


def _one_of(chosen: list[_Candidate], group: Group | None) -> _Candidate | None:
    """The parent of the others, its forks or a router's children; else the supervisor's main process."""
    inner = {c.pid for c in chosen}
    roots = [c for c in chosen if c.stat.parent not in inner]
    if len(roots) > 1 and group is not None:
        roots = [c for c in roots if c.pid == group.main_pid]
    return roots[0] if len(roots) == 1 else None


def _why_none(wanted: Wanted, door: Door, candidates: list[_Candidate]) -> str:
    sought = wanted.process_name
    if wanted.supervisor:
        sought += f" of {wanted.supervisor}"
    elif wanted.pid_file:
        sought += f" of {wanted.pid_file}"
    if door.listening:
        found = holder(door.listening)
        who = "a process that we may not look into" if found is None else describe(found)
        return f"{wanted.place} is served by {who}, not by {sought}"
    if candidates:
        return f"{describe(candidates[0].pid)} does not listen on {wanted.place}"
    return f"there is no {sought}"


@functools.lru_cache(maxsize=64)
def holder(listening: frozenset[int]) -> int | None:
    """The first process that has one of these sockets open, as far as we may see.

    Kept, since it reads every process's open files and is only for people: a socket seldom changes hands.
    """
    return min((pid for pid in pids() if _holds(pid, listening)), default=None)
