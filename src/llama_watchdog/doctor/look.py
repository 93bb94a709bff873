"""One look at a server, from which the checks tell what can be seen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from llama_watchdog.clock import WatchClock
from llama_watchdog.core.action import Identity
from llama_watchdog.core.asking import Ask
from llama_watchdog.core.observation import Observation, Outcome
from llama_watchdog.parts import observer_of
from llama_watchdog.probes import cgroups
from llama_watchdog.probes.procfs import ProcessFolder
from llama_watchdog.settings import ServerSettings
from llama_watchdog.supervisors.base import Supervisor
from llama_watchdog.worker import Worker

_PATIENCE = 2.0  # seconds for the answers: a server that is busy for longer is said to be
_PROC_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen. `why`: nothing is seen of the process. `files`: whether its open files can be seen.

    `unit`: whose control group the process is in, whatever is configured; "" where it is no service's.
    """

    seen: Observation
    why: str = ""
    uses_gpu: bool | None = None
    files: bool | None = None
    unit: str = ""

    @property
    def identity(self) -> Identity | None:
        """Its process, where it can be told."""
        part = self.seen.process
        if part is None or part.outcome is not Outcome.OK or part.pid is None or part.start_ticks is None:
            return None
        return Identity(part.pid, part.start_ticks)

    @property
    def down(self) -> bool:
        """Nothing is there that could be looked at."""
        health = self.seen.health
        return self.identity is None and health is not None and health.outcome is Outcome.REFUSED


async def look_at(server: ServerSettings, supervisor: Supervisor | None, *, metrics: bool) -> Look:
    """One look. Raises ConfigError as `observer_of`."""
    observer = observer_of(server, supervisor=supervisor, patience=_PATIENCE)
    try:
        seen = await observer.look(WatchClock(), Ask(props=True), attentive=False)
        if metrics and seen.props is not None and not seen.props.sleeping:  # it would wake it, as /slots does
            facts = await observer.http.look(Ask(health=False, slots=False, metrics=True))
            seen = replace(seen, metrics=facts.metrics)
    finally:
        await observer.aclose()
    found = Look(seen, observer.why, observer.watch.uses_gpu)
    if found.identity is None:
        return found
    try:
        files, unit = await Worker("files").run(partial(_more, found.identity.pid), _PROC_SECONDS)
    except (TimeoutError, OSError):
        return found
    return replace(found, files=files, unit=unit)


def _more(pid: int) -> tuple[bool, str]:
    with ProcessFolder(pid) as folder:
        groups = cgroups.memberships(folder.read("cgroup") or b"")
        names = (group.rpartition("/")[2] for group in groups.values())
        unit = next((name for name in names if name.endswith(".service")), "")
        return folder.open_files() is not None, unit
