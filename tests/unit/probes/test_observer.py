"""One poll of all probes: who is asked, in which order, and what is kept."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from llama_watchdog.clock import WatchClock
from llama_watchdog.core.action import Identity
from llama_watchdog.core.asking import Ask
from llama_watchdog.core.observation import (
    Canary,
    Gpu,
    Health,
    Left,
    Metrics,
    Observation,
    Outcome,
    Process,
    Props,
    Slots,
    Unit,
    Watch,
)
from llama_watchdog.probes.llama_http import HttpFacts
from llama_watchdog.probes.observer import Observer
from llama_watchdog.probes.process import ProcessFacts
from llama_watchdog.supervisors.base import Supervised
from tests.support.facts import process
from tests.support.supervisor import FakeSupervisor

OK = Outcome.OK
UNIT = Unit(OK, "loaded", "active", "running")


class Probes:
    """All of them, as stand-ins: `asked` in their order."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.closed = False
        self.props = Props(OK, sleeping=False, build="b11669")
        self.slots = Slots(OK)
        self.facts = ProcessFacts(process(), clients=2, identity=Identity(4711, 1))
        self.observer = Observer(
            http=_Http(self),  # type: ignore[arg-type]  # a stand-in
            process=_Process(self),  # type: ignore[arg-type]  # a stand-in
            gpu=_Gpu(self),  # type: ignore[arg-type]  # a stand-in
            supervisor=FakeSupervisor(state=Supervised(UNIT)),
            watch=Watch(server="chat", interval=2.0),
        )

    def look(self, ask: Ask | None = None, *, attentive: bool = False) -> Observation:
        self.asked.clear()
        return asyncio.run(self.observer.look(WatchClock(), ask or Ask(), attentive=attentive))


class _Http:
    def __init__(self, probes: Probes) -> None:
        self._probes = probes

    async def look(self, ask: Ask) -> HttpFacts:
        self._probes.asked.append(ask)
        skipped = Outcome.SKIPPED
        return HttpFacts(
            Health(OK if ask.health else skipped),
            self._probes.slots if ask.slots else Slots(skipped),
            self._probes.props if ask.props else Props(skipped),
            Metrics(OK if ask.metrics else skipped),
            Canary(OK if ask.canary else skipped),
        )

    async def aclose(self) -> None:
        self._probes.closed = True


class _Process:
    def __init__(self, probes: Probes) -> None:
        self._probes = probes

    async def look(self) -> ProcessFacts:
        self._probes.asked.append("process")
        return self._probes.facts


class _Gpu:
    def __init__(self, probes: Probes) -> None:
        self._probes = probes

    async def look(self, pid: int) -> Gpu:
        self._probes.asked.append(("gpu", pid))
        return Gpu(OK, busy=0.5)

    async def holds(self, pid: int) -> bool:
        self._probes.asked.append(("memory", pid))
        return True


@pytest.fixture
def probes() -> Probes:
    made = Probes()
    made.look(Ask(slots=False, props=True))  # the first look is another story
    return made


def test_the_process_is_looked_at_before_it_has_to_answer_us(probes: Probes) -> None:
    seen = probes.look(Ask(health=False))
    assert probes.asked == ["process", ("gpu", 4711), Ask(health=False)]
    assert (seen.clients, seen.process, seen.gpu) == (2, process(), Gpu(OK, busy=0.5))
    assert (seen.health, seen.slots) == (Health(Outcome.SKIPPED), Slots(OK))


def test_a_server_without_a_gpu_costs_no_look_at_one(probes: Probes) -> None:
    probes.observer.watch = replace(probes.observer.watch, uses_gpu=False)
    assert probes.look().gpu is None
    assert ("gpu", 4711) not in probes.asked


def test_a_process_that_is_not_found_says_why_and_has_no_gpu(probes: Probes) -> None:
    probes.facts = ProcessFacts(Process(Outcome.UNSUPPORTED), why="nothing listens on port 8080")
    seen = probes.look()
    assert (seen.gpu, seen.clients) == (None, None)
    assert probes.observer.why == "nothing listens on port 8080"


def test_of_an_ended_server_it_is_told_what_is_left_its_gpu_memory_too(probes: Probes) -> None:
    left = Left((Identity(4712, 2),))
    probes.facts = ProcessFacts(Process(Outcome.GONE, 4711, 1), left=left)
    assert probes.look().left == replace(left, gpu=True)
    assert ("memory", 4711) in probes.asked
    probes.observer.watch = replace(probes.observer.watch, uses_gpu=False)
    assert probes.look().left == left
    assert ("memory", 4711) not in probes.asked


def test_a_living_server_has_left_nothing(probes: Probes) -> None:
    assert probes.look().left is None
    assert ("memory", 4711) not in probes.asked


def test_the_supervisor_is_asked_only_where_something_seems_wrong(probes: Probes) -> None:
    """A poll every few seconds has no business starting a program each time."""
    assert probes.look().unit is None
    assert probes.look(attentive=True).unit == UNIT
    probes.slots = Slots(Outcome.PENDING)
    assert probes.look().unit == UNIT
    probes.slots = Slots(OK)
    probes.facts = replace(probes.facts, process=Process(Outcome.GONE))
    assert probes.look().unit == UNIT


def test_what_is_found_out_of_the_server_stays_known(probes: Probes) -> None:
    assert probes.observer.watch == Watch(server="chat", interval=2.0, build="b11669")
    probes.props = Props(Outcome.UNAUTHORIZED)
    probes.look(Ask(props=True))
    assert probes.observer.watch.build == "b11669"


@pytest.mark.parametrize(("sleeping", "slots"), [(True, False), (False, True), (None, True)])
def test_before_the_first_slots_props_tells_whether_it_would_wake_the_server(
    sleeping: bool | None, slots: bool
) -> None:
    """GET /slots loads the model of a sleeping server again; nobody has told yet that it sleeps."""
    probes = Probes()
    probes.props = Props(OK, sleeping=sleeping)
    seen = probes.look(Ask(props=True))
    first, second = (asked for asked in probes.asked if isinstance(asked, Ask))
    assert first == Ask(health=False, slots=False, props=True)
    assert second == Ask(slots=slots, props=True)
    assert seen.props == probes.props
    probes.look()
    assert [asked for asked in probes.asked if isinstance(asked, Ask)] == [Ask()]


def test_its_eyes_can_be_closed(probes: Probes) -> None:
    asyncio.run(probes.observer.aclose())
    assert probes.closed
