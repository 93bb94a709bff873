"""All checks, side by side and each within its time, and which of them the daemon says at its start.

The whole takes 10 s at most, whatever hangs: 6 s to look, 3 s to try.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from llama_watchdog.core.action import Done, Result
from llama_watchdog.doctor import evidence, machine, rungs
from llama_watchdog.doctor.finding import Finding, Works, ok, unknown
from llama_watchdog.doctor.look import Look, look_at
from llama_watchdog.doctor.together import together
from llama_watchdog.lock import TargetLock
from llama_watchdog.parts import supervisor_of
from llama_watchdog.settings import ServerSettings, Settings
from llama_watchdog.settings.targets import listens_at
from llama_watchdog.supervisors.base import Supervised, Supervisor

_LOOK_SECONDS = 6.0
_ASK_SECONDS = 3.0
_TRY_SECONDS = 8.0  # of `cancel`, which waits for nothing else


async def examine(
    settings: Settings, supervisor: Supervisor | None = None, *, at_start: bool = False
) -> list[Finding]:
    """Every finding, those of the machine first. Nothing is done to any server.

    `supervisor`: who runs the one server, if not as configured. `at_start`: for the daemon, which has the
    locks itself, and asks nothing of a server that costs it something. Raises ConfigError as `observer_of`.
    """
    servers = list(settings.servers.values())
    wanted = any("cancel" in server.escalation.ladder for server in servers) and not settings.dry_run
    async with together() as group:
        tried = group.create_task(_bounded_trial()) if wanted else None
        state = group.create_task(machine.state(settings.state_dir))
        each = [
            group.create_task(_server(server, supervisor or supervisor_of(server), tried, settings, at_start))
            for server in servers
        ]
    found = [*machine.rights(), *machine.tools(servers), state.result()]
    return found + [finding for task in each for finding in task.result()]


async def self_test(
    settings: Settings, supervisor: Supervisor | None, warn: Callable[[str, str], object]
) -> None:
    """For the daemon, once it watches: one line for each thing that it lacks and would not say by itself.

    `warn` gets the server's name, "" for what concerns all, and the line.
    """
    for finding in await examine(settings, supervisor, at_start=True):
        if finding.outcome is Works.MISSING and finding.matters and not finding.watch_says:
            remedy = f"; {finding.remedy}" if finding.remedy else ""
            warn(finding.server, f"{finding.check} is missing: {finding.text}{remedy}")


async def _bounded_trial() -> Result:
    try:
        async with asyncio.timeout(_TRY_SECONDS):
            return await machine.try_cancel()
    except TimeoutError:
        return Result(Done.FAILED, f"tried in vain for {_TRY_SECONDS:g} s")


async def _server(
    server: ServerSettings,
    supervisor: Supervisor | None,
    tried: asyncio.Task[Result] | None,
    settings: Settings,
    at_start: bool,
) -> list[Finding]:
    found: list[Finding] = []
    async with together() as group:
        looking = group.create_task(_look(server, supervisor, at_start))
        asking = group.create_task(_state(supervisor))
    look, state = looking.result(), asking.result()
    if look is None:
        found.append(evidence.unseen(server, f"no answer within {_LOOK_SECONDS:g} s"))
    else:
        found += evidence.answers(server, look.seen)
        found += evidence.process(server, look, supervisor, state)
    if supervisor is not None and state is not None:
        found.append(evidence.supervisor(server, supervisor, state, look))
    if not at_start:
        found.append(_lock(server))
    if "cancel" in server.escalation.ladder:
        # Shielded: it is others', too, and to be cancelled once only, lest it leave what it has started.
        result = await asyncio.shield(tried) if tried is not None else None
        found.append(rungs.cancel(server, result))
    dry_run = settings.dry_run
    async with together() as group:
        signals = group.create_task(rungs.signalling(server, look, supervisor, state, dry_run=dry_run))
        restart = group.create_task(rungs.restart(server, look, supervisor, state, dry_run=dry_run))
    return [*found, *signals.result(), restart.result()]


async def _look(server: ServerSettings, supervisor: Supervisor | None, at_start: bool) -> Look | None:
    # A scrape of /metrics resets the gauges that the user's own monitoring reads.
    metrics = server.probe.metrics == "on" or (server.probe.metrics == "auto" and not at_start)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LOOK_SECONDS):
            return await look_at(server, supervisor, metrics=metrics)
    return None


async def _state(supervisor: Supervisor | None) -> Supervised | None:
    return None if supervisor is None else await supervisor.show(timeout=_ASK_SECONDS)


def _lock(server: ServerSettings) -> Finding:
    """Only one watchdog may act on a server."""
    lock = TargetLock(listens_at(server.url))
    try:
        holder = lock.take()
    except OSError as error:
        return unknown("lock", server.name, f"no lock can be taken: {error.strerror}", matters=False)
    lock.release()
    return ok("lock", server.name, f"{holder} watches it" if holder else "no other watchdog has it")
