"""Traces of a simulated server, as `record` would have written them: a story, seen through lenses.

The watch is driven as the daemon's is: the engine says what to ask and when to look next; with `steady` it
looks at its interval alone and asks for everything, as another recorder might.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from zlib import crc32

from llama_watchdog.core.action import would_have
from llama_watchdog.core.engine import Engine
from llama_watchdog.core.observation import Observation, Watch
from llama_watchdog.core.pace import Learned
from llama_watchdog.core.policy import Policy
from llama_watchdog.core.trace import Header, header_line, poll_line
from llama_watchdog.simulator.config import ServerConfig
from llama_watchdog.simulator.faults import Fault
from llama_watchdog.simulator.formats import TODAY, Format
from llama_watchdog.simulator.happenings import Happening
from llama_watchdog.simulator.model import ServerModel
from llama_watchdog.simulator.traces import VirtualWatch, Watcher
from tests.corpus.generated.noise import Lens, noise

RECORDED = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class Story:
    """A server, what happens to it, and how it is seen. Seconds; `starved`: spans without a poll."""

    until: float
    happenings: tuple[Happening, ...] = ()
    config: ServerConfig = field(default_factory=ServerConfig)
    watcher: Watcher = field(default_factory=Watcher)
    form: Format = TODAY
    lenses: tuple[Lens, ...] = ()
    known: dict[str, object] = field(default_factory=dict)  # of the watch's first line, where it differs
    starved: tuple[tuple[float, float], ...] = ()
    begins_with: Fault = Fault.NONE
    steady: bool = False

    def lines(self, name: str) -> Iterator[str]:
        """The trace. The same name gives the same trace."""
        rng = Random(crc32(name.encode()))  # noqa: S311 - noise, no secrets
        headed: object = None
        for watch, observation in self._polls(rng):
            process = observation.process
            if process is not None and process.start_ticks is not None and process.start_ticks != headed:
                headed = process.start_ticks
                yield _header(watch)
            elif headed is None:
                headed = 0
                yield _header(watch)
            yield poll_line(observation)

    def _polls(self, rng: Random) -> Iterator[tuple[Watch, Observation]]:
        form, config = self.form, self.form.config(self.config)
        model = ServerModel(config, seed=rng.randrange(1 << 30), fault=self.begins_with)
        watcher = replace(self.watcher, seed=rng.randrange(1 << 30))
        eyes = VirtualWatch(model, self.happenings, watcher=watcher, form=form)
        facts = replace(eyes.facts, **self.known)  # type: ignore[arg-type]  # any of its fields
        engine = Engine(Policy(), facts, dry_run=True)
        lenses = [lens(config, rng) for lens in (*self.lenses, noise)]
        while eyes.due < self.until:
            observation = eyes.poll(None if self.steady else engine.ask(eyes.due))
            for see in lenses:
                observation = see(observation)
            yield facts, observation
            due = self._next_look(engine, observation)
            if not self.steady:
                eyes.due = max(eyes.world.now, due - (eyes.world.boottime - eyes.world.now))
            eyes.due = self._awake(eyes.due)

    def _next_look(self, engine: Engine, observation: Observation) -> float:
        step = engine.step(observation)
        if step.order is None:
            return step.next_look
        engine.done(step.order, would_have(step.order.action, step.order.target), observation.at)
        return engine.next_look(observation.at)

    def _awake(self, due: float) -> float:
        return next((end for begin, end in self.starved if begin <= due < end), due)


def _header(watch: Watch) -> str:
    return header_line(Header(watch, Policy(), Learned()), recorded=RECORDED)


def story(
    minutes: float,
    happenings: Iterable[Happening] = (),
    *lenses: Lens,
    config: ServerConfig | None = None,
    **more: object,
) -> Story:
    """A story of so many minutes."""
    facts: dict[str, object] = {"happenings": tuple(happenings), "lenses": lenses, **more}
    return Story(minutes * 60.0, config=config or ServerConfig(), **facts)  # type: ignore[arg-type]  # its fields
