"""The watch of one server: observe, judge, act, and sleep until the next look is due.

What belongs here is the order in which eyes, engine, memory and hands take their turns. Grace periods are the
engine's state: nothing here waits for an action to take effect.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from llama_watchdog import log
from llama_watchdog.actions.hands import Hands
from llama_watchdog.clock import WatchClock
from llama_watchdog.core.blindspots import blind_spots
from llama_watchdog.core.engine import Engine
from llama_watchdog.core.events import Event
from llama_watchdog.core.observation import Observation, Watch
from llama_watchdog.core.standing import Stage
from llama_watchdog.core.verdict import State, Verdict
from llama_watchdog.lock import TargetLock
from llama_watchdog.memory import Memory
from llama_watchdog.parts import observer_of
from llama_watchdog.probes.observer import Observer
from llama_watchdog.settings import ServerSettings
from llama_watchdog.settings.targets import listens_at
from llama_watchdog.store import Pause, Store, Wish

Tell = Callable[[Event], None]
Keep = Callable[[Watch, Observation], None]

KEEP_EVERY = 60.0  # seconds between two writes of what was learned


class ServerWatch:
    """One server under watch. `tell` gets each event, `keep` each observation with what is known by then.

    `store`: where is kept what outlives this process. Without one nothing does, no lock is taken, and no
    wish is heeded. `anew`: the server was just started, whatever is remembered of the one before it.
    """

    def __init__(
        self,
        server: ServerSettings,
        *,
        observer: Observer,
        hands: Hands,
        tell: Tell,
        keep: Keep | None = None,
        store: Store | None = None,
        anew: bool = False,
    ) -> None:
        self.server = server
        self.target = listens_at(server.url)
        self.observer = observer
        self.hands = hands
        self.tell = tell
        self.keep = keep
        self._memory = Memory(store, self.target) if store is not None else None
        self._anew = anew
        self._claimed = False  # the server is ours, and what was left of its last watch is taken over
        self._lock = TargetLock(self.target)
        self._pause: Pause | None = None
        self._heeded = asyncio.Event()  # what its admin wants is known
        self._said: set[str] = set()
        self._fingerprint: str | None = None
        self._kept_at = 0.0
        self.log = log.get_logger(server=server.name)
        self.clock = WatchClock()
        self.rounds = 0
        self.engine = Engine(server.policy(), observer.watch, dry_run=hands.dry_run)
        self._choose_probes(server)
        self._wake = asyncio.Event()
        self.asleep = False  # between two rounds, until the next one is due
        self.acting = False  # an order is being carried out, which has a bound of its own
        self._turn = asyncio.Lock()  # held by a round, and by whoever changes what a round works with
        self._eyes = _eyes(server)  # as they were made: a key file may have changed since

    @property
    def verdict(self) -> Verdict | None:
        """The latest; `None` before the first look."""
        return self.engine.verdict

    async def run(self) -> None:
        """Watch until cancelled; where somebody may want otherwise, once that is known."""
        if self._memory is not None and not self.hands.dry_run:
            await self._heeded.wait()
        while True:
            async with self._turn:
                next_look = await self.round()
            self.rounds += 1
            await self._sleep_until(next_look)

    async def round(self) -> float:
        """One look and what follows from it; returns when the next one is due."""
        await self._claim()
        observer = self.observer
        ask = self.engine.ask(self.clock.now())
        observation = await observer.look(self.clock, ask, attentive=not self.engine.calm)
        await self._adopt()
        if self.keep is not None:
            self.keep(observer.watch, observation)
        self._say_what_is_hidden(observation)
        step = self.engine.step(observation)
        self._tell(step.events)
        await self._remember()  # before it is done: whoever comes after us must know what was begun
        if step.order is None:
            return step.next_look
        self.acting = True
        try:
            result = await self.hands.do(step.order)
        finally:
            self.acting = False
        now = self.clock.now()
        self._tell(self.engine.done(step.order, result, now))
        await self._remember()
        return self.engine.next_look(now)

    def _tell(self, events: tuple[Event, ...]) -> None:
        for event in events:
            self.tell(event)

    def _say_what_is_hidden(self, observation: Observation) -> None:
        """Once for each thing that can't be seen of a server that is up, with what would show it."""
        for line in blind_spots(observation, self.observer.watch, self.observer.why):
            self._say_once(line)

    def _say_once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self.log.warning(line)

    # Whose server it is

    async def _claim(self) -> None:
        """Nothing is done without the lock, nor in a pause. With the lock comes what its last holder left."""
        if self._memory is None:
            return
        if self.hands.dry_run:  # so it is in nobody's way
            self.engine.hands_off = ""
            self._lock.release()
            return
        holder = self._lock.take()
        if holder:
            self._keep_off(f"{holder} watches it already")
            return
        if self._lock.stranger is not None:
            self._say_once(f"{self._lock.stranger} has taken our lock's name, and is not believed")
        if self._pause is not None:
            self._keep_off(f"paused by its admin{_until(self._pause)}")
        elif self.engine.hands_off:
            self.engine.hands_off = ""
            self.log.info("hands on again")
        if not self._claimed:
            await self._take_over()

    def _keep_off(self, why: str) -> None:
        if why != self.engine.hands_off:
            self.engine.hands_off = why
            self.log.warning(f"hands off: {why}")

    async def heed(self, wish: Wish) -> bool:
        """What its admin wants; whether a release among it was granted."""
        self._heeded.set()
        if wish.pause != self._pause:
            self._pause = wish.pause
            self._wake.set()
        if wish.release is None or not self._lock.held or self._turn.locked():  # a round may take a minute
            return False
        async with self._turn:
            self._tell(self.engine.release(self.clock.now()))
            await self._remember()
        self._wake.set()
        return True

    # What outlives this process

    async def _take_over(self) -> None:
        assert self._memory is not None  # noqa: S101 - the caller has looked
        self._claimed = True
        standing = await self._memory.take_over(self.clock, anew=self._anew)
        if standing is None:
            return
        self.engine.take_over(standing)
        if standing.target is not None and standing.stage is not Stage.WATCHING:
            self.observer.process.expect(standing.target)
            self.log.info(f"going on with incident {standing.incident}: {standing.stage}")

    async def _remember(self) -> None:
        if self._memory is not None and self._claimed:
            await self._memory.remember(self.engine.standing, self.clock)

    async def _adopt(self) -> None:
        """Let the engine know what is known of the server by now, its pace of old included."""
        observer = self.observer
        if observer.watch != self.engine.watch:
            self.engine.adopt(observer.watch)
        if self._memory is None or observer.fingerprint is None:
            return
        if observer.fingerprint != self._fingerprint:
            self._fingerprint = observer.fingerprint
            self.engine.adopt(observer.watch, await self._memory.pace(observer.fingerprint))
        elif self.clock.now() - self._kept_at >= KEEP_EVERY:
            await self._keep_pace()

    async def _keep_pace(self) -> None:
        if self._memory is not None and self._fingerprint is not None:
            self._kept_at = self.clock.now()
            await self._memory.keep_pace(self._fingerprint, self.engine.judge.learned)

    # A new configuration

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
            observer = observer_of(server, supervisor=hands.supervisor)
            if _whose(server) == _whose(self.server):  # the incarnation that is known stays known
                observer.process = self.observer.process
            elif self.engine.standing.target is not None:  # its end is to be seen by the new eyes, too
                observer.process.expect(self.engine.standing.target)
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

    def nudge(self) -> None:
        """Look again at once: something has happened."""
        self._wake.set()

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
        """Give up what is in flight, and the server to whoever comes next."""
        await self._keep_pace()
        await self.observer.aclose()
        self._lock.release()

    @property
    def line(self) -> str:
        """One readable line of how the server is."""
        verdict = self.verdict
        if verdict is None:
            return f"{self.server.name}: not looked at yet"
        why = "" if verdict.state in (State.IDLE, State.BUSY) else f" ({verdict.text})"
        off = f", hands off: {self.engine.hands_off}" if self.engine.hands_off else ""
        return f"{self.server.name}: {verdict.state}{why}{off}"


def _until(pause: Pause) -> str:
    if pause.until is None:
        return ""
    return f" until {time.strftime('%H:%M', time.localtime(pause.until))}"


def _whose(server: ServerSettings) -> tuple[str, str, str, Path | None, str]:
    return server.url, server.unit, server.container, server.pid_file, server.process_name


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
