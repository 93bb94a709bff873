"""Processes of their own for the tests of the store: to be killed, to have a full disk, to have no rights."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sqlite3
import sys
from itertools import count
from pathlib import Path

from llama_watchdog.core.pace import Learned
from llama_watchdog.store import Store


def say(line: object) -> None:
    print(line, flush=True)  # noqa: T201 - the parent reads it


async def loop_until_killed(directory: Path) -> None:
    store = Store(directory, say)
    for number in count():
        await store.remember("chat", {"rung": number})
        say(number)


async def die_in_a_transaction(directory: Path) -> None:
    store = Store(directory, say)
    await store.remember("chat", {"rung": 1})

    def write(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA cache_size = 1")  # pages reach the file long before the commit
        connection.execute("DELETE FROM kept")
        for number in range(1000):
            connection.execute("INSERT INTO kept VALUES ('pace', ?, '{}', '')", (str(number),))
        os.kill(os.getpid(), signal.SIGKILL)

    await store._keeper.run(write, write=True)


async def fill_the_disk(directory: Path) -> None:
    """A limit on the size of files is met at the same write as a full disk."""
    store = Store(directory, lambda line: say(f"said: {line}"))
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    say(await store.remember("chat", {"rung": 1}))
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, most))
    say(await store.remember("chat", {"rung": 2}))
    say(await store.remember("chat", {"rung": 3}))
    say(await store.standing("chat"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    await store.catch_up()
    os._exit(0)  # nothing more is written at the end


def allow_writing(directory: Path) -> None:
    directory.chmod(0o700)
    for file in directory.iterdir():
        file.chmod(0o600)


async def write_where_it_may_not(directory: Path) -> None:
    store = Store(directory, lambda line: say(f"said: {line}"))
    say(await store.standing("chat"))
    say(await store.remember("chat", {"rung": 8}))
    say(await store.pace("model") == Learned())  # that it can be read is no end of the outage
    say(await store.remember("chat", {"rung": 9}))
    allow_writing(directory)
    say(await store.remember("chat", {"rung": 10}))
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(globals()[sys.argv[1]](Path(sys.argv[2])))
