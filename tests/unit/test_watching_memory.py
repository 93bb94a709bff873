"""What a watch keeps for the one after it, what it takes over, and when its hands stay off."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest

from llama_watchdog import lock, log
from llama_watchdog.clock import WatchClock
from llama_watchdog.core.action import Done, Identity, Result
from llama_watchdog.core.asking import Ask
from llama_watchdog.core.events import Event
from llama_watchdog.core.observation import Observation, Outcome, Process, Watch
from llama_watchdog.core.pace import Learned
from llama_watchdog.core.standing import Order
from llama_watchdog.lock import TargetLock
from llama_watchdog.settings import ServerSettings
from llama_watchdog.store import Pause, Remembered, Wish
from llama_watchdog.watching import ServerWatch
from tests.support.facts import CPU_SERVER, PID, seen, slot

BEGAN = 1000.0  # seconds since the machine's start


class Disk:
    """The store: what is kept there, and what happened in which order."""

    def __init__(self) -> None:
        self.turns: list[str] = []
        self.kept: dict[str, Any] = {}

    async def standing(self, _key: str) -> Remembered | None:
        return Remembered(dict(self.kept), this_boot=True) if self.kept else None

    async def remember(self, _key: str, standing: Mapping[str, Any]) -> bool:
        self.kept = dict(standing)
        self.turns.append(f"keep {standing['stage']} {standing['ordered']}")
        return True

    async def pace(self, _fingerprint: str) -> Learned:
        return Learned()

    async def keep_pace(self, _fingerprint: str, _learned: Learned) -> bool:
        return True


class Life:
    """One watch of one server, from its start to its end; `disk` goes on."""

    def __init__(self, disk: Disk, server: ServerSettings, began: float = BEGAN) -> None:
        self.disk = disk
        self.at = 0.0
        self.watch: Watch = CPU_SERVER
        self.fingerprint = None
        self.why = ""
        self.process = self
        self.supervisor = None
        self.dry_run = False
        self.expected: Identity | None = None
        self.events: list[Event] = []
        self.state = "idle"
        self.server_watch = ServerWatch(
            server,
            observer=self,  # type: ignore[arg-type]  # a stand-in
            hands=self,  # type: ignore[arg-type]  # a stand-in
            tell=self.events.append,
            store=disk,  # type: ignore[arg-type]  # a stand-in
        )
        self.server_watch.clock.began = began
        self.server_watch.clock.now = lambda: self.at  # type: ignore[method-assign]  # time as told

    def expect(self, identity: Identity) -> None:
        self.expected = identity

    async def look(self, _clock: WatchClock, _ask: Ask, *, attentive: bool) -> Observation:  # noqa: ARG002 - a stand-in
        if self.state == "gone":
            return Observation(self.at, process=Process(Outcome.GONE, PID, 1, "Z"))
        return seen(self.at, slot(busy=False))

    async def do(self, order: Order) -> Result:
        self.disk.turns.append(f"do {order.action}")
        return Result(Done.DONE, "done")

    async def aclose(self) -> None:
        pass

    async def rounds(self, count: int) -> None:
        for _ in range(count):
            self.at = await self.server_watch.round()

    @property
    def actions(self) -> list[str]:
        return [f"{e['action']} {e['outcome']}" for e in self.events if e["event"] == "action"]


@asynccontextmanager
async def life(disk: Disk, server: ServerSettings, *, began: float = BEGAN) -> AsyncIterator[Life]:
    one = Life(disk, server, began)
    try:
        yield one
    finally:
        await one.server_watch.aclose()


def someone() -> ServerSettings:
    """A server that no other test, nor anybody on this machine, watches."""
    return ServerSettings(name="chat", url=f"unix:///nowhere/{uuid4()}.sock")


def test_an_order_is_kept_before_it_is_carried_out_and_again_once_it_is() -> None:
    async def play() -> list[str]:
        disk = Disk()
        async with life(disk, someone()) as one:
            await one.rounds(1)
            one.state = "gone"
            await one.rounds(2)
        return disk.turns

    turns = asyncio.run(play())
    at = turns.index("do restart")
    assert turns[at - 1 : at + 2] == ["keep starting restart", "do restart", "keep starting None"]


def test_the_next_watch_goes_on_where_the_last_one_ended() -> None:
    """It neither restarts anew what was restarted, nor forgets that it was."""

    async def play() -> tuple[Life, list[str]]:
        disk, server = Disk(), someone()
        async with life(disk, server) as one:
            await one.rounds(1)
            one.state = "gone"
            await one.rounds(2)
        disk.turns.clear()
        async with life(disk, server, began=BEGAN + 60.0) as other:
            await other.rounds(1)
            other.state = "gone"
            await other.rounds(1)
            return other, list(disk.turns)

    other, turns = asyncio.run(play())
    assert other.expected == Identity(PID, 1)
    assert other.actions == ["restart healed"]
    assert "do restart" not in turns


# Hands off


def test_a_second_watchdog_watches_and_does_nothing_until_the_first_has_ended() -> None:
    async def play() -> tuple[list[str], str, list[str]]:
        server = someone()
        first = TargetLock(Life(Disk(), server).server_watch.target)
        first.take()
        async with life(Disk(), server) as second:
            await second.rounds(1)
            second.state = "gone"
            await second.rounds(4)
            idle, line = list(second.actions), second.server_watch.line
            first.release()
            await second.rounds(3)
            return idle, line, second.actions

    idle, line, after = asyncio.run(play())
    assert idle == []
    assert "hands off: " in line
    assert "watches it already" in line
    assert "restart started" in after


def test_a_pause_keeps_the_hands_off_and_its_end_puts_them_on_again() -> None:
    async def play() -> tuple[list[str], str, list[str]]:
        async with life(Disk(), someone()) as one:
            await one.rounds(1)
            await one.server_watch.heed(Wish(Pause(0.0, None, None)))
            one.state = "gone"
            await one.rounds(5)
            idle, line = list(one.actions), one.server_watch.line
            await one.server_watch.heed(Wish())
            await one.rounds(3)
            return idle, line, one.actions

    idle, line, after = asyncio.run(play())
    assert idle == []
    assert line.endswith("hands off: paused by its admin")
    assert "restart started" in after


def test_a_pause_in_the_middle_of_an_incident_ends_it() -> None:
    async def play() -> list[str]:
        async with life(Disk(), someone()) as one:
            await one.rounds(1)
            one.state = "gone"
            await one.rounds(2)
            await one.server_watch.heed(Wish(Pause(0.0, None, None)))
            await one.rounds(20)
            return one.actions

    assert asyncio.run(play()) == ["restart started", "hold done"]


def test_a_release_is_granted_once_the_server_is_ours() -> None:
    async def play() -> tuple[bool, bool]:
        async with life(Disk(), someone()) as one:
            early = await one.server_watch.heed(Wish(release=1.0))
            await one.rounds(1)
            return early, await one.server_watch.heed(Wish(release=1.0))

    assert asyncio.run(play()) == (False, True)


def test_a_stranger_with_the_locks_name_is_said_once_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def play() -> list[str]:
        server = someone()
        async with life(Disk(), server) as one:
            stranger = TargetLock(one.server_watch.target)
            stranger.take()
            monkeypatch.setattr(lock, "_listener", lambda _address: lock.Holder(0, os.geteuid() + 1000))
            await one.rounds(1)
            one.state = "gone"
            await one.rounds(4)
            stranger.release()
            return one.actions

    log.configure()
    assert "restart started" in asyncio.run(play())
    assert capsys.readouterr().err.count("has taken our lock's name, and is not believed") == 1


@pytest.mark.parametrize("ours", [True, False])
def test_a_dry_run_is_in_nobodys_way_and_nobody_is_in_its(*, ours: bool) -> None:
    """Switched on while the server is ours, or another watchdog's."""

    async def play() -> tuple[str, str]:
        server = someone()
        async with life(Disk(), server) as one:
            other = TargetLock(one.server_watch.target)
            if not ours:
                other.take()
            await one.rounds(1)
            assert ("hands off" in one.server_watch.line) is not ours
            one.dry_run = True
            await one.rounds(1)
            holder = other.take()
            other.release()
            return one.server_watch.line, holder

    assert asyncio.run(play()) == ("chat: idle", "")


def test_nothing_is_looked_at_before_it_is_known_what_its_admin_wants() -> None:
    """A pause that was asked for while no watchdog ran holds from the first look on."""

    async def play() -> tuple[int, str]:
        async with life(Disk(), someone()) as one:
            task = asyncio.create_task(one.server_watch.run())
            await asyncio.sleep(0.01)
            early = one.server_watch.rounds
            await one.server_watch.heed(Wish(Pause(0.0, None, None)))
            async with asyncio.timeout(5.0):
                while not one.server_watch.rounds:  # noqa: ASYNC110 - nobody sets an event for it
                    await asyncio.sleep(0.001)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return early, one.server_watch.engine.hands_off

    assert asyncio.run(play()) == (0, "paused by its admin")
