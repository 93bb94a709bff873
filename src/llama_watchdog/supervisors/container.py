"""A server in a Docker or Podman container, by the engine that runs it; never against an order of its admin.

| the container is                              | as a unit          | to restart it           |
| --------------------------------------------- | ------------------ | ----------------------- |
| running                                       | active             | restart                 |
| running, its first process a newer one        | active             | nothing more: DONE      |
| running, and somebody asked for its stop      | active, job stop   | nothing: FAILED         |
| restarting; Podman: stopped, with a policy    | activating         | nothing more: DONE      |
| paused                                        | active             | nothing: FAILED         |
| exited or created, without a failure          | inactive           | start                   |
| exited with a failure, not startable, dead    | failed             | start                   |
| exited, since somebody stopped or killed it   | inactive or failed | nothing: FAILED         |
| stopping, removing                            | deactivating       | nothing: FAILED         |
| not there                                     | not-found          | nothing: UNSUPPORTED    |

A restart policy acts on a process that ends by itself or by a signal from outside, with pauses that grow; but
not on one that was signalled through the engine, also where we asked for that: then we start it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from llama_watchdog import signals
from llama_watchdog.core.action import Done, Identity, Result
from llama_watchdog.core.observation import Outcome, Unit
from llama_watchdog.supervisors.base import Supervised
from llama_watchdog.supervisors.engine_answers import Inspected
from llama_watchdog.supervisors.engine_api import EngineApi, EngineError, sockets
from llama_watchdog.supervisors.stop_orders import StopOrders

_SIGNAL_TIMEOUT = 5.0  # seconds; Docker answers a SIGKILL when the process has ended, or after 12 s
_RESTART_TIMEOUT = 15.0  # that, and the start; a load is not waited for
_LIMBO = 10.0  # seconds; Podman goes on from "stopped" within 0.4 s (measured), unless its cleanup was lost
_DYING = 1.0  # seconds that a killed process may take to give back its memory before the engine is asked
_SIGNALLED = 128  # an exit status above it is of a signal


class Container:
    """A container, found by its name or id in whichever engine has it. Implements `Supervisor`."""

    def __init__(
        self,
        container: str,
        *,
        engines: Sequence[EngineApi] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`engines`: where to look; None: wherever `engine_api.sockets` finds one, anew each time."""
        self.container = container
        self._engines = engines
        self._clock = clock
        self._orders = StopOrders()
        self._limbo: tuple[float, float] | None = None  # which incarnation, since when

    @property
    def name(self) -> str:
        """For people."""
        return f"container {self.container}"

    async def show(self, *, timeout: float = 5.0) -> Supervised:  # noqa: ASYNC109 - it is an outcome
        """Its state now; one that no engine knows is `load` not-found. `timeout` is of each request."""
        try:
            engine, seen = await self._find(timeout)
            if seen is None:
                return Supervised(Unit(Outcome.OK, load="not-found", active="inactive", sub="dead"))
            unit = await self._unit(engine, seen, timeout)
        except EngineError as error:
            return Supervised(Unit(error.outcome), why=f"{self.name}: {error}")
        return Supervised(unit, main_pid=seen.pid, control_group=_control_group(seen))

    async def environment(self, names: Collection[str], *, timeout: float = 5.0) -> dict[str, str] | None:  # noqa: ASYNC109 - it is an outcome
        """Those of `names` that its image sets, or whoever created it; None: can't be told."""
        try:
            _, seen = await self._find(timeout)
        except EngineError:
            seen = None
        if seen is None:
            return None
        pairs = (each.partition("=") for each in seen.environment)
        return {name: value for name, _, value in pairs if name in names}

    async def signal(self, sig: signal.Signals, identity: Identity | None = None) -> Result:
        """Have the engine signal its first process; SIGKILL ends all that is in its pid namespace.

        DONE with SIGKILL also where the engine does not say in time that it has ended: it may be unkillable.
        """
        try:
            engine, seen = await self._find(_SIGNAL_TIMEOUT)
            if seen is None:
                return Result(Done.UNSUPPORTED, f"there is no {self.name}")
            if seen.pid is None:
                return Result(Done.DONE, f"nothing of {self.name} is running any more")
            if identity is not None and _is_newer(seen, identity):
                return Result(Done.FAILED, f"{self.name} has been restarted meanwhile: not signalled")
            if identity is not None and sig is signal.SIGKILL and await _dies_by_itself(seen, identity):
                return Result(Done.DONE, f"nothing of {self.name} is running any more")
            with self._orders.ours(seen):
                await engine.kill(seen.id, sig, timeout=_SIGNAL_TIMEOUT)
        except EngineError as error:
            if error.outcome is Outcome.TIMEOUT and sig is signal.SIGKILL:
                return Result(Done.DONE, f"asked the engine to kill {self.name}; {error}")
            return _failure(f"{sig.name} to {self.name}", error)
        return Result(Done.DONE, f"had the engine send {sig.name} to {self.name}")

    async def restart(self, ended: Identity | None = None) -> Result:
        """Have the engine run it again."""
        try:
            engine, seen = await self._find(_SIGNAL_TIMEOUT)
            if seen is None:
                return Result(
                    Done.UNSUPPORTED, f"there is no {self.name}: it was removed, or is named otherwise"
                )
            unit = await self._unit(engine, seen, _SIGNAL_TIMEOUT)
            settled = self._settled(seen, unit, ended)
            if settled is not None:
                return settled
            verb = "restart" if seen.status == "running" else "start"
            order = engine.restart if verb == "restart" else engine.start
            with self._orders.ours(seen):
                await order(seen.id, timeout=_RESTART_TIMEOUT)
        except EngineError as error:
            return _failure(f"restart of {self.name}", error)
        return Result(Done.DONE, f"asked the engine to {verb} {self.name}{_how_it_was(seen)}")

    def _settled(self, seen: Inspected, unit: Unit, ended: Identity | None) -> Result | None:
        """What is to be said where nothing is to be asked of the engine."""
        if unit.active == "activating":
            return Result(Done.DONE, f"the engine restarts {self.name} itself{_how_it_was(seen)}")
        if seen.status == "paused":
            return Result(Done.FAILED, f"{self.name} is paused (docker unpause {self.container})")
        if seen.status == "removing":
            return Result(Done.FAILED, f"{self.name} is being removed")
        if unit.job == "stop" or unit.active == "deactivating":
            return Result(Done.FAILED, f"{self.name} is being stopped by its admin")
        if unit.stop_ordered:
            return Result(Done.FAILED, f"{self.name} was stopped by its admin")
        if seen.status == "running" and ended is not None and _is_newer(seen, ended):
            return Result(Done.DONE, f"the engine has restarted {self.name} itself")
        return None

    async def _find(self, within: float) -> tuple[EngineApi, Inspected | None]:
        """The engine that has it, else any. Raises EngineError where one that may have it can't be asked."""
        engines = self._engines if self._engines is not None else [EngineApi(path) for path in sockets()]
        failed: EngineError | None = None
        for engine in engines:
            try:
                seen = await engine.inspect(self.container, timeout=within)
            except EngineError as error:
                failed = failed or error
                continue
            if seen is not None:
                return engine, seen
        if failed is not None:
            raise failed
        return engines[-1], None

    async def _unit(self, engine: EngineApi, seen: Inspected, within: float) -> Unit:
        ordered = await self._orders.given(engine, seen, timeout=within)
        active, sub = self._state(seen)
        return Unit(
            Outcome.OK,
            load="loaded",
            active=active,
            sub=sub,
            result=_result(seen),
            job="stop" if ordered and active in ("active", "deactivating") else "",
            exit_status=seen.exit_code if seen.finished and seen.pid is None else None,
            stop_ordered=ordered and active != "activating",
        )

    def _state(self, seen: Inspected) -> tuple[str, str]:
        if seen.status in ("running", "paused"):
            return "active", seen.status
        if seen.status == "restarting" or self._in_limbo(seen):
            return "activating", "auto-restart"
        if seen.status in ("stopping", "removing"):
            return "deactivating", seen.status
        failed = seen.exit_code or seen.error or seen.status == "dead"
        return "failed" if failed else "inactive", seen.status

    def _in_limbo(self, seen: Inspected) -> bool:
        """Whether Podman, having seen it end, is about to start it again."""
        if seen.status != "stopped" or seen.policy == "no" or seen.stopped_by_user:
            self._limbo = None
            return False
        if self._limbo is None or self._limbo[0] != seen.started:
            self._limbo = seen.started, self._clock()
        return self._clock() - self._limbo[1] < _LIMBO


async def _dies_by_itself(seen: Inspected, identity: Identity) -> bool:
    """Whether its first process is the one that is meant, and ends without the engine.

    A pidfd may have killed it a moment ago. Killed through the engine, too, it would count as stopped by a
    user, and no restart policy would start it again.
    """
    if seen.pid != identity.pid:
        return False
    try:
        return await signals.wait_ended(identity, _DYING)
    except OSError:  # a kernel without pidfds
        return False


def _is_newer(seen: Inspected, identity: Identity) -> bool:
    """Whether its first process began after `identity` did; what wraps a server began before."""
    first = signals.identify(seen.pid) if seen.pid is not None else None
    return first is not None and first.start_ticks > identity.start_ticks


def _control_group(seen: Inspected) -> str | None:
    """The group that bears its id, such as /machine.slice/libpod-….scope; None: it has none of its own."""
    try:
        groups = Path(f"/proc/{seen.pid}/cgroup").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    for line in groups.splitlines():
        _, hierarchy, path = line.split(":", 2)
        before, found, after = path.partition(seen.id or "?")
        if hierarchy in ("", "name=systemd") and found:
            return before + found + after.partition("/")[0]
    return None


def _result(seen: Inspected) -> str:
    if seen.oom:
        return "oom-kill"
    if seen.exit_code > _SIGNALLED:
        return "signal"
    return "exit-code" if seen.exit_code or seen.error else "success"


def _how_it_was(seen: Inspected) -> str:
    said = [f"its HEALTHCHECK said {seen.health}"] if seen.health else []
    if seen.pid is None and seen.finished:
        said.append(f"its last process: {_result(seen)}, exit status {seen.exit_code}")
    if seen.error:
        said.append(seen.error)
    return f" ({'; '.join(said)})" if said else ""


def _failure(what: str, error: EngineError) -> Result:
    outcome = Done.UNSUPPORTED if error.outcome is Outcome.UNSUPPORTED else Done.FAILED
    return Result(outcome, f"{what}: {error}")
