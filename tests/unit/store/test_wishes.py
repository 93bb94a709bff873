"""What an admin asks for reaches the daemon, and is not lost without a word."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from llama_watchdog.store import Pause, StateError, Wish, Wishes, WishWriter
from llama_watchdog.store.times import Now
from llama_watchdog.store.wishes import RETRY

MANY = 3


@dataclass
class World:
    """One machine: its clocks, its directory, what is said, and both processes."""

    directory: Path
    boot: str = "first"
    boottime: float = 100.0
    wall: float = 1_800_000_000.0

    def __post_init__(self) -> None:
        self.said: list[str] = []
        self.reader = self.new_reader()
        self.writer = WishWriter(self.directory, self.said.append, within=0.1, now=self.now)

    def new_reader(self) -> Wishes:
        return Wishes(
            self.directory, self.said.append, within=0.1, now=self.now, monotonic=lambda: self.boottime
        )

    def now(self) -> Now:
        return Now(self.boot, self.boottime, self.wall)

    def pass_by(self, seconds: float) -> None:
        self.boottime += seconds
        self.wall += seconds

    def reboot(self, after: float) -> None:
        self.boot, self.boottime = "second", 5.0
        self.wall += after


def play(directory: Path, scenario: Callable[[World], Awaitable[None]]) -> list[str]:
    async def run() -> list[str]:
        world = World(directory)
        await scenario(world)
        await world.writer.close()
        await world.reader.close()
        return world.said

    return asyncio.run(run())


def test_a_pause_is_seen_until_it_is_over(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        assert await world.reader.read() == {}
        await world.writer.pause("chat", 60)
        world.pass_by(59)
        since = 1_800_000_000.0
        assert await world.reader.read() == {"chat": Wish(Pause(since, since + 60, 1.0))}
        world.pass_by(1)
        assert await world.reader.read() == {}

    assert play(tmp_path, scenario) == []


def test_a_pause_stays_the_same_while_it_passes(tmp_path: Path) -> None:
    """Whoever reads it twice a second takes a change for a wish."""

    async def scenario(world: World) -> None:
        await world.reader.read()
        await world.writer.pause("chat", 60)
        first = await world.reader.read()
        world.pass_by(0.5)
        assert await world.reader.read() == first

    play(tmp_path, scenario)


def test_a_pause_without_an_end_lasts_until_resumed_over_reboots(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.reader.read()
        await world.writer.pause("chat", None)
        world.reboot(after=1e7)
        assert (await world.reader.read())["chat"].pause == Pause(1_800_000_000.0, None, None)
        assert await world.writer.resume("chat")
        assert await world.reader.read() == {}
        assert not await world.writer.resume("chat")

    assert play(tmp_path, scenario) == []


@pytest.mark.parametrize(("jump", "reboot"), [(1e6, False), (-1e6, False), (-1e6, True)])
def test_a_wall_clock_that_jumps_makes_a_pause_neither_shorter_nor_longer(
    tmp_path: Path, jump: float, reboot: bool
) -> None:
    """After a reboot only the wall clock is left; where it is not set, the whole pause is still to come."""

    async def scenario(world: World) -> None:
        await world.reader.read()
        await world.writer.pause("chat", 60)
        world.pass_by(20)
        if reboot:
            world.reboot(after=0)
        world.wall += jump
        pause = (await world.reader.read())["chat"].pause
        assert pause is not None
        assert pause.left == (60 if reboot else 40)

    play(tmp_path, scenario)


@pytest.mark.parametrize(("after", "left"), [(20.0, 40.0), (60.0, None)])
def test_after_a_reboot_the_wall_clock_decides(tmp_path: Path, after: float, left: float | None) -> None:
    async def scenario(world: World) -> None:
        await world.reader.read()
        await world.writer.pause("chat", 60)
        world.reboot(after)
        pause = (await world.reader.read()).get("chat", Wish()).pause
        assert (pause and pause.left) == left

    play(tmp_path, scenario)


def test_a_release_is_seen_until_fulfilled_and_a_second_one_is_another(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.reader.read()
        await world.writer.pause("chat", None)
        await world.writer.release("chat")
        first = (await world.reader.read())["chat"]
        assert first.pause is not None
        assert first.release is not None
        world.pass_by(1)
        await world.writer.release("chat")
        await world.reader.released("chat", first.release)
        second = (await world.reader.read())["chat"].release
        assert second is not None
        await world.reader.released("chat", second)
        assert (await world.reader.read())["chat"].release is None
        next_one = world.new_reader()
        assert (await next_one.read())["chat"].release is None
        await next_one.close()

    assert play(tmp_path, scenario) == []


def test_while_the_file_is_locked_the_last_wishes_hold_and_a_release_is_fulfilled_once(
    tmp_path: Path,
) -> None:
    async def scenario(world: World) -> None:
        await world.reader.read()
        await world.writer.pause("chat", 60)
        await world.writer.release("chat")
        asked = (await world.reader.read())["chat"].release
        assert asked is not None
        lock = sqlite3.connect(tmp_path / "wishes.db", isolation_level=None)
        lock.execute("BEGIN EXCLUSIVE")
        await world.reader.released("chat", asked)
        assert (await world.reader.read())["chat"].release is None
        with pytest.raises(StateError, match=r"wishes\.db .*locked"):
            await world.writer.resume("chat")
        world.pass_by(60)
        assert await world.reader.read() == {}
        lock.close()
        assert len(world.said) == 1
        world.pass_by(RETRY)
        assert await world.reader.read() == {}
        next_one = world.new_reader()
        assert await next_one.read() == {}
        await next_one.close()

    said = play(tmp_path, scenario)
    assert ["are not seen" in said[0], "again" in said[1], len(said)] == [True, True, 2]


def test_a_file_that_can_never_be_read_costs_a_try_now_and_then_only(tmp_path: Path) -> None:
    (tmp_path / "wishes.db").mkdir()

    async def scenario(world: World) -> None:
        for _ in range(10):
            assert await world.reader.read() == {}
        (tmp_path / "wishes.db").rmdir()
        assert await world.reader.read() == {}
        assert len(world.said) == 1
        world.pass_by(RETRY)
        await world.reader.read()
        await world.writer.pause("chat", None)
        assert "chat" in await world.reader.read()

    assert len(play(tmp_path, scenario)) == 2


def test_a_wish_that_no_watchdog_would_see_is_refused(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        for wish in (world.writer.pause("chat", 60), world.writer.release("chat")):
            with pytest.raises(StateError, match="no watchdog keeps its state there"):
                await wish

    play(tmp_path / "nowhere", scenario)
    assert not (tmp_path / "nowhere").exists()


def test_a_damaged_file_is_begun_anew_by_either_and_the_other_follows(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.reader.read()
        (tmp_path / "wishes.db").write_bytes(b"{" * 5000)
        await world.writer.pause("chat", None)
        assert "chat" in await world.reader.read()

    assert ["wishes.db" in line and "forgotten" in line for line in play(tmp_path, scenario)] == [True]


def test_no_more_wishes_are_kept_than_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause that is over makes room; none in force is ever forgotten for another."""
    monkeypatch.setattr("llama_watchdog.store.wishes.MAX_ROWS", MANY)

    async def scenario(world: World) -> None:
        await world.reader.read()
        await world.writer.pause("over", 1)
        world.pass_by(2)
        for number in range(MANY):
            await world.writer.pause(f"server {number}", None)
            await world.writer.release(f"server {number}")
        for wish in (world.writer.pause("more", None), world.writer.release("more")):
            with pytest.raises(StateError, match=f"for {MANY} servers already"):
                await wish
        await world.writer.pause("server 0", 60)
        assert len(await world.reader.read()) == MANY

    play(tmp_path, scenario)
