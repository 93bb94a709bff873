"""This process itself as the supervisor: the server is its child, started again in place.

What belongs here is starting the child, how it ended, and that nothing of one is left when the next is
started. When that is to be, the core says.

    the child                                               | as a unit it is
    --------------------------------------------------------+-----------------------------------
    runs                                                    | active
    has ended with 0, or of SIGHUP, SIGINT, SIGPIPE, SIGTERM | inactive: somebody has ended it
    has ended otherwise, or could not be started            | failed

These are the ends that systemd.service(5) counts as clean. Whether such a signal was ours, the core knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from llama_watchdog import signals, subprocesses
from llama_watchdog.core.action import Done, Identity, Result
from llama_watchdog.core.observation import Outcome, Unit
from llama_watchdog.supervisors.base import Supervised

NOT_FOUND, NOT_EXECUTABLE = 127, 126  # what a shell exits with that can't run a command

_CLEAN = frozenset({0} | {128 + s for s in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGTERM)})
_STOPS = frozenset({signal.SIGINT, signal.SIGTERM})
_LEFT_SECONDS = 5.0  # until what was killed is gone: the kernel takes its time to free gigabytes


class Child:
    """One command as our child. `argv` is run without a shell; its outputs are ours, its input is empty.

    It leads a session of its own: its orphans are known by that, and a terminal's Ctrl-C comes by us only.
    """

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> None:
        self.name = f"our child {Path(argv[0]).name}"
        self.command = argv[0]
        self._argv = tuple(argv)
        self._environment = subprocesses.environment(environ)
        self._identity: Identity | None = None
        self._ending: asyncio.Task[None] | None = None
        self._told_to_end = False
        self.status: int | None = None  # of the last one that has ended; 128 + n: of signal n
        self.starts = 0  # so far
        self.changed = asyncio.Event()  # it has been started, or has ended, since this was cleared

    @property
    def running(self) -> bool:
        """Whether it has been started, and has not ended since."""
        return self._ending is not None and not self._ending.done()

    async def start(self) -> None:
        """Start it. Raises OSError where it can't be; its `status` is then a shell's."""
        try:
            process = await subprocesses.start(self._argv, environ=self._environment)
        except OSError as error:
            self.status = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
            raise
        self.starts += 1
        self._identity = signals.identify(process.pid)  # None: it has ended already
        self._ending = asyncio.create_task(self._end(process), name=self.name)
        self.changed.set()
        if self._told_to_end:  # just while it was started
            await self.pass_on(signal.SIGTERM)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        self.status = code if code >= 0 else 128 - code
        self.changed.set()

    async def wait(self) -> None:
        """Until the one that runs has ended; returns at once where none runs."""
        if self._ending is not None:
            await asyncio.shield(self._ending)

    async def wait_for_all(self) -> None:
        """Until it has ended, and everything that it has left behind."""
        await self.wait()
        while left := await self._left():
            await signals.wait_ended(left[0], _LEFT_SECONDS)

    async def pass_on(self, sig: signal.Signals) -> None:
        """A signal that we have got for it; where it has ended before its server, as a wrapper may, for that.

        After one that asks for its end it is not started again.
        """
        self._told_to_end |= sig in _STOPS
        to = [self._identity] if self.running else await self._left()
        for member in to:
            if member is not None:
                await signals.signal_tree(member, sig)

    async def kill(self) -> None:
        """Kill it and all that is left of it; waits for no end."""
        await signals.kill_each(await self._left())

    # As `Supervisor` has it

    async def show(self, *, timeout: float = 5.0) -> Supervised:  # noqa: ARG002, ASYNC109 - as it has it, and no time is needed
        """As `Supervisor.show`."""
        if self.running:
            unit = self._unit("active", "running", "success")
            return Supervised(unit, self._identity.pid if self._identity is not None else None)
        if self.status in _CLEAN:
            return Supervised(self._unit("inactive", "dead", "success"))
        killed = self.status is not None and self.status > 128
        return Supervised(self._unit("failed", "failed", "signal" if killed else "exit-code"))

    def _unit(self, active: str, sub: str, result: str) -> Unit:
        return Unit(
            Outcome.OK,
            load="loaded",
            active=active,
            sub=sub,
            result=result,
            exit_status=self.status,
            stop_ordered=self._told_to_end,
        )

    async def environment(self, names: Collection[str], *, timeout: float = 5.0) -> dict[str, str] | None:  # noqa: ARG002, ASYNC109 - as above
        """As `Supervisor.environment`."""
        return {name: value for name, value in self._environment.items() if name in names}

    async def signal(self, sig: signal.Signals, identity: Identity | None = None) -> Result:
        """As `Supervisor.signal`. Of use for SIGKILL alone: by it also a wrapper around the server ends."""
        if sig is not signal.SIGKILL:
            return Result(Done.UNSUPPORTED, f"{self.name} has our rights, no others")
        if identity is not None and self._is_newer(identity):
            return Result(Done.FAILED, f"{self.name} has been started anew meanwhile: not signalled")
        await self.kill()
        return Result(Done.DONE, f"sent SIGKILL to all of {self.name}")

    async def restart(self, ended: Identity | None = None) -> Result:
        """As `Supervisor.restart`. Never a twin: FAILED while anything of the one before is left.

        Where the server has ended, what is left of its wrapper and its forks is killed, and waited for.
        """
        if self._told_to_end:
            return Result(Done.FAILED, f"{self.name} has been told to end")
        if ended is not None and self.running and self._is_newer(ended):
            return Result(Done.DONE, f"{self.name} has been started already")
        if self.running and (ended is None or not await signals.ended(ended)):
            alive = self._identity if ended is None else ended
            return Result(Done.FAILED, f"{_pid(alive)} is still alive: nothing is started beside it")
        left = await self._clear()
        if left:
            pids = ", ".join(map(_pid, left))
            return Result(Done.FAILED, f"{pids} is alive after SIGKILL: nothing is started beside it")
        try:
            await self.start()
        except OSError as error:
            return Result(Done.FAILED, f"{self.command} can't be started: {error.strerror}")
        return Result(Done.DONE, f"started {self.name} again, as {_pid(self._identity)}")

    def _is_newer(self, other: Identity) -> bool:
        """Whether it was started after another process was; a wrapper begins before its server."""
        return self._identity is not None and self._identity.start_ticks > other.start_ticks

    async def _clear(self) -> list[Identity]:
        """Kill what is left, and wait for its end; who is still there some seconds later."""
        left: list[Identity] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEFT_SECONDS):
                while left := await self._left():  # again: whatever was forked meanwhile
                    await signals.kill_each(left)
                    for member in left:
                        await signals.wait_ended(member, _LEFT_SECONDS)
                await self.wait()
        return left

    async def _left(self) -> list[Identity]:
        """Who lives of its tree: itself, its descendants, and its session, also when it has ended itself."""
        if self._identity is None:
            return []
        found = [self._identity, *signals.descendants(self._identity)]
        return [member for member in found if not await signals.ended(member)]


def _pid(identity: Identity | None) -> str:
    return f"pid {identity.pid}" if identity is not None else "a process that ended at once"
