"""Every fault of the simulated server, as a watcher sees it."""

from __future__ import annotations

import pytest

from llama_watchdog.simulator.config import Compute, ServerConfig, Task
from llama_watchdog.simulator.faults import Fault
from llama_watchdog.simulator.model import ServerModel

NEWER = ServerConfig(decode_rate=32.0)
OLDER = ServerConfig(decode_rate=32.0, answers_mid_step=False)


def decoding(fault: Fault, config: ServerConfig = NEWER) -> tuple[ServerModel, int]:
    """A server that was struck at second 10, in the middle of a generation."""
    model = ServerModel(config)
    task = model.submit(0.0, Task(predict=3000))
    model.strike(10.0, fault)
    return model, task


def decoded(model: ServerModel, now: float, slot: int = 0) -> int | None:
    """Tokens of a slot, `None` while /slots hangs."""
    slots = model.slots(now)
    return slots[slot].decoded if slots else None


def cores(model: ServerModel, since: float, until: float) -> list[float]:
    """Cores used in between, of each thread."""
    before, after = model.process(since).threads, model.process(until).threads
    assert before is not None
    assert after is not None
    return [(b.cpu - a.cpu) / (until - since) for a, b in zip(before, after, strict=True)]


@pytest.mark.parametrize("fault", [Fault.BLOCK, Fault.SPIN, Fault.SPIN_ALL, Fault.PAGING])
def test_a_stuck_loop_answers_as_it_was_caught(fault: Fault) -> None:
    """In mid-step: frozen counters on newer builds, silence on older ones. Idle: silence on both."""
    model, _ = decoding(fault)
    assert decoded(model, 11.0) == decoded(model, 99.0) == 320  # 10 s at 32 tokens a second
    older, _ = decoding(fault, OLDER)
    assert older.slots(11.0) is None
    assert older.slots(99.0, asked=11.0) is None
    for config in (NEWER, OLDER):
        idle = ServerModel(config)
        idle.strike(10.0, fault)
        assert idle.slots(11.0) is None
        assert idle.metrics(11.0) is None
        assert idle.health(11.0) is not None


@pytest.mark.parametrize("config", [NEWER, OLDER])
def test_freeze_answers_with_frozen_counters_on_any_build(config: ServerConfig) -> None:
    model, _ = decoding(Fault.FREEZE, config)
    assert decoded(model, 11.0) == decoded(model, 99.0) is not None


def test_hang_slots_silences_the_queue_and_nothing_else() -> None:
    model, _ = decoding(Fault.HANG_SLOTS)
    assert model.slots(11.0) is None
    assert model.metrics(11.0) is None
    assert model.health(11.0) is not None
    assert model.props(11.0) is not None


@pytest.mark.parametrize(
    ("fault", "main", "helper"),
    [
        (Fault.BLOCK, 0.0, 0.0),
        (Fault.FREEZE, 0.0, 0.0),
        (Fault.HANG_SLOTS, 0.0, 0.0),
        (Fault.SPIN, 1.0, 0.0),
        (Fault.CHURN, 1.0, 0.0),
        (Fault.SPIN_ALL, 1.0, 1.0),
        (Fault.NONE, 1.0, 1.0),
    ],
)
def test_who_burns_cpu(fault: Fault, main: float, helper: float) -> None:
    model, _ = decoding(fault)
    threads = cores(model, 11.0, 61.0)
    assert threads[0] == pytest.approx(main, abs=0.005)
    assert threads[1] == pytest.approx(helper, abs=0.005)
    assert 0 < sum(threads[4:]) < 0.02  # HTTP threads are never quite still


def test_compute_shows_where_it_is_done() -> None:
    def shows(compute: Compute, fault: Fault = Fault.NONE) -> tuple[float, float, bool]:
        model, _ = decoding(fault, ServerConfig(compute=compute))
        threads = cores(model, 11.0, 61.0)
        return round(threads[0], 1), round(threads[1], 1), (model.gpu(61.0).own or 0) > 0.5

    assert shows(Compute.CPU) == (1.0, 1.0, False)
    assert shows(Compute.CPU_WORKER) == (0.0, 1.0, False)
    assert shows(Compute.GPU) == (1.0, 0.0, True)
    assert shows(Compute.RPC) == (0.0, 0.0, False)
    assert shows(Compute.GPU, Fault.SPIN) == (1.0, 0.0, False)
    assert shows(Compute.GPU, Fault.SPIN_ALL) == (1.0, 0.0, True)


def test_a_lifted_fault_lets_the_loop_go_on_where_it_stood() -> None:
    model, task = decoding(Fault.BLOCK)
    stood = decoded(model, 60.0)
    model.strike(60.0, Fault.NONE)
    assert decoded(model, 60.0) == stood
    model.advance(60.0 + 3000 / 32)
    assert model.task(task) == (3000, True)


def test_a_client_that_leaves_frees_a_slot_of_a_loop_that_turns() -> None:
    model, task = decoding(Fault.NONE)
    model.cancel(11.0, task)
    slots = model.slots(11.1)
    assert slots is not None
    assert not slots[0].processing
    assert model.clients == 0


@pytest.mark.parametrize("fault", [Fault.BLOCK, Fault.SPIN, Fault.FREEZE, Fault.HANG_SLOTS])
def test_a_client_that_leaves_frees_nothing_in_a_stuck_loop(fault: Fault) -> None:
    model, task = decoding(fault)
    model.cancel(20.0, task)
    model.advance(99.0)
    assert not model.task(task).over


def test_frozen_until_cancel_stands_until_its_client_leaves() -> None:
    model, task = decoding(Fault.FROZEN_UNTIL_CANCEL)
    stood = decoded(model, 11.0)
    assert decoded(model, 99.0) == stood
    assert sum(cores(model, 20.0, 90.0)) < 0.02
    model.cancel(100.0, task)
    slots = model.slots(100.1)
    assert slots is not None
    assert not slots[0].processing
    after = model.submit(101.0, Task(predict=10))
    model.advance(105.0)
    assert model.task(after) == (10, True)


def test_frozen_until_cancel_lets_other_slots_move() -> None:
    model, _ = decoding(Fault.FROZEN_UNTIL_CANCEL)
    model.submit(20.0, Task(predict=3000))
    assert decoded(model, 30.0, slot=0) == decoded(model, 60.0, slot=0)
    assert (decoded(model, 60.0, slot=1) or 0) > (decoded(model, 61.0, slot=1) or 0) - 40 > 1000


@pytest.mark.parametrize("from_the_start", [True, False])
def test_frozen_until_cancel_waits_for_a_task_to_strike(from_the_start: bool) -> None:
    model = ServerModel(NEWER, fault=Fault.FROZEN_UNTIL_CANCEL if from_the_start else Fault.NONE)
    model.strike(1.0, Fault.FROZEN_UNTIL_CANCEL)
    first = model.submit(5.0, Task(predict=10))
    second = model.submit(6.0, Task(predict=10))
    model.advance(20.0)
    assert not model.task(first).over
    assert model.task(second) == (10, True)


def test_churn_gives_new_names_to_the_same_standstill() -> None:
    model, _ = decoding(Fault.CHURN)
    ids, tokens = set(), set()
    for now in range(20, 60, 5):
        slots = model.slots(float(now))
        assert slots is not None
        ids.add(slots[0].task)
        tokens.add((slots[0].prompt, slots[0].processed, slots[0].decoded))
    assert len(ids) == 8
    assert tokens == {(0, 0, 0)}


def test_deaf_defers_all_that_comes_and_starts_none() -> None:
    model = ServerModel(NEWER)
    early = model.submit(0.0, Task(predict=50))
    model.strike(1.0, Fault.DEAF)
    model.submit(2.0, Task())
    model.submit(3.0, Task())
    metrics = model.metrics(60.0)
    assert metrics is not None
    assert (metrics.processing, metrics.deferred) == (0, 2)
    assert model.task(early) == (50, True)
    slots = model.slots(60.0)
    assert slots is not None
    assert not any(slot.processing for slot in slots)
    model.strike(61.0, Fault.NONE)
    assert decoded(model, 62.0) is not None
    assert model.clients == 2


@pytest.mark.parametrize(("fault", "busy"), [(Fault.LOAD_HANG, 0.0), (Fault.LOAD_SPIN, 1.0)])
def test_a_load_that_hangs_shows_no_progress(fault: Fault, busy: float) -> None:
    model = ServerModel(ServerConfig(load_seconds=60.0))
    model.strike(30.0, fault)
    before, after = model.process(31.0), model.process(4000.0)
    assert (before.rss, before.read_bytes) == (after.rss, after.read_bytes)
    assert cores(model, 4000.0, 4100.0)[0] == pytest.approx(busy, abs=0.01)
    health = model.health(4100.0)
    assert health is not None
    assert health.loading


def test_load_faults_do_nothing_to_a_loaded_server() -> None:
    model, _ = decoding(Fault.LOAD_HANG)
    assert (decoded(model, 20.0) or 0) > 400


def test_paging_grows_faults_and_reads() -> None:
    model, _ = decoding(Fault.PAGING)
    before, after = model.process(20.0), model.process(30.0)
    assert after.state == "D"
    assert (after.major_faults or 0) > (before.major_faults or 0)
    assert (after.read_bytes or 0) > (before.read_bytes or 0)


@pytest.mark.parametrize(
    ("fault", "state", "traced", "frozen"),
    [
        (Fault.STOPPED, "T", False, False),
        (Fault.TRACED, "t", True, False),
        (Fault.CGROUP_FROZEN, "S", False, True),
    ],
)
def test_a_halted_process_answers_nothing_and_uses_nothing(
    fault: Fault, state: str, traced: bool, frozen: bool
) -> None:
    model, _ = decoding(fault)
    process = model.process(20.0)
    assert (process.state, process.tracer > 0, process.frozen) == (state, traced, frozen)
    assert {thread.state for thread in process.threads or ()} == {state}
    assert (model.health(20.0), model.slots(20.0), model.props(20.0)) == (None, None, None)
    assert model.listening
    assert sum(cores(model, 20.0, 90.0)) == 0
    model.strike(100.0, Fault.NONE)
    assert (decoded(model, 110.0) or 0) > 500


def test_no_listen_refuses_while_the_process_lives() -> None:
    model, _ = decoding(Fault.NO_LISTEN)
    assert not model.listening
    assert model.alive
