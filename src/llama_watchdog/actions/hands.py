"""Carries out orders on one server: each by the adapter that can do it here, or said to be undoable."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from llama_watchdog.actions import cancel, restart_command, restart_systemd, signals
from llama_watchdog.core.action import Action, Done, Identity, Result, would_have
from llama_watchdog.core.standing import Order

_SIGNALS = {Action.SIGTERM: signal.SIGTERM, Action.SIGKILL: signal.SIGKILL}

Restart = Callable[[Identity | None], Awaitable[Result]]  # gets the incarnation that has ended


@dataclass(frozen=True, slots=True)
class Hands:
    """What can be done to one server. `port`: `None` where its clients come by a unix socket or from afar."""

    port: int | None
    unit: str = ""
    restart: Restart | None = None
    dry_run: bool = False

    async def do(self, order: Order) -> Result:
        """Carry out one order; bounded in time, never raises for what the world does."""
        if self.dry_run:
            return would_have(order.action, order.target)
        if order.action is Action.CANCEL:
            return await self._cancel()
        if order.action is Action.RESTART:
            return await self._restart(order.target)
        return await self._signal(_SIGNALS[order.action], order.target)

    async def _cancel(self) -> Result:
        if self.port is None:
            return Result(Done.UNSUPPORTED, "connections to this url can't be closed from here")
        return await cancel.close_clients(self.port)

    async def _signal(self, sig: signal.Signals, target: Identity | None) -> Result:
        if target is None:
            return Result(Done.UNSUPPORTED, "its process is not known")
        result = await signals.signal_tree(target, sig)
        denied = result.outcome is Done.UNSUPPORTED
        if not self.unit or (sig is not signal.SIGKILL and not denied):
            return result
        # Without the right to signal systemd can do it; and what has left the tree is still in the unit,
        # which would not end before TimeoutStopSec=.
        by_unit = await restart_systemd.signal_unit(self.unit, sig, identity=target)
        better = (
            result.outcome is Done.FAILED and by_unit.outcome is Done.DONE
        )  # some of the tree were denied
        return by_unit if denied or better else result

    async def _restart(self, ended: Identity | None) -> Result:
        if self.restart is None:
            return Result(
                Done.UNSUPPORTED,
                "left to whoever started it: set unit or restart.command, and no restart.via",
            )
        return await self.restart(ended)


def by_systemd(unit: str) -> Restart:
    """A restart through the unit's manager."""

    async def restart(ended: Identity | None) -> Result:
        return await restart_systemd.restart(unit, ended=ended)

    return restart


def by_command(command: Sequence[str]) -> Restart:
    """A restart by a command of the admin's."""

    async def restart(_ended: Identity | None) -> Result:
        return await restart_command.run(command)

    return restart
