"""Requests in flight to a simulated server: pending, late, timed out, reset."""

from __future__ import annotations

from llama_watchdog.core.observation import Observation, Outcome
from llama_watchdog.simulator.config import ServerConfig, Task
from llama_watchdog.simulator.faults import Fault
from llama_watchdog.simulator.happenings import Happening, Request, Restart, Sigkill, Sigterm, Strike
from llama_watchdog.simulator.model import ServerModel
from llama_watchdog.simulator.traces import Watcher, observe

OLDER = ServerConfig(answers_mid_step=False)


def watch(
    *happenings: Happening,
    until: float = 100.0,
    config: ServerConfig | None = None,
    interval: float = 5.0,
) -> list[Observation]:
    watcher = Watcher(interval=interval, jitter=0.0)
    return list(observe(ServerModel(config), happenings, until=until, watcher=watcher))


def outcomes(observations: list[Observation], part: str = "slots") -> list[Outcome]:
    return [getattr(observation, part).outcome for observation in observations]


def test_a_hanging_question_is_pending_then_timed_out_then_asked_anew() -> None:
    seen = watch(Strike(12.0, Fault.HANG_SLOTS), until=40.0)
    hanging = [(o.at, o.slots.outcome, o.slots.seconds) for o in seen if o.slots and o.at >= 15.0]
    assert hanging == [
        (15.0, Outcome.PENDING, 1.0),
        (20.0, Outcome.PENDING, 6.0),
        (25.0, Outcome.TIMEOUT, 10.0),
        (30.0, Outcome.PENDING, 1.0),
        (35.0, Outcome.PENDING, 6.0),
    ]
    assert set(outcomes(seen, "health")) == {Outcome.OK}


def test_an_answer_that_comes_late_is_reported_by_the_next_poll() -> None:
    """An older build in a step of 4 s, asked in its middle."""
    config = ServerConfig(answers_mid_step=False)
    seen = watch(Request(4.0, Task(prompt=2000, predict=2000)), config=config, until=20.0)
    assert [o.slots.outcome for o in seen if o.slots][1:3] == [Outcome.PENDING, Outcome.OK]
    late = seen[2].slots
    assert late is not None
    assert late.seconds > 1


def test_an_answer_within_its_timeout_counts_even_if_no_poll_looks() -> None:
    """A step of 6 s, polls every 30 s."""
    config = ServerConfig(answers_mid_step=False, prefill_rate=100.0)
    seen = watch(Request(28.0, Task(prompt=1000, predict=3)), config=config, interval=30.0)
    assert outcomes(seen) == [Outcome.OK, Outcome.PENDING, Outcome.OK, Outcome.OK]


def test_an_answer_after_its_timeout_counts_for_nothing() -> None:
    """A step of 15 s, polls every 30 s."""
    config = ServerConfig(answers_mid_step=False, prefill_rate=100.0)
    seen = watch(Request(28.0, Task(prompt=1500, predict=3)), config=config, interval=30.0)
    assert outcomes(seen) == [Outcome.OK, Outcome.PENDING, Outcome.TIMEOUT, Outcome.OK]


def test_a_question_in_flight_is_reset_by_the_end_of_the_process() -> None:
    seen = watch(Strike(12.0, Fault.BLOCK), Sigkill(17.0), until=35.0)
    assert outcomes(seen)[3:6] == [Outcome.PENDING, Outcome.ERROR, Outcome.REFUSED]
    seen = watch(Strike(12.0, Fault.BLOCK), Sigkill(17.0), Restart(18.0), until=35.0)
    assert outcomes(seen)[3:6] == [Outcome.PENDING, Outcome.ERROR, Outcome.OK]


def test_a_port_that_closes_leaves_open_questions_pending() -> None:
    """The old one hangs on its open connection, the next one is refused."""
    config = ServerConfig(prefill_rate=100.0)
    request = Request(1.0, Task(prompt=1500), leaves_after=30.0)
    seen = watch(request, Sigterm(8.0), config=config, until=50.0)
    assert outcomes(seen)[2:8] == [
        Outcome.PENDING,
        Outcome.PENDING,
        Outcome.TIMEOUT,
        Outcome.REFUSED,
        Outcome.REFUSED,
        Outcome.REFUSED,
    ]
    assert outcomes(seen, "process")[5:] == [Outcome.OK, Outcome.OK, Outcome.GONE, Outcome.GONE, Outcome.GONE]
