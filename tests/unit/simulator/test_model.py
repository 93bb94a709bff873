"""The simulated server in virtual time: its counters and its queue."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llama_watchdog.simulator.config import ServerConfig, SlotState, Task
from llama_watchdog.simulator.model import ServerModel

EXACT = ServerConfig(slots=2, prefill_rate=512.0, decode_rate=32.0)  # rates whose sums have no rounding
OLDER = ServerConfig(slots=2, prefill_rate=512.0, decode_rate=32.0, answers_mid_step=False)


def see(model: ServerModel, now: float) -> list[SlotState]:
    slots = model.slots(now)
    assert slots is not None, "/slots hangs"
    return slots


def counters(model: ServerModel, now: float, slot: int = 0) -> tuple[int, int, int]:
    state = see(model, now)[slot]
    return state.prompt, state.processed, state.decoded


def test_counters_move_once_a_batch_as_on_the_real_server() -> None:
    """The numbers are those of b11669 on a prompt of 2801 tokens with n_predict 3, batches of 2048."""
    model = ServerModel(ServerConfig(prefill_rate=2048.0, decode_rate=10.0))
    model.submit(0.0, Task(prompt=2801, predict=3))
    assert counters(model, 0.0) == counters(model, 0.9) == (2048, 0, 0)
    assert counters(model, 1.1) == (2801, 2048, 0)
    assert counters(model, 1.4) == (2802, 2801, 1)
    idle = see(model, 2.0)[0]
    assert (idle.processing, idle.prompt, idle.processed, idle.decoded) == (False, 2803, 0, 0)


def test_two_prompts_share_one_batch() -> None:
    model = ServerModel(ServerConfig(slots=2, prefill_rate=1024.0))
    model.submit(0.0, Task(prompt=8, predict=1))
    for _ in range(2):
        model.submit(0.001, Task(prompt=2000))
    assert [counters(model, 1.0, slot)[0] for slot in (0, 1)] == [2000, 48]


def test_an_idle_slot_goes_on_showing_its_last_task() -> None:
    model = ServerModel(EXACT)
    assert see(model, 0.0)[0].task == -1
    task = model.submit(1.0, Task(prompt=8, predict=4))
    assert see(model, 9.0)[0].task == task
    assert see(model, 9.0)[0].remaining == -1
    assert see(model, 9.0)[1].task == -1


def test_a_long_prefill_of_one_slot_holds_up_the_others() -> None:
    model = ServerModel(EXACT)
    model.submit(0.0, Task(prompt=8, predict=1000))
    before = counters(model, 2.0)[2]
    assert before > 50
    model.submit(2.0, Task(prompt=2000, predict=5))
    assert counters(model, 5.0)[2] <= before + 1  # 2000 tokens take some 4 s
    assert counters(model, 8.0)[2] > before + 30


def test_more_requests_than_slots_are_deferred_until_one_is_free() -> None:
    model = ServerModel(EXACT)
    tasks = [model.submit(0.0, Task(prompt=8, predict=320)) for _ in range(5)]
    metrics = model.metrics(1.0)
    assert metrics is not None
    assert (metrics.processing, metrics.deferred) == (2, 3)
    assert model.clients == 5
    assert not model.task(tasks[4]).over
    assert model.task(tasks[0]).decoded > 0
    assert {slot.task for slot in see(model, 15.0)} == set(tasks[2:4])
    assert model.task(tasks[0]) == (320, True)
    assert model.clients == 3


def test_the_slot_that_has_been_idle_longest_is_taken() -> None:
    model = ServerModel(EXACT)
    taken = []
    for now in range(0, 40, 10):
        task = model.submit(float(now), Task(predict=4))
        taken += [slot.id for slot in see(model, float(now)) if slot.task == task]
    assert taken == [0, 1, 0, 1]


def test_a_task_ends_where_its_context_is_full() -> None:
    model = ServerModel(ServerConfig(context=100, decode_rate=32.0))
    endless = model.submit(0.0, Task(prompt=60, predict=-1))
    long = model.submit(0.0, Task(prompt=60, predict=500))
    assert [slot.remaining for slot in see(model, 0.5)[:2]] == [-1, 492]
    assert [slot.prompt for slot in see(model, 60.0)[:2]] == [100, 100]
    assert model.task(endless).over
    assert model.task(long).over


def test_a_deferred_client_may_leave() -> None:
    model = ServerModel(EXACT)
    tasks = [model.submit(0.0, Task(predict=64)) for _ in range(3)]
    model.cancel(0.5, tasks[2])
    assert model.clients == 2
    assert model.task(tasks[2]).over
    assert {slot.task for slot in see(model, 30.0)} == set(tasks[:2])


def test_tasks_of_long_ago_are_forgotten() -> None:
    """Memory stays constant over days."""
    model = ServerModel(EXACT)
    first = model.submit(0.0, Task(predict=2))
    for now in range(1, 301):
        last = model.submit(float(now), Task(predict=2))
    model.advance(400.0)
    assert model.task(last) == (2, True)
    assert model.task(first) == (0, True)


def test_a_prompt_beyond_the_context_is_refused() -> None:
    with pytest.raises(ValueError, match="4096"):
        ServerModel().submit(0.0, Task(prompt=5000))


def test_an_embedding_never_moves_n_decoded() -> None:
    model = ServerModel(EXACT)
    task = model.submit(0.0, Task(prompt=1024, predict=0))
    assert counters(model, 1.0) == (1024, 0, 0)
    assert counters(model, 3.0)[2] == 0
    assert model.task(task) == (0, True)


def test_nothing_moves_while_an_image_is_encoded() -> None:
    """And the CPU works all the while."""
    model = ServerModel(EXACT)
    model.submit(0.0, Task(prompt=8, predict=100, encode_seconds=60.0))
    assert counters(model, 59.0) == (0, 0, 0)
    assert (model.process(59.0).cpu or 0) > 200
    assert counters(model, 62.0)[2] > 10


def test_rates_fall_with_the_depth_of_the_context() -> None:
    config = ServerConfig(context=10000, batch_size=512, prefill_rate=512.0, half_rate_depth=4096)
    model = ServerModel(config)
    model.submit(0.0, Task(prompt=9000))
    early = counters(model, 10.0)[1]
    late = -counters(model, 20.0)[1] + counters(model, 30.0)[1]
    assert early > 1.5 * late > 0


def test_each_task_has_a_pace_of_its_own() -> None:
    model = ServerModel(ServerConfig(slots=8, variation=0.5), seed=3)
    paces = set()
    for _ in range(4):
        now = model.clock
        model.submit(now, Task(prompt=8, predict=1000))
        paces.add(sum(slot.decoded for slot in see(model, now + 10.0)))
        model.restart(model.clock)
    assert len(paces) == 4


@settings(max_examples=50, deadline=None)
@example(looks=[205], half_rate_depth=256, tasks=[(149, 111), (252, 111), (727, 179), (9, 0)])
@given(
    looks=st.lists(st.integers(1, 400), max_size=30),
    half_rate_depth=st.sampled_from([0, 256]),
    tasks=st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 300)), min_size=1, max_size=5),
)
def test_how_often_it_is_looked_at_changes_nothing(
    looks: list[int], half_rate_depth: int, tasks: list[tuple[int, int]]
) -> None:
    """Steps are leapt when nobody looks: they must come to the same as one by one."""
    config = replace(EXACT, half_rate_depth=half_rate_depth)
    rare, often = ServerModel(config), ServerModel(config)
    for model in (rare, often):
        for prompt, predict in tasks:
            model.submit(0.0, Task(prompt=prompt, predict=predict))
    for look in sorted(looks):
        often.advance(look / 16)
    end = 30.0
    assert see(rare, end) == see(often, end)
    assert rare.metrics(end) == often.metrics(end)


def test_an_older_build_answers_when_the_step_ends() -> None:
    model = ServerModel(OLDER)
    assert model.slots(0.0) is not None  # idle: at once
    model.submit(1.0, Task(prompt=4000, predict=10))
    assert model.slots(2.0) is None  # in a step of 4 s
    assert model.slots(4.9, asked=2.0) is None
    assert model.slots(5.1, asked=2.0) is not None  # that step has ended, the next one runs
    assert model.slots(5.1) is None
    assert model.metrics(5.2) is None


def test_health_does_not_wait_for_the_loop_unless_the_build_puts_it_there() -> None:
    model = ServerModel(OLDER)
    queued = ServerModel(ServerConfig(answers_mid_step=False, health_in_queue=True))
    for each in (model, queued):
        each.submit(0.0, Task(prompt=4000))
    assert model.health(1.0) is not None
    assert queued.health(1.0) is None
    loading = ServerModel(ServerConfig(health_in_queue=True, load_seconds=10.0)).health(1.0)
    assert loading is not None
    assert loading.loading
