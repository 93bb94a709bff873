"""A watchdog that is killed at any instant finds again what it remembered."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from llama_watchdog.core.pace import Learned
from llama_watchdog.store import Remembered, Store
from llama_watchdog.store.memory import MAX_BYTES

T = TypeVar("T")
PACE = Learned(prefill=90.0, prefill_depth=3501)
KEY = "127.0.0.1 port 8080"
STANDING = {"stage": "climbing", "rung": 1, "until": 12.5, "target": {"pid": 4711}, "restarts": [1.5]}


def fail(line: str) -> None:
    raise AssertionError(line)


def ask(
    directory: Path,
    do: Callable[[Store], Awaitable[T]],
    complain: Callable[[str], None] = fail,
    boot: str = "this",
) -> T:
    """What a process of the watchdog gets that does only this."""

    async def one() -> T:
        store = Store(directory, complain, boot=boot)
        result = await do(store)
        await store.close()
        return result

    return asyncio.run(one())


def test_a_standing_is_found_again(tmp_path: Path) -> None:
    assert ask(tmp_path / "state", lambda store: store.remember(KEY, STANDING))
    assert ask(tmp_path / "state", lambda store: store.standing(KEY)) == Remembered(STANDING, True)
    assert ask(tmp_path / "state", lambda store: store.standing("127.0.0.1 port 8081")) is None


@pytest.mark.parametrize(("before", "after", "same"), [("a", "a", True), ("a", "b", False), ("", "", False)])
def test_a_standing_of_another_boot_is_known_as_such(
    tmp_path: Path, before: str, after: str, same: bool
) -> None:
    ask(tmp_path, lambda store: store.remember(KEY, STANDING), boot=before)
    assert ask(tmp_path, lambda store: store.standing(KEY), boot=after) == Remembered(STANDING, same)


def test_what_the_caller_does_to_its_object_later_is_not_remembered(tmp_path: Path) -> None:
    async def scenario(store: Store) -> Remembered | None:
        mine: dict[str, Any] = {"restarts": [1]}
        await store.remember(KEY, mine)
        mine["restarts"].append(2)
        return await store.standing(KEY)

    assert ask(tmp_path, scenario) == Remembered({"restarts": [1]}, True)


def test_a_pace_is_known_again_after_a_restart(tmp_path: Path) -> None:
    ask(tmp_path, lambda store: store.keep_pace("model", PACE))
    assert ask(tmp_path, lambda store: store.pace("model")) == PACE
    assert ask(tmp_path, lambda store: store.pace("another")) == Learned()


def test_no_more_is_kept_than_a_bounded_number_of_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest are forgotten: those that were longest not written."""
    monkeypatch.setattr("llama_watchdog.store.memory.MAX_ROWS", 3)

    async def scenario(store: Store) -> None:
        await store.remember(KEY, STANDING)
        for seconds, number in enumerate((0, 1, 2, 0, 3), start=1):
            await store.keep_pace(f"model {number}", Learned(start=seconds))

    ask(tmp_path, scenario)
    paces = [ask(tmp_path, partial(Store.pace, fingerprint=f"model {number}")) for number in range(4)]
    assert [pace != Learned() for pace in paces] == [True, False, True, True]
    assert ask(tmp_path, lambda store: store.standing(KEY)) is not None


def test_a_standing_that_is_too_long_stays_in_memory_and_is_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    long = {"x": "x" * MAX_BYTES}

    async def scenario(store: Store) -> None:
        assert not await store.remember(KEY, long)
        assert not await store.remember(KEY, long)
        assert await store.standing(KEY) == Remembered(long, True)
        assert await store.remember("another", STANDING)

    ask(tmp_path, scenario, said.append)
    assert [KEY in line and "64 KiB" in line for line in said] == [True]


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", "7", "[" * 100_000, json.dumps({"x": "x" * MAX_BYTES}), b"{}", b"\xff"]
)
def test_what_was_not_written_so_is_nothing_and_said_once(tmp_path: Path, text: str | bytes) -> None:
    ask(tmp_path, lambda store: store.remember(KEY, STANDING))
    with sqlite3.connect(tmp_path / "state.db") as damaging:
        sql = "UPDATE kept SET value = ?" if text != b"\xff" else "UPDATE kept SET value = CAST(? AS TEXT)"
        damaging.execute(sql, (text,))
    damaging.close()
    said: list[str] = []

    async def scenario(store: Store) -> None:
        assert await store.standing(KEY) is None
        assert await store.standing(KEY) is None
        assert await store.remember(KEY, STANDING)

    ask(tmp_path, scenario, said.append)
    assert len(said) == 1
    assert "state.db" in said[0]
    assert ask(tmp_path, lambda store: store.standing(KEY)) == Remembered(STANDING, True)


@pytest.mark.parametrize("umask", [0, 0o777])
def test_nobody_else_may_read_it_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        ask(tmp_path, lambda store: store.remember(KEY, STANDING))
    finally:
        os.umask(before)
    assert {oct(file.stat().st_mode & 0o777) for file in tmp_path.iterdir()} == {"0o600"}


CHILDREN = Path(__file__).with_name("children.py")


def test_killed_in_the_middle_of_a_transaction_what_was_before_is_found(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, CHILDREN, "die_in_a_transaction", tmp_path], timeout=10, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    found = ask(tmp_path, lambda store: store.standing("chat"))
    assert found is not None
    assert found.standing == {"rung": 1}


def test_killed_at_any_instant_the_last_acknowledged_is_found(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, CHILDREN, "loop_until_killed", tmp_path], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if int(line) == 30:
                break
        child.send_signal(signal.SIGKILL)
        acknowledged = int([line, *child.stdout][-1])
    found = ask(tmp_path, lambda store: store.standing("chat"))
    assert found is not None
    assert found.standing["rung"] in (acknowledged, acknowledged + 1)
