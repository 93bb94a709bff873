"""The watch of one server: observe, judge, act, and sleep until the next look is due.

What belongs here is the order in which eyes, engine and hands take their turns. Grace periods are the
engine's state: nothing here waits for an action to take effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from llama_watchdog import log
from llama_watchdog.actions import hands as hands_module
from llama_watchdog.actions.hands import Hands
from llama_watchdog.clock import WatchClock
from llama_watchdog.core.blindspots import blind_spots
from llama_watchdog.core.engine import Engine
from llama_watchdog.core.events import Event
from llama_watchdog.core.observation import Observation, Watch
from llama_watchdog.core.verdict import State, Verdict
from llama_watchdog.probes import place
from llama_watchdog.probes.gpu import GpuProbe
from llama_watchdog.probes.llama_http import LlamaHttp
from llama_watchdog.probes.observer import Observer
from llama_watchdog.probes.process import ProcessProbe
from llama_watchdog.settings import ConfigError, ServerSettings
from llama_watchdog.state import StateFile

Tell = Callable[[Event], None]
Keep = Callable[[Watch, Observation], None]

# How long a poll waits for answers before it reports them as pending. An idle server answers in
# milliseconds; what takes longer is seen at the next poll.
PATIENCE = 1.0
KEEP_EVERY = 60.0  # seconds between two writes of what was learned


def observer_of(server: ServerSettings, *, patience: float = PATIENCE) -> Observer:
    """The eyes on a server. Raises ConfigError where its key, headers or certificates can't be used."""
    return Observer(
        http=_http(server, patience),
        process=_process_probe(server),
        gpu=GpuProbe(),
        unit=server.unit,
        watch=Watch(server=server.name, interval=server.probe.interval),
    )


def _http(server: ServerSettings, patience: float) -> LlamaHttp:
    try:
        return LlamaHttp(
            server.url,
            api_key=server.key(),
            ca_file=server.ca_file,
            headers=server.plain_headers(),
            health_timeout=server.probe.health_timeout,
            slots_timeout=server.probe.slots_timeout,
            patience=min(patience, server.probe.slots_timeout),
        )
    except OSError as error:
        where = f"servers.{server.name}.ca_file: {server.ca_file}"
        raise ConfigError(f"{where}: {error.strerror or 'no certificates can be read from it'}") from None
    except ValueError as error:
        raise ConfigError(f"servers.{server.name}: {error}") from None


def _process_probe(server: ServerSettings) -> ProcessProbe:
    return ProcessProbe(
        url=server.url,
        process_name=server.process_name,
        unit=server.unit or None,
        pid_file=server.pid_file,
    )


def hands_of(server: ServerSettings, *, dry_run: bool) -> Hands:
    """What can be done to a server, as configured. Raises ConfigError for what this version can't do."""
    via = server.restart.via
    if via in ("container", "child"):
        raise ConfigError(
            f"servers.{server.name}.restart.via: '{via}' is not to be had in this version: "
            "use systemd, command or none"
        )
    restart = None
    if via == "systemd" or (via == "auto" and server.unit):
        restart = hands_module.by_systemd(server.unit)
    elif via == "command" or (via == "auto" and server.restart.command):
        restart = hands_module.by_command(server.restart.command)
    return Hands(port=_own_port(server.url), unit=server.unit, restart=restart, dry_run=dry_run)


def _own_port(url: str) -> int | None:
    """The port whose connections may be closed: only where it is certainly this machine's."""
    where = place.parse(url)
    return where.port if where.path is None and place.always_here(where) else None


class ServerWatch:
    """One server under watch. `tell` gets each event, `keep` each observation with what is known by then."""

    def __init__(
        self,
        server: ServerSettings,
        *,
        observer: Observer,
        hands: Hands,
        tell: Tell,
        keep: Keep | None = None,
        state: StateFile | None = None,
    ) -> None:
        self.server = server
        self.observer = observer
        self.hands = hands
        self.tell = tell
        self.keep = keep
        self._state = state
        self._said: set[str] = set()
        self._fingerprint: str | None = None
        self._kept_at = 0.0
        self.clock = WatchClock()
        self.rounds = 0
        self.engine = Engine(server.policy(), observer.watch, dry_run=hands.dry_run)
        self._choose_probes(server)
        self._wake = asyncio.Event()
        self.asleep = False  # between two rounds, until the next one is due
        self._turn = asyncio.Lock()  # held by a round, and by whoever changes what a round works with
        self._eyes = _eyes(server)  # as they were made: a key file may have changed since

    @property
    def verdict(self) -> Verdict | None:
        """The latest; `None` before the first look."""
        return self.engine.verdict

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            async with self._turn:
                next_look = await self.round()
            self.rounds += 1
            await self._sleep_until(next_look)

    async def round(self) -> float:
        """One look and what follows from it; returns when the next one is due."""
        observer = self.observer
        ask = self.engine.ask(self.clock.now())
        observation = await observer.look(self.clock, ask, attentive=not self.engine.calm)
        self._adopt()
        if self.keep is not None:
            self.keep(observer.watch, observation)
        self._say_what_is_hidden(observation)
        step = self.engine.step(observation)
        for event in step.events:
            self.tell(event)
        if step.order is None:
            return step.next_look
        result = await self.hands.do(step.order)
        now = self.clock.now()
        for event in self.engine.done(step.order, result, now):
            self.tell(event)
        return self.engine.next_look(now)

    def _say_what_is_hidden(self, observation: Observation) -> None:
        """Once for each thing that can't be seen of a server that is up, with what would show it."""
        for line in blind_spots(observation, self.observer.watch, self.observer.why):
            if line not in self._said:
                self._said.add(line)
                log.get_logger(server=self.server.name).warning(line)

    def _adopt(self) -> None:
        """Let the engine know what is known of the server by now, its pace of old included."""
        observer = self.observer
        if observer.watch != self.engine.watch:
            self.engine.adopt(observer.watch)
        if self._state is None or observer.fingerprint is None:
            return
        if observer.fingerprint != self._fingerprint:
            self._fingerprint = observer.fingerprint
            self.engine.adopt(observer.watch, self._state.pace(observer.fingerprint))
        elif self.clock.now() - self._kept_at >= KEEP_EVERY:
            self._keep_pace()

    def _keep_pace(self) -> None:
        if self._state is not None and self._fingerprint is not None:
            self._kept_at = self.clock.now()
            self._state.keep(self._fingerprint, self.engine.judge.learned)

    async def reconfigure(self, server: ServerSettings, hands: Hands) -> None:
        """Take over new settings between two rounds; what is known of the server stays.

        Raises as `observer_of`.
        """
        async with self._turn:
            await self._reconfigure(server, hands)
        self._wake.set()

    async def _reconfigure(self, server: ServerSettings, hands: Hands) -> None:
        eyes = _eyes(server)
        if eyes != self._eyes:
            observer = observer_of(server)
            if _whose(server) == _whose(self.server):  # the incarnation that is known stays known
                observer.process = self.observer.process
            observer.watch = replace(self.observer.watch, interval=server.probe.interval)
            await self.observer.aclose()
            self.observer, self._eyes = observer, eyes
        self.server = server
        self.hands = hands
        self.engine.reconfigure(server.policy(), dry_run=hands.dry_run)
        self._choose_probes(server)

    def _choose_probes(self, server: ServerSettings) -> None:
        self.engine.asking.metrics = server.probe.metrics
        self.engine.asking.canary = server.probe.canary

    async def _sleep_until(self, at: float) -> None:
        self.asleep = True
        try:
            async with asyncio.timeout(max(0.0, at - self.clock.now())):
                await self._wake.wait()
        except TimeoutError:
            pass
        self.asleep = False
        self._wake.clear()

    async def aclose(self) -> None:
        """Give up what is in flight."""
        self._keep_pace()
        await self.observer.aclose()

    @property
    def line(self) -> str:
        """One readable line of how the server is."""
        verdict = self.verdict
        if verdict is None:
            return f"{self.server.name}: not looked at yet"
        if verdict.state in (State.IDLE, State.BUSY):
            return f"{self.server.name}: {verdict.state}"
        return f"{self.server.name}: {verdict.state} ({verdict.text})"


def _whose(server: ServerSettings) -> tuple[str, str, Path | None, str]:
    return server.url, server.unit, server.pid_file, server.process_name


def _eyes(server: ServerSettings) -> tuple[object, ...]:
    return (
        *_whose(server),
        server.key(),
        server.ca_file,
        server.headers,
        server.probe.interval,
        server.probe.health_timeout,
        server.probe.slots_timeout,
    )
