"""A database from the event loop: each call in a thread, bounded. What fails is said once, and once more when
it works again.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from llama_watchdog.store.database import Database, StateError
from llama_watchdog.worker import StillBusyError, Worker

T = TypeVar("T")


class Keeper:
    """Runs calls on `database`, in the order they come.

    `within`: seconds that a call may take before the disk is said to hang. `cost`: what it means when nothing
    can be kept, in words. `lost`: what was lost with a damaged file.
    """

    def __init__(
        self, database: Database, complain: Callable[[str], None], *, within: float, cost: str, lost: str
    ) -> None:
        self.database = database
        self.complain = complain
        self._within = within
        self._cost = cost
        self._lost = lost
        self._worker = Worker(f"state: {database.path.name}")
        self._turn = asyncio.Lock()
        self._failing = False
        self._running: set[asyncio.Task[Any]] = set()  # the loop holds its tasks only weakly

    async def run(self, call: Callable[[sqlite3.Connection], T], *, write: bool = False) -> T:
        """What `call` returns. Raises StateError, whose line says what file and why."""
        return await self._in_turn(lambda: self.database.run(call, write=write))

    async def close(self) -> None:
        """Let go of the file, unless a call hangs on it."""
        with contextlib.suppress(StateError):  # the process ends soon, and with it the connection
            await self._in_turn(self.database.close)

    async def _in_turn(self, work: Callable[[], T]) -> T:
        # A caller may be cancelled while it waits. Its turn lasts until the call has ended, else the next one
        # would find the worker busy and take that for a disk that hangs.
        task = asyncio.create_task(self._one(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        outcome = await asyncio.shield(task)
        if isinstance(outcome, StateError):
            raise outcome
        return outcome

    async def _one(self, work: Callable[[], T]) -> T | StateError:
        async with self._turn:
            try:
                return await self._worker.run(work, self._within)
            except (TimeoutError, StillBusyError):
                reason = f"the disk has not answered within {self._within:g} s"
            except StateError as error:
                reason = str(error)
            except OSError as error:
                reason = error.strerror or str(error)
            finally:
                self._tell_of_damage()
            return StateError(f"{self.database.path} can't be used: {reason}")

    def failed(self, error: StateError) -> None:
        """Say it, unless it is known."""
        if not self._failing:
            self._failing = True
            self.complain(f"{error}; {self._cost}")

    def works(self) -> None:
        """Say it, if it had failed."""
        if self._failing:
            self._failing = False
            self.complain(f"{self.database.path} can be used again")

    def _tell_of_damage(self) -> None:
        aside, self.database.set_aside = self.database.set_aside, None
        if aside is not None:
            self.complain(
                f"{self.database.path} is damaged: kept as {aside.name} and begun anew; {self._lost}"
            )
