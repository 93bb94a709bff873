"""Carries out orders on one server: each by the adapter that can do it here, or said to be undoable."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from llama_watchdog import signals
from llama_watchdog.actions import cancel, restart_command
from llama_watchdog.core.action import Action, Done, Identity, Result, would_have
from llama_watchdog.core.standing import Order
from llama_watchdog.supervisors.base import Supervisor

_SIGNALS = {Action.SIGTERM: signal.SIGTERM, Action.SIGKILL: signal.SIGKILL}

Restart = Callable[[Identity | None], Awaitable[Result]]  # gets the incarnation that has ended


@dataclass(frozen=True, slots=True)
class Hands:
    """What can be done to one server. `port`: `None` where its clients come by a unix socket or from afar."""

    port: int | None
    supervisor: Supervisor | None = None
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
        return await self._signal(_SIGNALS[order.action], order)

    async def _cancel(self) -> Result:
        if self.port is None:
            return Result(Done.UNSUPPORTED, "connections to this url can't be closed from here")
        return await cancel.close_clients(self.port)

    async def _signal(self, sig: signal.Signals, order: Order) -> Result:
        if order.left:
            result = await signals.kill_each(order.left)
        elif order.target is not None:
            result = await signals.signal_tree(order.target, sig)
        else:
            return Result(Done.UNSUPPORTED, "its process is not known")
        denied = result.outcome is Done.UNSUPPORTED
        if self.supervisor is None or (sig is not signal.SIGKILL and not denied):
            return result
        # Without the right to signal the supervisor can do it; and what has left the tree is still in the
        # unit or container, which would not end before its own timeout.
        by_supervisor = await self.supervisor.signal(sig, order.target)
        better = (
            result.outcome is Done.FAILED and by_supervisor.outcome is Done.DONE
        )  # some of the tree were denied
        return by_supervisor if denied or better else result

    async def _restart(self, ended: Identity | None) -> Result:
        if self.restart is None:
            return Result(
                Done.UNSUPPORTED,
                "left to whoever started it: set unit, container or restart.command, and no restart.via",
            )
        return await self.restart(ended)


def by_command(command: Sequence[str]) -> Restart:
    """A restart by a command of the admin's."""

    async def restart(_ended: Identity | None) -> Result:
        return await restart_command.run(command)

    return restart
