"""The life of a simulated server in virtual time: loading, sleep, incarnations."""

from __future__ import annotations

import pytest

from llama_watchdog.core.observation import Outcome
from llama_watchdog.simulator.config import ServerConfig, Task
from llama_watchdog.simulator.faults import Fault
from llama_watchdog.simulator.model import ServerModel


def decoded(model: ServerModel, now: float, slot: int = 0) -> int:
    slots = model.slots(now)
    assert slots is not None, "/slots hangs"
    return slots[slot].decoded


def test_loading_shows_by_reads_or_by_memory() -> None:
    from_disk = ServerModel(ServerConfig(load_seconds=100.0))
    cached = ServerModel(ServerConfig(load_seconds=100.0, load_reads=False))
    for model in (from_disk, cached):
        health = model.health(50.0)
        assert health is not None
        assert health.loading
        assert model.slots(50.0) is None
    assert (from_disk.process(50.0).read_bytes or 0) == pytest.approx(2 << 30, rel=0.01)
    assert cached.process(50.0).read_bytes == 0
    half = cached.process(50.0).rss or 0
    assert (cached.process(60.0).rss or 0) > half
    assert not from_disk.loading or from_disk.slots(101.0) is not None


def test_a_download_comes_before_listening() -> None:
    model = ServerModel(ServerConfig(download_seconds=60.0, load_seconds=10.0))
    assert not model.listening
    assert (model.process(30.0).write_bytes or 0) > 0
    model.advance(65.0)
    assert model.listening
    assert model.loading
    model.advance(75.0)
    assert not model.loading


def test_the_first_work_after_a_load_may_take_minutes_of_one_thread() -> None:
    model = ServerModel(ServerConfig(warmup_seconds=120.0))
    model.submit(0.0, Task())
    process = model.process(100.0)
    assert process.threads is not None
    assert [thread.state for thread in process.threads[:3]] == ["R", "S", "S"]
    assert decoded(model, 119.0) == 0
    model.submit(130.0, Task())
    assert decoded(model, 131.0, slot=1) > 0


def test_only_slots_and_work_keep_it_awake_or_wake_it() -> None:
    model = ServerModel(ServerConfig(sleep_idle_seconds=60.0, load_seconds=10.0))
    model.slots(50.0)
    model.health(100.0)
    model.props(105.0)
    model.metrics(105.0)
    awake = model.props(109.0)
    assert awake is not None
    assert not awake.sleeping
    asleep = model.props(111.0)  # 60 s after /slots
    assert asleep is not None
    assert asleep.sleeping
    assert (model.process(111.0).rss or 0) < 1 << 30
    assert model.metrics(112.0) is not None
    assert model.slots(120.0) is None  # it wakes, and /health says ok all the while
    waking = model.health(121.0)
    assert waking is not None
    assert not waking.loading
    assert model.slots(131.0) is not None


def test_work_wakes_it_and_is_done() -> None:
    model = ServerModel(ServerConfig(sleep_idle_seconds=10.0, load_seconds=10.0))
    model.advance(60.0)
    task = model.submit(60.0, Task(predict=20))
    model.advance(69.0)
    assert not model.task(task).over
    model.advance(75.0)
    assert model.task(task) == (20, True)


def test_a_new_process_is_another_incarnation() -> None:
    model = ServerModel(ServerConfig())
    model.submit(0.0, Task())
    before = model.process(100.0)
    model.kill(100.0)
    assert model.process(101.0).outcome is Outcome.GONE
    assert not model.listening
    model.restart(110.0)
    after = model.process(111.0)
    assert (before.pid, before.start_ticks) != (after.pid, after.start_ticks)
    assert (after.cpu or 0) < (before.cpu or 0)
    slots = model.slots(111.0)
    assert slots is not None
    assert slots[0].task == -1


def test_a_model_is_reproducible() -> None:
    def cpu(seed: int) -> list[float | None]:
        model = ServerModel(ServerConfig(variation=0.3), seed=seed)
        model.submit(0.0, Task(predict=900))
        return [model.process(float(now)).cpu for now in range(0, 3600, 60)]

    assert cpu(1) == cpu(1)
    assert cpu(1) != cpu(2)


def test_a_crash_ends_the_process() -> None:
    model = ServerModel()
    model.strike(5.0, Fault.CRASH)
    assert not model.alive
    assert not model.listening
