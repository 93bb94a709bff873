"""What probes and hands know of a supervisor, whichever it is."""

from __future__ import annotations

import signal
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from llama_watchdog.core.action import Identity, Result
from llama_watchdog.core.observation import Outcome, Unit


@dataclass(frozen=True, slots=True)
class Supervised:
    """What a supervisor says of the server now, in the words of systemd's units whoever it is.

    `main_pid` is what it started: the server, or a wrapper around it. `control_group` holds everything of
    it; None while nothing runs, and where it has none of its own: then it is the tree below `main_pid`.
    """

    unit: Unit
    main_pid: int | None = None
    control_group: str | None = None  # such as /system.slice/llama-server.service
    why: str = ""  # one line for people, where the outcome isn't OK


class Supervisor(Protocol):
    """Runs one server. Each call is bounded in time, and never raises for what the world does."""

    @property
    def name(self) -> str:
        """For people: `llama-server.service`, `container chat`."""

    async def show(self, *, timeout: float = 5.0) -> Supervised:  # noqa: ASYNC109 - it is an outcome
        """Its state now; a server that it doesn't know is `load` not-found."""

    async def environment(self, names: Collection[str], *, timeout: float = 5.0) -> dict[str, str] | None:  # noqa: ASYNC109 - it is an outcome
        """Those of `names` that it sets in the server's environment; None: can't be told."""

    async def signal(self, sig: signal.Signals, identity: Identity | None = None) -> Result:
        """Have it signal the main process, with SIGKILL every process of the server.

        The way where we have no right to signal by ourselves. `identity`: the server that is meant; none that
        was started after it is signalled. DONE also where nobody is left to get the signal.
        """

    async def restart(self, ended: Identity | None = None) -> Result:
        """Have it run the server again, never against an order of its admin.

        `ended`: the incarnation that was ended, not to restart its successor. DONE: it has taken the order or
        is at it anyway, not that the server is up.
        """


def is_running(state: Supervised) -> bool:
    """Whether it says that the server runs."""
    return state.unit.outcome is Outcome.OK and state.unit.active == "active"
