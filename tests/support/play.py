"""Plays whole incidents in virtual time: simulated server, real engine, and hands that act on the world."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from llama_watchdog.core.action import Action, Done, Result
from llama_watchdog.core.engine import Engine, Step
from llama_watchdog.core.events import Event
from llama_watchdog.core.observation import Canary, Outcome
from llama_watchdog.core.policy import Policy
from llama_watchdog.core.standing import Order
from llama_watchdog.core.verdict import State
from llama_watchdog.simulator.config import ServerConfig, Task
from llama_watchdog.simulator.formats import TODAY, Format
from llama_watchdog.simulator.happenings import Happening, Leave, Restart, Sigkill, Sigterm
from llama_watchdog.simulator.model import ServerModel
from llama_watchdog.simulator.traces import VirtualWatch, Watcher


@dataclass
class Play:
    """One server and its watchdog; `restarts_well` says whether a new process is healthy."""

    config: ServerConfig = field(default_factory=ServerConfig)
    happenings: Iterable[Happening] = ()
    policy: Policy = field(default_factory=Policy)
    watcher: Watcher = field(default_factory=Watcher)
    form: Format = TODAY
    dry_run: bool = False
    impossible: frozenset[Action] = frozenset()
    canary: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        self.watch = VirtualWatch(
            ServerModel(self.config, seed=self.seed), self.happenings, watcher=self.watcher, form=self.form
        )
        self.engine = Engine(self.policy, self.watch.facts, dry_run=self.dry_run)
        self.engine.asking.canary = self.canary
        self._canary: tuple[float, int] | None = None  # since when one is in flight, and its task
        self.actions: list[tuple[float, str]] = []
        self.events: list[Event] = []
        self.verdicts: list[tuple[float, State]] = []

    def run(self, until: float) -> Play:
        """Play on until `until` seconds; polls come sooner where the engine asks for it."""
        while self.watch.due < until:
            ask = self.engine.ask(self.watch.due)
            observation = replace(self.watch.poll(ask), canary=self._see_canary(asked=ask.canary))
            step = self.engine.step(observation)
            self.events += step.events
            self.verdicts.append((observation.at, step.verdict.state))
            self.watch.due = max(self.watch.world.now, self._next(step))
        return self

    def _see_canary(self, *, asked: bool) -> Canary | None:
        model, now = self.watch.world.model, self.watch.world.now
        if self._canary is None and asked and model.listening and not model.loading:
            self._canary = now, model.submit(now, Task(prompt=1, predict=1))
            return Canary(Outcome.PENDING, 0.0)
        if self._canary is None:
            return None
        since, task = self._canary
        if not model.listening or model.task(task).over:
            self._canary = None
            return Canary(Outcome.OK if model.listening else Outcome.ERROR, now - since)
        return Canary(Outcome.PENDING, now - since)

    def _next(self, step: Step) -> float:
        if step.order is None:
            return step.next_look
        now = self.watch.world.now
        self.actions.append((now, step.order.action.value))
        self.events += self.engine.done(step.order, self._do(step.order, now), now)
        return self.engine.next_look(now)

    def _do(self, order: Order, now: float) -> Result:
        if order.action in self.impossible:
            return Result(Done.UNSUPPORTED, "no right")
        if not self.dry_run:
            effects: dict[Action, Happening] = {
                Action.CANCEL: Leave(now),
                Action.SIGTERM: Sigterm(now),
                Action.SIGKILL: Sigkill(now),
                Action.RESTART: Restart(now),
            }
            self.watch.world.happen(effects[order.action])
        return Result(Done.DONE, "done")

    @property
    def done(self) -> list[str]:
        """The actions, in order."""
        return [action for _, action in self.actions]

    @property
    def states(self) -> set[State]:
        """Every verdict there was."""
        return {state for _, state in self.verdicts}

    def first_action(self) -> float:
        """When the first thing was done."""
        return self.actions[0][0]

    def serving_again(self) -> float | None:
        """When it served for the first time after the first action."""
        fine = (State.IDLE, State.BUSY)
        return next((at for at, state in self.verdicts if at > self.first_action() and state in fine), None)
