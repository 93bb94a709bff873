"""What each poll asks: enough to see a wedge, gently enough not to be the cause of one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llama_watchdog.core.asking import Ask, Asking
from llama_watchdog.core.observation import Health, Metrics, Observation, Outcome, Props, Slots, Watch
from llama_watchdog.core.verdict import Reason, State, Verdict
from tests.support.facts import CPU_SERVER, seen, slot

SLEEPER = Watch(can_sleep=True, uses_gpu=False)
IDLE, BUSY, SLEEPING = Verdict(State.IDLE), Verdict(State.BUSY), Verdict(State.SLEEPING)
FINE = Props(Outcome.OK, sleeping=False)


def after(asking: Asking, observation: Observation, verdict: Verdict = IDLE) -> Ask:
    """What is asked 5 s after a poll that saw this."""
    asking.see(observation, verdict)
    return asking.next(observation.at + 5.0)


def idle(at: float, **parts: object) -> Observation:
    return seen(at, slot(busy=False), **{"props": FINE, **parts})  # type: ignore[arg-type]  # any part


def test_the_first_poll_asks_who_it_is() -> None:
    assert Asking(CPU_SERVER).next(0.0) == Ask(health=True, slots=True, props=True, metrics=False)
    assert not Asking(SLEEPER).next(0.0).slots


def test_health_is_asked_once_a_minute_while_slots_answers() -> None:
    asking = Asking(CPU_SERVER)
    asked = []
    ask = asking.next(0.0)
    for n in range(40):
        at = 5.0 * n
        if ask.health:
            asked.append(at)
        health = Health(Outcome.OK if ask.health else Outcome.SKIPPED)
        ask = after(asking, replace(idle(at), health=health))
    assert asked == [0.0, 60.0, 120.0, 180.0]


@pytest.mark.parametrize("outcome", [Outcome.PENDING, Outcome.TIMEOUT, Outcome.ERROR, Outcome.UNSUPPORTED])
def test_health_is_asked_at_once_where_slots_does_not_answer(outcome: Outcome) -> None:
    asking = Asking(CPU_SERVER)
    assert not after(asking, idle(0.0)).health
    assert after(asking, replace(idle(5.0), slots=Slots(outcome))).health


def test_health_that_fails_is_asked_again_at_the_next_poll() -> None:
    assert after(Asking(CPU_SERVER), idle(0.0, health=Health(Outcome.ERROR))).health


def test_slots_is_left_alone_while_it_is_to_be_quiet() -> None:
    asking = Asking(CPU_SERVER)
    asking.see(idle(0.0), BUSY)
    asking.quiet_until = 3.0
    assert not asking.next(2.9).slots
    assert asking.next(3.0).slots


def test_props_is_asked_until_answered_and_again_after_each_load() -> None:
    asking = Asking(CPU_SERVER)
    assert after(asking, idle(0.0, props=Props(Outcome.LOADING)), Verdict(State.LOADING)).props
    assert not after(asking, idle(5.0)).props
    assert not after(asking, idle(10.0, props=Props(Outcome.SKIPPED))).props
    assert after(asking, idle(15.0, props=None), Verdict(State.DOWN)).props
    assert after(asking, idle(20.0, props=None), Verdict(State.LOADING)).props
    assert not after(asking, idle(25.0)).props


# Sleep


def test_an_idle_server_that_can_sleep_is_soon_left_alone_but_for_props() -> None:
    asking = Asking(SLEEPER)
    asks = [after(asking, idle(5.0 * n)) for n in range(5)]
    assert [ask.slots for ask in asks] == [True, True, False, False, False]
    assert all(ask.props for ask in asks)


def test_a_server_that_cannot_sleep_is_asked_for_slots_for_ever() -> None:
    asking = Asking(CPU_SERVER)
    assert all(after(asking, idle(5.0 * n)).slots for n in range(50))


@pytest.mark.parametrize(
    ("parts", "again"),
    [({}, False), ({"cpu": (3.0, 0.0)}, True), ({"cpu": (0.1, 0.0)}, False), ({"clients": 1}, True)],
    ids=["still idle", "its CPU worked", "it answered us", "a client came"],
)
def test_slots_is_asked_again_once_something_happens(parts: dict[str, object], again: bool) -> None:
    asking = Asking(SLEEPER)
    for n in range(5):
        asking.see(idle(5.0 * n), IDLE)
    assert after(asking, idle(25.0, **parts)).slots is again


def test_a_sleeping_server_is_not_woken() -> None:
    ask = after(Asking(CPU_SERVER), idle(0.0, props=Props(Outcome.OK, sleeping=True)), SLEEPING)
    assert (ask.slots, ask.props, ask.metrics) == (False, True, False)


def test_a_server_that_has_slept_once_can_sleep() -> None:
    """Its command line can't be seen; /slots at every poll would reset its idle timer."""
    asking = Asking(Watch(uses_gpu=False))
    after(asking, idle(0.0, props=Props(Outcome.OK, sleeping=True)), SLEEPING)
    after(asking, seen(5.0, slot(), props=FINE), BUSY)
    asks = [after(asking, idle(10.0 + 5.0 * n)) for n in range(6)]
    assert asks[-1].props
    assert not asks[-1].slots


# Metrics


@pytest.mark.parametrize(
    ("verdict", "parts", "wanted"),
    [
        (IDLE, {"clients": 1}, True),
        (IDLE, {"clients": 0}, False),
        (IDLE, {"clients": None}, False),
        (BUSY, {"clients": 1}, False),
        (Verdict(State.SUSPECT, Reason.DEFERRED), {"clients": 1}, True),
        (Verdict(State.WEDGED, Reason.DEFERRED), {"clients": 1}, True),
        (Verdict(State.SUSPECT, Reason.FROZEN), {"clients": 1}, False),
        (SLEEPING, {"clients": 1}, False),
        (Verdict(State.BLIND), {"slots": Slots(Outcome.UNSUPPORTED)}, True),
        (Verdict(State.BLIND), {"slots": Slots(Outcome.UNAUTHORIZED)}, True),
        (Verdict(State.SUSPECT, Reason.SLOTS_HANG), {"slots": Slots(Outcome.PENDING)}, False),
    ],
)
def test_metrics_only_where_they_tell_something(
    verdict: Verdict, parts: dict[str, object], wanted: bool
) -> None:
    """Each scrape resets the gauges that the user's own monitoring reads."""
    assert after(Asking(CPU_SERVER), idle(0.0, **parts), verdict).metrics is wanted
    assert after(Asking(CPU_SERVER, "on"), idle(0.0, **parts), verdict).metrics
    assert not after(Asking(CPU_SERVER, "off"), idle(0.0, **parts), verdict).metrics


def test_metrics_that_are_switched_off_are_not_asked_again() -> None:
    asking = Asking(CPU_SERVER)
    off = idle(5.0, clients=1, metrics=Metrics(Outcome.UNSUPPORTED))
    assert after(asking, idle(0.0, clients=1)).metrics
    assert not after(asking, off).metrics
    assert not after(asking, idle(10.0, clients=1)).metrics


def test_monitoring_that_keeps_its_connection_does_not_keep_the_server_awake() -> None:
    asking = Asking(replace(CPU_SERVER, can_sleep=True))
    for n in range(8):
        asking.see(replace(seen(5.0 * n, slot(busy=False)), clients=1), Verdict(State.IDLE))
    assert not asking.next(40.0).slots
    asking.see(replace(seen(40.0, slot(busy=False)), clients=2), Verdict(State.IDLE))
    assert asking.next(45.0).slots
