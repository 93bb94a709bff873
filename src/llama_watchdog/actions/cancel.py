"""Cancelling what a server is busy with, as a client's own "stop" does: by closing the clients' connections.

What `ss -K` says of itself, with iproute2 6.1 and 7.3: its exit status is 0 whatever comes of it. It prints
the connections it closed, and "SOCK_DESTROY answers: Operation not permitted" on the error output where it
may not. On a kernel that can't close connections it prints nothing, and where it has to read /proc/net/tcp
it prints connections that it did not close. So only another look tells what is closed.
"""

from __future__ import annotations

import asyncio
import os
from typing import NamedTuple

from llama_watchdog import subprocesses
from llama_watchdog.core.action import Done, Result

_KEEP = 1024 * 1024  # some ten thousand connections


class _Connection(NamedTuple):
    """Both ends of one connection, as `ss` prints them: the server's first."""

    local: str
    peer: str


async def close_clients(port: int, *, timeout: float = 5.0) -> Result:  # noqa: ASYNC109 - what is bounded is ss
    """Close every established connection to `port` on this machine except this process's own.

    A streaming request ends with it at once, one without streaming up to a second later, and none inside a
    stuck decode. Takes at most `timeout` seconds. UNSUPPORTED where nothing was closed, with what would help.
    """
    try:
        async with asyncio.timeout(timeout):
            return await _close_clients(port, timeout)
    except TimeoutError:
        return Result(Done.FAILED, f"ss did not answer within {timeout:g} s")
    except FileNotFoundError:
        return Result(Done.UNSUPPORTED, "there is no ss to close connections with: install iproute2")
    except OSError as error:
        return Result(Done.UNSUPPORTED, f"ss can't be run: {error.strerror}")


async def _close_clients(port: int, seconds: float) -> Result:
    listing = await _ss("-Hntp", f"( sport = :{port} or dport = :{port} )", seconds)
    if listing.code != 0:
        return _refused(listing)
    own = _own_ports(listing.out, port)
    clients = {client for client in _to(port, listing.out) if _port(client.peer) not in own}
    if not clients:
        return Result(Done.UNSUPPORTED, f"no client is connected to port {port}")
    others = "".join(f" and dport != :{own_port}" for own_port in sorted(own))
    closing = await _ss("-HntK", f"( sport = :{port}{others} )", seconds)
    if "not permitted" in closing.err:
        return Result(
            Done.UNSUPPORTED,
            "closing connections needs CAP_NET_ADMIN: llama-watchdog doctor says how to get it",
        )
    if closing.err.strip():
        return _refused(closing)
    closed = clients - _to(port, (await _ss("-Hnt", f"( sport = :{port} )", seconds)).out)
    if not closed:
        return Result(
            Done.UNSUPPORTED,
            "this kernel closes no connections from outside: it needs CONFIG_INET_DIAG_DESTROY",
        )
    return Result(Done.DONE, f"closed {len(closed)} connection{'s' if len(closed) > 1 else ''}")


async def _ss(flags: str, which: str, seconds: float) -> subprocesses.Finished:
    argv = ["ss", flags, "state", "established", which]
    return await subprocesses.run(argv, timeout=seconds, keep=_KEEP, capability="net_admin")


def _refused(finished: subprocesses.Finished) -> Result:
    """Such as by an iproute2 before 4.5, which knows no -K."""
    said = finished.err.strip().splitlines() or [f"exit status {finished.code}"]
    return Result(Done.UNSUPPORTED, f"ss closes no connections here: {said[0][:200]}")


def _connections(listing: str) -> list[tuple[_Connection, str]]:
    """The connections of a listing without header and state column, each with who holds it, if that is told.

    A line whose beginning was lost to the bound on output is left out.
    """
    lines = [line.split(maxsplit=4) for line in listing.splitlines()]
    return [(_Connection(*line[2:4]), "".join(line[4:])) for line in lines if len(line) >= 4]


def _to(port: int, listing: str) -> set[_Connection]:
    return {connection for connection, _ in _connections(listing) if _port(connection.local) == port}


def _own_ports(listing: str, port: int) -> set[int]:
    """This process's own ends of connections to `port`: they are probes, and no clients."""
    own = f"pid={os.getpid()},"
    return {
        _port(connection.local)
        for connection, holders in _connections(listing)
        if own in holders and _port(connection.peer) == port
    }


def _port(address: str) -> int:
    number = address.rpartition(":")[2]
    return int(number) if number.isdecimal() else 0
