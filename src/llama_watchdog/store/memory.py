"""What the daemon remembers of each server: where its incident stands, and how fast it is when healthy.

What was remembered is never forgotten within the life of the process: the memory here is what counts, the
file is where the next process finds it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from llama_watchdog.core.pace import Learned, learned_from_json
from llama_watchdog.store.database import Database, StateError
from llama_watchdog.store.keeper import Keeper
from llama_watchdog.store.times import boot_id

MAX_BYTES = 64 << 10  # of one value's JSON, which has ASCII only
MAX_ROWS = 256  # of each kind: servers, and models with their flags, that were ever seen; the oldest go first
_TABLE = (
    "CREATE TABLE kept (kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, boot TEXT NOT NULL, "
    "PRIMARY KEY (kind, key))"
)
_STANDING = "standing"
_PACE = "pace"


@dataclass(frozen=True, slots=True)
class Remembered:
    """A standing as it was handed in. Not `this_boot`: its CLOCK_BOOTTIME seconds mean nothing any more."""

    standing: dict[str, Any]
    this_boot: bool


class _Name(NamedTuple):
    kind: str
    key: str


class _Row(NamedTuple):
    value: str
    boot: str


class Store:
    """The file `state.db` in `directory`, opened at the first call. No method raises.

    `complain` gets one line when the file can't be used, one when it can again. `within`: seconds that a call
    may wait for the disk. `boot`: the kernel's id of this boot, if not to be read from it.
    """

    def __init__(
        self,
        directory: Path,
        complain: Callable[[str], None],
        *,
        within: float = 1.0,
        boot: str | None = None,
    ) -> None:
        # Not durable: an fsync waits for all that is on its way to that disk, tens of seconds while the core
        # of a dead server is written, and just then the next rung has to be kept. A SIGKILL takes nothing out
        # of the page cache; a power cut ends the incident with its standing, and the pace is learned again.
        database = Database(directory / "state.db", (_TABLE,), durable=False, patience=within / 2)
        self._keeper = Keeper(
            database,
            complain,
            within=within,
            cost="the watch goes on, but restarted now it would forget its incidents and all it has learned",
            lost="incidents under way and learned paces before this start are forgotten",
        )
        self._boot = boot_id() if boot is None else boot
        self._known: dict[_Name, _Row] = {}  # read or written by this process
        self._unkept: set[_Name] = set()  # of these: not in the file
        self._written_into = 0  # the opening of the file since which it has what we know
        self._said: set[str] = set()

    async def standing(self, key: str) -> Remembered | None:
        """Where the incident of the server `key` stands; `None`: there is none, or it can't be read."""
        row = await self._find(_Name(_STANDING, key))
        value = None if row is None else self._parsed(row.value)
        if row is None or value is None:
            return None
        return Remembered(value, this_boot=bool(row.boot) and row.boot == self._boot)

    async def remember(self, key: str, standing: Mapping[str, Any]) -> bool:
        """Keep a standing for the next process too. False: only this one has it; that is said, once.

        True: a SIGKILL at the next instant loses nothing of it.
        """
        return await self._keep(_Name(_STANDING, key), standing)

    async def pace(self, fingerprint: str) -> Learned:
        """What is known of the server of that fingerprint (model, build, flags); nothing, at first."""
        row = await self._find(_Name(_PACE, fingerprint))
        value = None if row is None else self._parsed(row.value)
        return Learned() if value is None else learned_from_json(value)

    async def keep_pace(self, fingerprint: str, learned: Learned) -> bool:
        """Keep a pace for the next process too; as `remember`."""
        return await self._keep(_Name(_PACE, fingerprint), learned.as_json())

    async def catch_up(self) -> None:
        """Try again to write what could not be written. Cheap where nothing is: for the daemon's beat."""
        opened_anew = self._written_into not in (0, self._keeper.database.opened)
        if self._unkept or opened_anew:
            await self._write()

    async def close(self) -> None:
        """Write what is not written yet, and let go of the file."""
        await self.catch_up()
        await self._keeper.close()

    async def _find(self, name: _Name) -> _Row | None:
        if name not in self._known:
            try:
                row = await self._keeper.run(lambda connection: _read(connection, name))
            except StateError as error:
                self._keeper.failed(error)
                return None
            if not self._unkept:
                self._keeper.works()
            if row is not None:
                self._known.setdefault(name, row)
                self._forget_oldest(name.kind)
        return self._known.get(name)

    async def _keep(self, name: _Name, value: Mapping[str, Any]) -> bool:
        row = _Row(json.dumps(value, separators=(",", ":")), self._boot)
        fits = len(row.value) <= MAX_BYTES
        if self._known.get(name) == row and name not in self._unkept:
            return fits
        self._known.pop(name, None)  # to the end: the youngest
        self._known[name] = row
        self._forget_oldest(name.kind)
        if not fits:
            self._unkept.discard(name)
            self._say_once(f"the {name.kind} of {name.key} is longer than {MAX_BYTES >> 10} KiB: not kept")
            return False
        self._unkept.add(name)
        await self._write()
        return name not in self._unkept

    async def _write(self) -> None:
        everything = {name: row for name, row in self._known.items() if len(row.value) <= MAX_BYTES}
        unkept = frozenset(self._unkept)
        database, written_into = self._keeper.database, self._written_into

        def write(connection: sqlite3.Connection) -> int:
            anew = database.opened != written_into  # perhaps another file than the one that has the rest
            _upsert(connection, {n: r for n, r in everything.items() if anew or n in unkept})
            return database.opened

        try:
            self._written_into = await self._keeper.run(write, write=True)
        except StateError as error:
            self._keeper.failed(error)
            return
        self._unkept -= {name for name in unkept if everything.get(name) is self._known.get(name)}
        if not self._unkept:
            self._keeper.works()

    def _forget_oldest(self, kind: str) -> None:
        names = [name for name in self._known if name.kind == kind]
        for name in names[:-MAX_ROWS]:
            del self._known[name]
            self._unkept.discard(name)

    def _parsed(self, text: str) -> dict[str, Any] | None:
        value: object = None
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            return value
        self._say_once(f"{self._keeper.database.path} holds something that was not written so: ignored")
        return None

    def _say_once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._keeper.complain(line)


def _read(connection: sqlite3.Connection, name: _Name) -> _Row | None:
    row = connection.execute(
        "SELECT substr(value, 1, ?), boot FROM kept WHERE kind = ? AND key = ?", (MAX_BYTES, *name)
    ).fetchone()
    return None if row is None else _Row(str(row[0]), str(row[1]))


def _upsert(connection: sqlite3.Connection, rows: Mapping[_Name, _Row]) -> None:
    """A replaced row gets the highest rowid, so that the lowest ones are the oldest."""
    connection.executemany(
        "INSERT OR REPLACE INTO kept (kind, key, value, boot) VALUES (?, ?, ?, ?)",
        [(*name, *row) for name, row in rows.items()],
    )
    for kind in {name.kind for name in rows}:
        connection.execute(
            "DELETE FROM kept WHERE kind = ? AND rowid NOT IN"
            " (SELECT rowid FROM kept WHERE kind = ? ORDER BY rowid DESC LIMIT ?)",
            (kind, kind, MAX_ROWS),
        )
