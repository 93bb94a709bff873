"""What an admin asks of a watchdog, through another process: hands off a server, on again, lift a hold."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from llama_watchdog.store.database import Database, StateError
from llama_watchdog.store.keeper import Keeper
from llama_watchdog.store.times import Now
from llama_watchdog.store.times import now as this_moment

MAX_ROWS = 1024  # pauses, and releases
RETRY = 2.0  # seconds until a file that can't be read is tried again
_PAUSED = (
    "CREATE TABLE paused (key TEXT PRIMARY KEY NOT NULL, since REAL NOT NULL, until REAL, "
    "boot TEXT NOT NULL, until_boottime REAL)"
)
_RELEASE = "CREATE TABLE release (key TEXT PRIMARY KEY NOT NULL, asked REAL NOT NULL)"
_LOST = "pauses and releases asked for before are forgotten"


@dataclass(frozen=True, slots=True)
class Pause:
    """Hands off. `since` and `until` by the wall clock, for people; `left` in seconds. None: till resumed."""

    since: float
    until: float | None
    left: float | None = field(compare=False)


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for one server. `release`: a hold is to be lifted, asked for at that wall time."""

    pause: Pause | None = None
    release: float | None = None


@dataclass(frozen=True, slots=True)
class _Paused:
    since: float
    until: float | None
    boot: str
    until_boottime: float | None

    def at(self, now: Now) -> Pause | None:
        """On the boot it was asked in, CLOCK_BOOTTIME decides, which nobody sets. After it the wall clock has
        to, and one that is not set yet makes the pause no longer than it was."""
        if self.until is None:
            return Pause(self.since, None, None)
        if self.until_boottime is not None and self.boot and self.boot == now.boot:
            left = self.until_boottime - now.boottime
        else:
            left = min(self.until - now.wall, self.until - self.since)
        return Pause(self.since, self.until, left) if left > 0 else None


@dataclass(frozen=True, slots=True)
class _Asked:
    """The rows, and when they were read: by which connection, at which version of the data."""

    version: tuple[int, int] = (0, 0)
    paused: tuple[tuple[str, _Paused], ...] = ()
    release: tuple[tuple[str, float], ...] = ()


def _database(directory: Path, patience: float, *, make_directory: bool) -> Database:
    # Durable: nobody repeats a wish after a power cut, and one fsync a command is no matter.
    return Database(
        directory / "wishes.db",
        (_PAUSED, _RELEASE),
        durable=True,
        patience=patience,
        make_directory=make_directory,
    )


class Wishes:
    """The daemon's side of `wishes.db` in `directory`. No method raises.

    `complain` and `within` as for `Store`.
    """

    def __init__(
        self,
        directory: Path,
        complain: Callable[[str], None],
        *,
        within: float = 1.0,
        now: Callable[[], Now] = this_moment,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keeper = Keeper(
            _database(directory, within / 2, make_directory=True),
            complain,
            within=within,
            cost="pause, resume and release of an admin are not seen; what was last seen of them holds",
            lost=_LOST,
        )
        self._now = now
        self._monotonic = monotonic
        self._asked = _Asked()
        self._fulfilled: dict[str, float] = {}  # releases that are not to be seen again
        self._not_before = float("-inf")

    async def read(self) -> dict[str, Wish]:
        """The wishes in force, by server. Cheap while nothing changes: for twice a second."""
        if self._monotonic() >= self._not_before:
            await self._refresh()
        now, wishes = self._now(), dict[str, Wish]()
        for key, paused in self._asked.paused:
            if (pause := paused.at(now)) is not None:
                wishes[key] = Wish(pause)
        for key, asked in self._asked.release:
            if self._fulfilled.get(key) != asked:
                wishes[key] = Wish(wishes[key].pause if key in wishes else None, asked)
        return wishes

    async def released(self, key: str, asked: float) -> None:
        """The release that was asked for at `asked` is fulfilled: this process sees it no more, and no other,
        once the file can be written."""
        self._fulfilled[key] = asked
        await self._refresh()

    async def close(self) -> None:
        """Let go of the file."""
        await self._keeper.close()

    async def _refresh(self) -> None:
        fulfilled = dict(self._fulfilled)
        # Our own commit leaves data_version as it is, so what is known is then read anew.
        known = _Asked() if fulfilled else self._asked
        try:
            if fulfilled:
                await self._keeper.run(lambda connection: _fulfil(connection, fulfilled), write=True)
            self._asked = await self._keeper.run(lambda connection: self._read(connection, known))
        except StateError as error:
            self._not_before = self._monotonic() + RETRY
            self._keeper.failed(error)
            return
        for key, asked in fulfilled.items():
            if self._fulfilled.get(key) == asked:
                del self._fulfilled[key]
        self._keeper.works()

    def _read(self, connection: sqlite3.Connection, known: _Asked) -> _Asked:
        # 13 µs, where reading ten pauses takes 60; a whole call with its thread takes 400.
        version = (self._keeper.database.opened, connection.execute("PRAGMA data_version").fetchone()[0])
        if version == known.version:
            return known
        asked = connection.execute("SELECT key, asked FROM release LIMIT ?", (MAX_ROWS,)).fetchall()
        return _Asked(version, tuple(_paused(connection)), tuple((key, float(at)) for key, at in asked))


class WishWriter:
    """The admin's side. Every method raises StateError where the wish could not be kept: it would be lost.

    `complain` gets a line when a damaged file was set aside. `within`: seconds that each may take.
    """

    def __init__(
        self,
        directory: Path,
        complain: Callable[[str], None],
        *,
        within: float = 5.0,
        now: Callable[[], Now] = this_moment,
    ) -> None:
        # A directory that is missing is one that no watchdog looks into.
        self._keeper = Keeper(
            _database(directory, within / 2, make_directory=False),
            complain,
            within=within,
            cost="",
            lost=_LOST,
        )
        self._now = now

    async def pause(self, key: str, seconds: float | None) -> Pause:
        """Hands off the server `key`, for so long; `None`: until resumed. In place of a pause it had."""
        now = self._now()
        until, until_boottime = (
            (None, None) if seconds is None else (now.wall + seconds, now.boottime + seconds)
        )
        row = (key, now.wall, until, now.boot, until_boottime)

        def write(connection: sqlite3.Connection) -> None:
            over = [(old,) for old, paused in _paused(connection) if paused.at(now) is None or old == key]
            connection.executemany("DELETE FROM paused WHERE key = ?", over)
            _make_sure_of_room(connection.execute("SELECT count(*) FROM paused"))
            connection.execute("INSERT OR REPLACE INTO paused VALUES (?, ?, ?, ?, ?)", row)

        await self._keeper.run(write, write=True)
        return Pause(now.wall, until, seconds)

    async def resume(self, key: str) -> bool:
        """Watch the server `key` again. False: it was not paused."""
        now = self._now()

        def write(connection: sqlite3.Connection) -> bool:
            was = any(old == key and paused.at(now) is not None for old, paused in _paused(connection))
            connection.execute("DELETE FROM paused WHERE key = ?", (key,))
            return was

        return await self._keeper.run(write, write=True)

    async def release(self, key: str) -> None:
        """Lift the hold of the server `key`, once."""
        asked = self._now().wall

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM release WHERE key = ?", (key,))
            _make_sure_of_room(connection.execute("SELECT count(*) FROM release"))
            connection.execute("INSERT INTO release VALUES (?, ?)", (key, asked))

        await self._keeper.run(write, write=True)

    async def close(self) -> None:
        """Let go of the file."""
        await self._keeper.close()


def _paused(connection: sqlite3.Connection) -> list[tuple[str, _Paused]]:
    rows = connection.execute(
        "SELECT key, since, until, boot, until_boottime FROM paused LIMIT ?", (MAX_ROWS,)
    ).fetchall()
    return [(key, _Paused(*rest)) for key, *rest in rows]


def _fulfil(connection: sqlite3.Connection, fulfilled: dict[str, float]) -> None:
    """Only that request: another may have been made meanwhile."""
    connection.executemany("DELETE FROM release WHERE key = ? AND asked = ?", list(fulfilled.items()))


def _make_sure_of_room(count: sqlite3.Cursor) -> None:
    if count.fetchone()[0] >= MAX_ROWS:
        raise StateError(f"it holds the wishes for {MAX_ROWS} servers already, and takes no more")
