"""A supervisor as a test wants it: says what it is told to say, and notes what it is asked."""

from __future__ import annotations

import signal
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from llama_watchdog.core.action import Done, Identity, Result
from llama_watchdog.core.observation import Outcome, Unit
from llama_watchdog.supervisors.base import Supervised

RUNNING = Unit(Outcome.OK, "loaded", "active", "running")


def own_cgroup() -> str:
    """The cgroup that the tests, and so their children, run in."""
    return Path("/proc/self/cgroup").read_text().splitlines()[-1].split(":", 2)[2]


@dataclass
class FakeSupervisor:
    """Each call is noted in `asked`, with what it was about."""

    name: str = "llama-server.service"
    state: Supervised = field(default_factory=lambda: Supervised(RUNNING, control_group=own_cgroup()))
    variables: dict[str, str] | None = None
    answers: dict[str, Result] = field(default_factory=dict)
    asked: list[tuple[object, ...]] = field(default_factory=list)

    async def show(self, *, timeout: float = 5.0) -> Supervised:  # noqa: ASYNC109 - as the protocol has it
        """As `Supervisor.show`."""
        del timeout
        self.asked.append(("show",))
        return self.state

    async def environment(self, names: Collection[str], *, timeout: float = 5.0) -> dict[str, str] | None:  # noqa: ASYNC109 - as the protocol has it
        """As `Supervisor.environment`."""
        del timeout
        self.asked.append(("environment", *sorted(names)))
        return self.variables

    async def signal(self, sig: signal.Signals, identity: Identity | None = None) -> Result:
        """As `Supervisor.signal`."""
        self.asked.append(("supervisor", sig.name, identity))
        return self.answers.get("supervisor", Result(Done.DONE, "supervisor did it"))

    async def restart(self, ended: Identity | None = None) -> Result:
        """As `Supervisor.restart`."""
        self.asked.append(("restart", ended))
        return self.answers.get("restart", Result(Done.DONE, "restart did it"))
