"""How a simulated server ends, or does not: SIGTERM once and twice, healthy and wedged."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from llama_watchdog.simulator.config import ServerConfig, Task
from llama_watchdog.simulator.faults import Fault
from llama_watchdog.simulator.model import ServerModel


def decoding(fault: Fault, config: ServerConfig | None = None) -> tuple[ServerModel, int]:
    """A server that was struck at second 10, in the middle of a generation."""
    model = ServerModel(config)
    task = model.submit(0.0, Task(predict=3000))
    model.strike(10.0, fault)
    return model, task


def test_sigterm_ends_a_loading_server_at_once() -> None:
    model = ServerModel(ServerConfig(load_seconds=60.0), fault=Fault.LOAD_HANG)
    model.terminate(10.0)
    assert not model.alive


def test_sigterm_ends_a_healthy_server_after_its_step() -> None:
    idle = ServerModel()
    idle.terminate(1.0)
    assert not idle.alive
    model = ServerModel(ServerConfig(prefill_rate=100.0))
    task = model.submit(0.0, Task(prompt=4000))
    model.terminate(1.0)
    assert model.slots(2.0) is None
    assert model.health(2.0) is not None
    model.cancel(3.0, task)
    model.advance(20.0)
    assert model.alive
    model.advance(20.5)  # the batch of 2048 is over
    assert not model.alive


@pytest.mark.parametrize(
    "ends",
    [ServerModel.terminate, lambda model, now: model.cancel(now, 0)],
    ids=["second SIGTERM", "client leaves"],
)
def test_after_sigterm_clients_keep_the_process(ends: Callable[[ServerModel, float], None]) -> None:
    """As on b11669: the port closes, and the process lives on, using nothing."""
    model, _ = decoding(Fault.NONE)
    model.terminate(10.0)
    model.advance(600.0)
    assert model.alive
    assert not model.listening
    used = [model.process(at).cpu or 0 for at in (600.0, 700.0)]
    assert used[1] - used[0] < 1
    ends(model, 700.0)
    assert not model.alive


@pytest.mark.parametrize("fault", [Fault.BLOCK, Fault.SPIN, Fault.FREEZE])
def test_a_wedged_loop_ignores_the_first_sigterm_not_the_second(fault: Fault) -> None:
    model, _ = decoding(fault)
    model.terminate(20.0)
    assert model.alive
    assert model.health(600.0) is not None
    assert model.slots(600.0) is None
    model.terminate(600.0)
    assert not model.alive


def test_the_second_sigterm_may_hang_too() -> None:
    model, _ = decoding(Fault.BLOCK, ServerConfig(second_sigterm_hangs=True))
    model.terminate(20.0)
    model.terminate(30.0)
    assert model.alive
    model.kill(40.0)
    assert not model.alive


def test_sigterm_ends_a_loop_that_turns_in_spite_of_a_frozen_task() -> None:
    model, task = decoding(Fault.FROZEN_UNTIL_CANCEL)
    model.terminate(20.0)
    assert not model.listening
    model.cancel(21.0, task)
    assert not model.alive
