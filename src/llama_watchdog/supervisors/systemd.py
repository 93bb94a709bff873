"""Starting again, and signalling, a server that is a systemd unit; never against an order of its admin.

| the unit is                                | what is done            |
| ------------------------------------------ | ----------------------- |
| masked, missing                            | nothing: UNSUPPORTED    |
| being stopped (a stop job is pending)      | nothing: FAILED         |
| being started, or waiting out RestartSec=  | nothing more: DONE      |
| active, its main process a newer one       | nothing more: DONE      |
| active                                     | restart                 |
| deactivating                               | start, once that is over|
| failed                                     | reset-failed, start     |
| inactive                                   | start                   |

Whether a unit that is not running was stopped on purpose is for the caller to judge, before.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection
from pathlib import Path

from llama_watchdog import signals
from llama_watchdog.core.action import Done, Identity, Result
from llama_watchdog.core.observation import Outcome
from llama_watchdog.supervisors import systemctl

# Not to wait for a load that takes minutes, and to be refused where an admin's job says the contrary.
_AS_ONE_OF_MANY = ("--no-block", "--job-mode=fail")


class SystemdUnit:
    """One service unit, of the system's manager or of a user's: of whichever knows it."""

    def __init__(self, unit: str) -> None:
        self.name = unit
        self._user: bool | None = None  # not looked for yet

    async def show(self, *, timeout: float = 5.0) -> systemctl.UnitState:  # noqa: ASYNC109 - it is an outcome
        """As `Supervisor.show`."""
        return await systemctl.show(self.name, user=await self._of_user(timeout), timeout=timeout)

    async def environment(self, names: Collection[str], *, timeout: float = 5.0) -> dict[str, str] | None:  # noqa: ASYNC109 - it is an outcome
        """As `Supervisor.environment`."""
        return await systemctl.environment(
            self.name, names, user=await self._of_user(timeout), timeout=timeout
        )

    async def signal(self, sig: signal.Signals, identity: Identity | None = None) -> Result:
        """As `Supervisor.signal`."""
        state = await self.show()
        missing = self._not_there(state)
        if missing is not None:
            return missing
        if identity is not None and _is_newer(state, identity):
            return Result(Done.FAILED, f"{self.name} has been restarted meanwhile: not signalled")
        everything = sig is signal.SIGKILL
        if state.control_group is None:
            return Result(Done.DONE, f"nothing of {self.name} is running any more")
        if state.main_pid is None and not everything:
            return Result(Done.DONE, f"the main process of {self.name} is already gone")
        # --kill-who, as systemd before 252 calls it, is known to later ones as well.
        whom = "all" if everything else "main"
        result = await self._verb("kill", f"--kill-who={whom}", f"--signal={sig.name}")
        if result.outcome is not Done.DONE:
            return result
        who = "all" if everything else "the main process"
        return Result(Done.DONE, f"had systemd send {sig.name} to {who} of {self.name}")

    async def restart(self, ended: Identity | None = None) -> Result:
        """As `Supervisor.restart`. A start at the unit's start limit is DONE, too, and comes to nothing."""
        state = await self.show()
        impossible = self._not_there(state) or self._unwanted(state)
        if impossible is not None:
            return impossible
        active = state.unit.active
        if state.restart_pending or active == "activating":
            return Result(Done.DONE, f"systemd is starting {self.name} itself{_how_it_ended(state)}")
        if active == "failed":
            # Its Result= is no guide: a unit that hit its start limit after a crash still says exit-code. And
            # where only this is denied, the start may yet work.
            await self._verb("reset-failed")
        if active in ("failed", "inactive", "deactivating"):
            verb = "start"
        elif ended is not None and _is_newer(state, ended):
            return Result(Done.DONE, f"systemd has restarted {self.name} itself")
        else:
            verb = "restart"
        result = await self._verb(verb, *_AS_ONE_OF_MANY)
        if result.outcome is not Done.DONE:
            return result
        return Result(Done.DONE, f"asked systemd to {verb} {self.name}{_how_it_ended(state)}")

    async def _of_user(self, within: float) -> bool:
        """Whether it is a unit of the user's own manager. One that both know is the user's.

        Root's units are the system's, but where root itself lives in a user's manager.
        """
        if self._user is None:
            root = os.geteuid() == 0 and not _in_user_manager()
            if root or not {"XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"} & os.environ.keys():
                self._user = False  # nor is there a user's manager that could be asked
            else:
                state = await systemctl.show(self.name, user=True, timeout=within)
                if state.unit.outcome is not Outcome.OK or state.unit.load == "not-found":
                    return False  # looked for again the next time: it may yet be written
                self._user = True
        return self._user

    async def _verb(self, verb: str, *options: str) -> Result:
        return await systemctl.verb(verb, self.name, *options, user=await self._of_user(5.0))

    def _not_there(self, state: systemctl.UnitState) -> Result | None:
        if state.unit.outcome is not Outcome.OK:
            outcome = Done.UNSUPPORTED if state.unit.outcome is Outcome.UNSUPPORTED else Done.FAILED
            return Result(outcome, f"systemctl show {self.name}: {state.why}")
        if state.unit.load not in ("loaded", "masked"):
            return Result(Done.UNSUPPORTED, f"{self.name} is {state.unit.load}: systemd can't run it")
        return None

    def _unwanted(self, state: systemctl.UnitState) -> Result | None:
        if state.unit.load == "masked":
            why = f"its admin wants it off (systemctl unmask {self.name})"
            return Result(Done.UNSUPPORTED, f"{self.name} is masked: {why}")
        if state.unit.job == "stop":
            return Result(Done.FAILED, f"{self.name} is being stopped by its admin")
        return None


def _in_user_manager() -> bool:
    """Whether this process was started by a user's manager: below user@UID.service."""
    return "/user@" in Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="replace")


def _is_newer(state: systemctl.UnitState, identity: Identity) -> bool:
    """Whether the unit's main process began after `identity` did; a wrapper around it began before."""
    if state.main_pid is None:
        return False
    main = signals.identify(state.main_pid)
    return main is not None and main.start_ticks > identity.start_ticks


def _how_it_ended(state: systemctl.UnitState) -> str:
    if state.unit.exit_status is None:
        return ""
    return f" (its last main process: {state.unit.result}, exit status {state.unit.exit_status})"
