"""Whatever the disk does, the watchdog goes on with its memory, says so once, and says when it is over."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llama_watchdog.core.pace import Learned
from llama_watchdog.store import Remembered, Store

PACE = Learned(prefill=90.0, prefill_depth=3501)
OLD, NEW = {"rung": 1}, {"rung": 2}


@contextlib.contextmanager
def other_process(directory: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(directory / "state.db", isolation_level=None)
    yield connection
    connection.close()


async def found_by_the_next_process(directory: Path, key: str = "chat") -> dict[str, Any] | None:
    said: list[str] = []
    store = Store(directory, said.append)
    found = await store.standing(key)
    await store.close()
    assert said == []
    return None if found is None else found.standing


def child(name: str, directory: Path, *before: str) -> list[str]:
    command = [*before, sys.executable, str(Path(__file__).with_name("children.py")), name, str(directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.splitlines()


def test_a_full_disk(tmp_path: Path) -> None:
    lines = child("fill_the_disk", tmp_path)
    assert lines[0] == "True"
    assert "state.db can't be used: the disk" in lines[1]
    assert "would forget" in lines[1]
    assert lines[2:4] == ["False", "False"]
    assert "'rung': 3" in lines[4]
    assert "can be used again" in lines[5]
    assert asyncio.run(found_by_the_next_process(tmp_path)) == {"rung": 3}


def test_a_directory_that_may_only_be_read(tmp_path: Path) -> None:
    """Root may write anywhere by its capabilities: it is tried without them."""

    async def before() -> None:
        store = Store(tmp_path / "state", print)
        await store.remember("chat", {"rung": 7})
        await store.close()

    asyncio.run(before())
    for file in (tmp_path / "state").iterdir():
        file.chmod(0o400)
    (tmp_path / "state").chmod(0o500)
    without = ("setpriv", "--inh-caps=-all", "--bounding-set=-all") if os.geteuid() == 0 else ()
    lines = child("write_where_it_may_not", tmp_path / "state", *without)
    assert "'rung': 7" in lines[0]
    assert "state.db can't be used: it may not be written" in lines[1]
    assert lines[2:5] == ["False", "True", "False"]
    assert "can be used again" in lines[5]
    assert lines[6:] == ["True"]
    assert asyncio.run(found_by_the_next_process(tmp_path / "state")) == {"rung": 10}


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said: list[str] = []

    async def scenario() -> None:
        store = Store(tmp_path / "file" / "state", said.append)
        assert await store.standing("chat") is None
        assert not await store.remember("chat", OLD)
        assert not await store.keep_pace("model", PACE)
        assert await store.standing("chat") == Remembered(OLD, True)
        assert await store.pace("model") == PACE
        assert len(said) == 1
        assert "Not a directory" in said[0]
        (tmp_path / "file").unlink()
        await store.catch_up()
        assert len(said) == 2
        await store.close()
        assert await found_by_the_next_process(tmp_path / "file" / "state") == OLD

    asyncio.run(scenario())


def test_the_memory_is_bounded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llama_watchdog.store.memory.MAX_ROWS", 3)
    (tmp_path / "state.db").mkdir()

    async def scenario() -> None:
        store = Store(tmp_path, lambda _: None)
        for seconds, number in enumerate((0, 1, 2, 0, 3), start=1):
            await store.keep_pace(f"model {number}", Learned(start=seconds))
        paces = [await store.pace(f"model {number}") for number in range(4)]
        assert [pace.start for pace in paces] == [4, 0, 3, 5]

    asyncio.run(scenario())


def test_a_file_that_another_process_keeps_locked(tmp_path: Path) -> None:
    said: list[str] = []

    async def scenario() -> None:
        store = Store(tmp_path, said.append, within=0.1)
        await store.remember("chat", OLD)
        with other_process(tmp_path) as other:
            other.execute("BEGIN EXCLUSIVE")
            assert not await store.remember("chat", NEW)
            assert await store.pace("model") == Learned()
        assert len(said) == 1
        assert "locked" in said[0]
        assert await store.remember("chat", NEW)
        assert len(said) == 2
        await store.close()

    asyncio.run(scenario())
    assert asyncio.run(found_by_the_next_process(tmp_path)) == NEW


class Gate:
    """A disk on which a commit hangs while the gate is shut."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.reached = threading.Event()

    def connect(self, *arguments: Any, **options: Any) -> sqlite3.Connection:
        gate = self

        class Slow(sqlite3.Connection):
            def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:
                if sql == "COMMIT" and not gate.open.is_set():
                    gate.reached.set()
                    gate.open.wait(5)
                return super().execute(sql, *rest)

        return _connect(*arguments, factory=Slow, **options)


_connect = sqlite3.connect


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    gate.open.set()
    monkeypatch.setattr(sqlite3, "connect", gate.connect)
    yield gate
    gate.open.set()


def test_a_write_that_never_returns(tmp_path: Path, gate: Gate) -> None:
    said: list[str] = []

    async def scenario() -> None:
        store = Store(tmp_path, said.append, within=0.1)
        assert await store.remember("chat", OLD)
        gate.open.clear()
        assert not await store.remember("chat", NEW)
        assert not await store.remember("chat", {"rung": 3})
        assert await store.standing("chat") == Remembered({"rung": 3}, True)
        assert await store.pace("model") == Learned()
        await store.close()
        assert len(said) == 1
        assert "not answered within 0.1 s" in said[0]
        gate.open.set()
        for thread in threading.enumerate():
            if thread.name.startswith("state: "):
                await asyncio.to_thread(thread.join, 5)
        await store.close()
        assert len(said) == 2

    asyncio.run(scenario())
    assert asyncio.run(found_by_the_next_process(tmp_path)) == {"rung": 3}


def test_a_caller_that_is_cancelled_in_a_write_makes_no_outage_for_the_next(
    tmp_path: Path, gate: Gate
) -> None:
    said: list[str] = []

    async def scenario() -> None:
        store = Store(tmp_path, said.append, within=5)
        await store.remember("chat", OLD)
        gate.open.clear()
        cancelled = asyncio.create_task(store.remember("chat", NEW))
        await asyncio.to_thread(gate.reached.wait, 5)
        cancelled.cancel()
        following = asyncio.create_task(store.remember("other", NEW))
        await asyncio.wait({cancelled})
        gate.open.set()
        assert await following
        await store.close()

    asyncio.run(scenario())
    assert said == []


def garble(path: Path) -> None:
    path.write_bytes(b"{" * 5000)


def blank(path: Path) -> None:
    path.write_bytes(bytes(8192))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def overwrite_rows(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:4096] + b"\xaa" * 8192)


def replace_by_a_strangers(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as strange:
        strange.execute("CREATE TABLE songs (title TEXT)")
    strange.close()


def drop_the_table(path: Path) -> None:
    with other_process(path.parent) as other:
        other.execute("DROP TABLE kept")


@pytest.mark.parametrize(
    ("damage", "running"),
    [
        *((damage, False) for damage in (garble, blank, cut, overwrite_rows, drop_the_table)),
        *((damage, True) for damage in (garble, blank, cut)),
        (replace_by_a_strangers, False),
        (replace_by_a_strangers, True),
    ],
)
def test_a_damaged_file_is_set_aside_and_a_new_one_begun(
    tmp_path: Path, damage: Callable[[Path], None], running: bool
) -> None:
    """With all that is in memory."""
    said: list[str] = []

    async def scenario() -> None:
        store = Store(tmp_path, said.append)
        await store.remember("chat", OLD)
        if not running:
            await store.close()
            store = Store(tmp_path, said.append)
        damage(tmp_path / "state.db")
        damaged = (tmp_path / "state.db").read_bytes()
        assert await store.remember("other", NEW)
        await store.close()
        assert (tmp_path / "state.db.damaged").read_bytes() == damaged
        assert await found_by_the_next_process(tmp_path, "other") == NEW
        assert await found_by_the_next_process(tmp_path) == (OLD if running else None)

    asyncio.run(scenario())
    assert ["state.db is damaged" in line and "forgotten" in line for line in said] == [True]


def test_of_damaged_files_only_one_is_kept(tmp_path: Path) -> None:
    said: list[str] = []

    async def scenario() -> None:
        store = Store(tmp_path, said.append)
        for number in range(3):
            garble(tmp_path / "state.db")
            assert await store.remember("chat", {"rung": number})
        await store.close()

    asyncio.run(scenario())
    assert len(said) == 3
    assert sorted(file.name for file in tmp_path.iterdir() if "journal" not in file.name) == [
        "state.db",
        "state.db.damaged",
    ]


def test_a_file_that_is_deleted_is_written_anew_with_all_that_is_known(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = Store(tmp_path, print)
        await store.remember("chat", OLD)
        (tmp_path / "state.db").unlink()
        await store.remember("other", NEW)
        await store.close()
        assert await found_by_the_next_process(tmp_path) == OLD

    asyncio.run(scenario())


def test_a_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    said: list[str] = []

    async def scenario() -> None:
        with other_process(tmp_path) as newer:
            newer.execute("CREATE TABLE kept (everything)")
            newer.execute("PRAGMA user_version = 7")
            newer.execute("PRAGMA journal_mode = WAL")
        before = (tmp_path / "state.db").read_bytes()
        store = Store(tmp_path, said.append)
        assert await store.standing("chat") is None
        assert not await store.remember("chat", OLD)
        assert await store.standing("chat") == Remembered(OLD, True)
        await store.close()
        assert (tmp_path / "state.db").read_bytes() == before

    asyncio.run(scenario())
    assert len(said) == 1
    assert "newer llama-watchdog" in said[0]


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("elsewhere")])
def test_no_pipe_or_link_is_followed(tmp_path: Path, make: Any) -> None:
    said: list[str] = []

    async def scenario() -> None:
        make(tmp_path / "state.db")
        store = Store(tmp_path, said.append)
        assert not await store.remember("chat", OLD)
        await store.close()

    asyncio.run(scenario())
    assert ["not a regular file" in line for line in said] == [True]
    assert [file.name for file in tmp_path.iterdir()] == ["state.db"]
