"""Starting a server again from within its own systemd unit, by the one request that needs no right.

What belongs here is `WATCHDOG=trigger` (sd_notify(3)): systemd kills the unit, by WatchdogSignal= and us with
it, and starts it again by Restart=. Nothing gentler can be had this way.

    the main process    | what is done
    --------------------+---------------------------------------------
    has ended           | nothing: what follows is systemd's
    lives               | the trigger, once the order has been told
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Collection

from llama_watchdog import signals
from llama_watchdog.core.action import Done, Identity, Result
from llama_watchdog.core.observation import Outcome, Unit
from llama_watchdog.supervisors import systemctl
from llama_watchdog.supervisors.base import Supervised

TOLD_WITHIN = (
    0.25  # seconds that our end, which comes with the trigger, is put off: events and state are out by then
)
TRIES = 5  # a second apart, where systemd does not read its socket
HEEDED_WITHIN = 15.0  # seconds; systemd 262 was seen to kill the unit within 1 ms


class Trigger:
    """The unit that we are in. `main`: its main process, the server or a wrapper around it.

    `control_group`: the unit's own, None where it can't be told; its last part is the unit's name. `trigger`
    sends the request, and says whether it could; `complain` gets a line where that comes to nothing.
    """

    def __init__(
        self,
        main: Identity,
        control_group: str | None,
        *,
        trigger: Callable[[], bool],
        complain: Callable[[str], object],
    ) -> None:
        self.main = main
        self.control_group = control_group
        self.unit = (control_group or "").rpartition("/")[2]
        self.name = self.unit or "its unit"
        self._of_user = "/user@" in (control_group or "")
        self._trigger = trigger
        self._complain = complain
        self._asking: asyncio.Task[None] | None = None  # the loop holds its tasks only weakly

    @property
    def main_has_ended(self) -> bool:
        """Whether the main process is gone, and so whatever this watch is for."""
        return signals.identify(self.main.pid) != self.main

    async def show(self, *, timeout: float = 5.0) -> Supervised:  # noqa: ASYNC109 - it is an outcome
        """As `Supervisor.show`; by what we see ourselves where systemd can't be asked: then no stop is known.

        `main_pid` is told also once it has ended: of the group without it everything would be remains.
        """
        unit = Unit(Outcome.OK, load="loaded", active="deactivating" if self.main_has_ended else "active")
        if self.unit:
            state = await systemctl.show(self.unit, user=self._of_user, timeout=timeout)
            if state.unit.outcome is Outcome.OK and state.unit.load != "not-found":
                unit = state.unit
        return Supervised(unit, main_pid=self.main.pid, control_group=self.control_group)

    async def environment(self, names: Collection[str], *, timeout: float = 5.0) -> dict[str, str] | None:  # noqa: ARG002, ASYNC109 - the protocol's
        """As `Supervisor.environment`: what the unit sets is in our own, too."""
        return {name: os.environ[name] for name in names if name in os.environ}

    async def signal(self, sig: signal.Signals, identity: Identity | None = None) -> Result:  # noqa: ARG002 - the protocol's
        """As `Supervisor.signal`: never."""
        return Result(Done.UNSUPPORTED, f"signals are left to systemd, which is asked to restart {self.name}")

    async def restart(self, ended: Identity | None = None) -> Result:  # noqa: ARG002 - the protocol's
        """As `Supervisor.restart`. It is asked for a moment after this returns."""
        if self.main_has_ended:
            return Result(Done.DONE, f"left to systemd (Restart= of {self.name}): its main process has ended")
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask(), name="trigger")
        return Result(Done.DONE, f"asking systemd to kill and restart {self.name} (WATCHDOG=trigger)")

    async def _ask(self) -> None:
        await asyncio.sleep(TOLD_WITHIN)
        for _ in range(TRIES):
            if self.main_has_ended:
                return
            if self._trigger():
                break
            await asyncio.sleep(1.0)
        else:
            self._complain(f"systemd takes no WATCHDOG=trigger: {self.name} is not restarted")
            return
        await asyncio.sleep(HEEDED_WITHIN)
        if not self.main_has_ended:
            self._complain(
                f"{self.name} still runs {HEEDED_WITHIN:g} s after WATCHDOG=trigger: it needs "
                "NotifyAccess=all and WatchdogSignal=SIGKILL, and systemd its service watchdogs on"
            )
