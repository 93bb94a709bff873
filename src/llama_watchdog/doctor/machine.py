"""What concerns no server in particular: programs, the state directory, the right to close connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
import socket
import sys
from collections.abc import Iterable
from pathlib import Path

from llama_watchdog import subprocesses
from llama_watchdog.actions import cancel
from llama_watchdog.core.action import Done, Result
from llama_watchdog.doctor import remedies
from llama_watchdog.doctor.finding import Finding, missing, ok, unknown
from llama_watchdog.doctor.together import together
from llama_watchdog.settings import ServerSettings
from llama_watchdog.worker import Worker

_DISK_SECONDS = 2.0
_TRIAL_SECONDS = 5.0
FILES = ("state.db", "wishes.db")  # as in store/

# A client of another process: `cancel` spares our own connections. It ends as soon as it is cut off.
_CLIENT = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5) as client:
    client.recv(1)
"""


def rights() -> list[Finding]:
    """As whom this looks, where that says nothing of the service."""
    if os.geteuid() != 0:
        return []
    run = "systemd-run --pipe --wait -p User=llama-watchdog -p AmbientCapabilities=CAP_NET_ADMIN"
    return [
        ok(
            "rights",
            "",
            "run as root, who may do everything; a service of another user says in its log what it lacks",
            f"{run} -p StateDirectory=llama-watchdog {Path(sys.argv[0]).absolute()} doctor",
        )
    ]


def tools(servers: Iterable[ServerSettings]) -> list[Finding]:
    """The programs that the configured servers need."""
    needed = {}
    for server in servers:
        if "cancel" in server.escalation.ladder:
            needed["ss"] = "apt install iproute2"
        if server.unit:
            needed["systemctl"] = "only a machine or container that systemd runs has units"
    found = []
    for name, remedy in needed.items():
        path = shutil.which(name)
        found.append(
            ok(name, "", path) if path is not None else missing(name, "", f"there is no {name} here", remedy)
        )
    return found


async def state(directory: Path) -> Finding:
    """Whether what outlives this program can be kept: looked at, nothing is written."""
    try:
        return await Worker("state").run(lambda: _state(directory), _DISK_SECONDS)
    except TimeoutError:
        return unknown("state", "", f"{directory}: the disk has not answered within {_DISK_SECONDS:g} s")
    except OSError as error:
        return _no_state(f"{directory}: {error.strerror}", directory)


def _state(directory: Path) -> Finding:
    there = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        return _no_state(f"{remedies.user()} may not write in {there}, which is {_owner(there)}'s", directory)
    if there != directory:
        return ok("state", "", f"{directory} is made at the start")
    for path in (directory / name for name in FILES):
        if path.exists() and not os.access(path, os.R_OK | os.W_OK):
            return _no_state(f"{remedies.user()} may not write {path}, which is {_owner(path)}'s", directory)
    return ok("state", "", f"{directory}, which is {_owner(directory)}'s, can be written")


def _no_state(why: str, directory: Path) -> Finding:
    if "INVOCATION_ID" in os.environ and "STATE_DIRECTORY" not in os.environ:
        remedy = remedies.own_unit("StateDirectory=llama-watchdog")
    elif directory.exists():
        remedy = f"chown -R {remedies.user()}: {directory}"
    else:
        remedy = f"install -d -o {remedies.user()} -m 750 {directory}"
    lost = "restarted, it would forget its incidents, the restarts it has spent and all it has learned"
    return missing("state", "", f"{why}: {lost}", remedy)


def _owner(path: Path) -> str:
    uid = path.stat().st_uid
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return f"uid {uid}"


async def _connected(listening: socket.socket) -> None:
    """Until somebody has connected. Not accepted: the kernel ends the connection along with the listener."""
    loop = asyncio.get_running_loop()
    waiting = asyncio.Event()
    loop.add_reader(listening, waiting.set)
    try:
        await waiting.wait()
    finally:
        loop.remove_reader(listening)


async def try_cancel() -> Result:
    """Close a connection as `cancel` does: one of a client of ours to a socket of ours."""
    client = [sys.executable, "-ISc", _CLIENT]
    try:
        async with together() as group:
            with socket.create_server(("127.0.0.1", 0)) as listening:
                listening.setblocking(False)
                port = listening.getsockname()[1]
                # Ends by itself once the socket is closed: cancelled twice it would not be reaped.
                group.create_task(subprocesses.run([*client, str(port)], timeout=_TRIAL_SECONDS))
                async with asyncio.timeout(_TRIAL_SECONDS):
                    await _connected(listening)
                return await cancel.close_clients(port, timeout=_TRIAL_SECONDS)
    except TimeoutError:
        return Result(Done.FAILED, "no connection of our own could be made to try it on")
    except OSError as error:
        return Result(Done.FAILED, f"no connection of our own could be made: {error.strerror}")
