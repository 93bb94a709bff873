"""Watching a simulated server in virtual time: what an ideal watch would see of it, poll by poll. Pure.

One request in flight for each endpoint; a poll waits `patience` for its answer, then calls it pending, and a
later poll reports its answer or its timeout in place of asking anew: as the real probes do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from random import Random

from llama_watchdog.core import wire
from llama_watchdog.core.asking import Ask
from llama_watchdog.core.observation import (
    Health,
    Metrics,
    Observation,
    Outcome,
    Process,
    Props,
    Slots,
    Watch,
)
from llama_watchdog.simulator.config import Compute, HealthFacts, MetricsFacts, PropsFacts, SlotState
from llama_watchdog.simulator.formats import TODAY, Format, metrics_text, props_body, slots_body
from llama_watchdog.simulator.happenings import Happening
from llama_watchdog.simulator.model import ServerModel
from llama_watchdog.simulator.questions import Question
from llama_watchdog.simulator.world import World

_IDLE_POLLS = 3  # after so many, a server that can sleep is left to it


@dataclass(frozen=True, slots=True)
class Watcher:
    """How the watch looks, in seconds, and what it has no right to see."""

    interval: float = 5.0
    health_timeout: float = 5.0
    slots_timeout: float = 10.0
    patience: float = 1.0
    jitter: float = 0.02  # each poll but the first is late by up to this
    has_key: bool = True
    sees_process: bool = True
    sees_io: bool = True
    sees_gpu: bool = True
    seed: int = 0


def observe(
    model: ServerModel,
    happenings: Iterable[Happening] = (),
    *,
    until: float,
    watcher: Watcher | None = None,
    form: Format = TODAY,
) -> Iterator[Observation]:
    """The polls of a watch on `model` for `until` seconds of its time; `happenings` in the order of `at`."""
    watch = VirtualWatch(model, happenings, watcher=watcher, form=form)
    while watch.due < until:
        yield watch.poll()


class VirtualWatch:
    """A watch on `model`, poll by poll, for whoever wants to act in between, by `world.happen`."""

    def __init__(
        self,
        model: ServerModel,
        happenings: Iterable[Happening] = (),
        *,
        watcher: Watcher | None = None,
        form: Format = TODAY,
    ) -> None:
        self.world = World(model, happenings)
        self.due = 0.0  # when the next poll begins, by the server's clock
        self._watcher = watcher = watcher or Watcher()
        self._form = form
        self._rng = Random(watcher.seed)  # noqa: S311 - noise, no secrets
        self._asleep: bool | None = None
        self._idle_polls = 0
        self._incarnation = -1
        config = model.config
        locked = None if watcher.has_key else Outcome.UNAUTHORIZED
        off = Outcome.UNSUPPORTED
        self._health: Question[HealthFacts] = Question(model, model.health, watcher.health_timeout)
        self._slots: Question[list[SlotState]] = Question(
            model, model.slots, watcher.slots_timeout, locked or (None if config.endpoint_slots else off)
        )
        self._props: Question[PropsFacts] = Question(
            model, lambda now, _: model.props(now), watcher.slots_timeout, locked
        )
        self._metrics: Question[MetricsFacts] = Question(
            model, model.metrics, watcher.slots_timeout, locked or (None if config.endpoint_metrics else off)
        )
        self._questions = (self._health, self._slots, self._props, self._metrics)

    @property
    def facts(self) -> Watch:
        """What is known of the server before any poll."""
        config, watcher = self.world.model.config, self._watcher
        return Watch(
            server="simulated",
            interval=watcher.interval,
            build=self._form.build or None,
            batch_size=config.batch_size,
            uses_gpu=config.compute is Compute.GPU,
            compute_threads=config.threads,
            rpc=config.compute is Compute.RPC,
            can_sleep=config.sleep_idle_seconds is not None,
        )

    def poll(self, ask: Ask | None = None) -> Observation:
        """The next poll, when it is due. Without `ask`: all there is, but nothing that spoils sleep."""
        world, watcher = self.world, self._watcher
        started = self.due + (watcher.jitter * self._rng.random() if self.due else 0.0)
        self._pass(started)
        at, suspended = world.boottime, world.take_suspended()
        # Seen at the poll's very beginning: CPU times divided by the time between polls must add up.
        process, clients = self._see_process(), world.model.clients if world.model.alive else 0
        gpu = world.model.gpu(world.now) if watcher.sees_gpu and world.model.alive else None
        self._put(ask or self._gentle_ask())
        if any(question.waits for question in self._questions):
            self._pass(started + watcher.patience)
        self.due = max(self.due + watcher.interval, world.now)
        slots, props = self._report_slots(), self._report_props()
        self._remember(slots, props)
        health = self._health.report(world.now)
        return Observation(
            at=round(at, 3),
            suspended=suspended,
            clients=clients,
            health=Health(health.outcome, round(health.seconds, 4)) if health else None,
            slots=slots,
            props=props,
            metrics=self._report_metrics(),
            process=process,
            gpu=gpu,
        )

    def _pass(self, until: float) -> None:
        """Let time pass, and see at each deadline on the way whether the answer came in time."""
        deadlines = [question.deadline for question in self._questions]
        for deadline in sorted([deadline for deadline in deadlines if deadline is not None]):
            if deadline < until:
                self._look(deadline)
        self._look(until)

    def _look(self, now: float) -> None:
        self.world.advance(now)
        for question in self._questions:
            if question.waits:
                question.look(now)

    def _put(self, ask: Ask) -> None:
        now = self.world.now
        if ask.health:
            self._health.ask(now)
        if ask.props:
            self._props.ask(now)
        if ask.slots:
            self._slots.ask(now)
        if ask.metrics:
            self._metrics.ask(now)

    def _gentle_ask(self) -> Ask:
        model = self.world.model
        can_sleep = model.config.sleep_idle_seconds is not None
        left_alone = can_sleep and not model.clients and (self._asleep or self._idle_polls >= _IDLE_POLLS)
        return Ask(
            slots=not left_alone,
            props=can_sleep or self._incarnation != model.incarnation,
            metrics=model.config.endpoint_metrics,
        )

    def _remember(self, slots: Slots | None, props: Props | None) -> None:
        if props and props.outcome is Outcome.OK:
            if self._incarnation != self.world.model.incarnation:
                self._incarnation, self._idle_polls = self.world.model.incarnation, 0
            self._asleep = props.sleeping
        if slots and slots.outcome is Outcome.OK:
            self._idle_polls = 0 if any(slot.processing for slot in slots.slots) else self._idle_polls + 1

    def _report_slots(self) -> Slots | None:
        reply = self._slots.report(self.world.now)
        if reply is None:
            return None
        seconds = round(reply.seconds, 4)
        if reply.answer is None:
            return Slots(reply.outcome, seconds)
        body = wire.redact(slots_body(self._form, reply.answer))
        return Slots(reply.outcome, seconds, wire.parse_slots(body), body)

    def _report_props(self) -> Props | None:
        reply = self._props.report(self.world.now)
        if reply is None or reply.answer is None:
            return Props(reply.outcome) if reply else None
        config = self.world.model.config
        return wire.parse_props(
            props_body(
                self._form,
                reply.answer,
                endpoint_slots=config.endpoint_slots,
                endpoint_metrics=config.endpoint_metrics,
            )
        )

    def _report_metrics(self) -> Metrics | None:
        reply = self._metrics.report(self.world.now)
        if reply is None or reply.answer is None:
            return Metrics(reply.outcome) if reply else None
        return wire.parse_metrics(metrics_text(self._form, reply.answer))

    def _see_process(self) -> Process:
        if not self._watcher.sees_process:
            return Process(Outcome.UNSUPPORTED)
        process = self.world.model.process(self.world.now)
        return process if self._watcher.sees_io else replace(process, read_bytes=None, write_bytes=None)
