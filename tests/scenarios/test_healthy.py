"""Healthy servers that look bad: nothing is ever done to them."""

from __future__ import annotations

import pytest

from llama_watchdog.core.verdict import State
from llama_watchdog.simulator.config import Compute, ServerConfig, Task
from llama_watchdog.simulator.faults import Fault
from llama_watchdog.simulator.formats import FORMATS
from llama_watchdog.simulator.happenings import Happening, Request, Strike, Suspend, traffic
from llama_watchdog.simulator.traces import Watcher
from tests.support.play import Play

HOUR = 3600.0


def test_a_prefill_at_three_tokens_a_second_is_busy() -> None:
    play = Play(ServerConfig(prefill_rate=3.0), [Request(12.0, Task(prompt=3900, predict=10))]).run(
        0.5 * HOUR
    )
    assert play.done == []
    assert play.states == {State.IDLE, State.BUSY}


@pytest.mark.parametrize("compute", list(Compute))
def test_an_old_build_is_silent_for_an_hour(compute: Compute) -> None:
    config = ServerConfig(prefill_rate=0.55, answers_mid_step=False, compute=compute)
    play = Play(config, [Request(12.0, Task(prompt=2000, predict=10))]).run(1.2 * HOUR)
    assert play.done == []


@pytest.mark.parametrize("reads", [True, False], ids=["from disk", "from the page cache"])
def test_a_load_of_40_minutes(reads: bool) -> None:
    play = Play(ServerConfig(load_seconds=2400.0, load_reads=reads)).run(0.8 * HOUR)
    assert play.done == []


def test_a_download_of_an_hour_before_it_listens() -> None:
    assert Play(ServerConfig(download_seconds=HOUR)).run(1.2 * HOUR).done == []


def test_kernels_that_compile_for_minutes_before_the_first_token() -> None:
    config = ServerConfig(warmup_seconds=600.0, load_seconds=5.0)
    play = Play(config, [Request(20.0, Task(prompt=100, predict=100))]).run(0.5 * HOUR)
    assert play.done == []
    assert State.LOADING in play.states


@pytest.mark.parametrize("fault", [Fault.STOPPED, Fault.TRACED, Fault.CGROUP_FROZEN])
def test_a_process_stopped_by_a_person_for_20_minutes(fault: Fault) -> None:
    happenings: list[Happening] = [Request(12.0, Task(100, 3000)), Strike(30.0, fault)]
    happenings.append(Strike(1230.0, Fault.NONE))
    play = Play(happenings=happenings).run(0.5 * HOUR)
    assert play.done == []
    assert State.PAUSED in play.states


def test_a_host_that_sleeps_for_a_night() -> None:
    play = Play(happenings=[Request(12.0, Task(100, 3000)), Suspend(30.0, 8 * HOUR)]).run(HOUR)
    assert play.done == []


def test_asleep_for_two_hours_it_stays_asleep() -> None:
    play = Play(ServerConfig(sleep_idle_seconds=60.0), [Request(12.0, Task(50, 50))]).run(2 * HOUR)
    assert play.done == []
    assert play.verdicts[-1][1] is State.SLEEPING
    woken = [at for at, state in play.verdicts if state is not State.SLEEPING and at > 120.0]
    assert woken == []


def test_a_server_whose_pages_come_back_from_disk() -> None:
    happenings: list[Happening] = [Request(12.0, Task(100, 3000)), Strike(30.0, Fault.PAGING)]
    play = Play(happenings=[*happenings, Strike(330.0, Fault.NONE)]).run(0.2 * HOUR)
    assert play.done == []


def test_an_image_is_encoded_for_82_s() -> None:
    fast = [Request(10.0 + 20.0 * n, Task(prompt=500, predict=100)) for n in range(10)]
    image = Request(300.0, Task(prompt=500, predict=100, encode_seconds=82.0))
    assert Play(happenings=[*fast, image]).run(600.0).done == []


def test_every_slot_busy_with_a_queue_behind() -> None:
    queue = [Request(10.0 + n, Task(prompt=300, predict=600)) for n in range(60)]
    play = Play(ServerConfig(slots=8, endpoint_metrics=True), queue).run(HOUR)
    assert play.done == []


def test_an_hour_of_endless_generation() -> None:
    config = ServerConfig(context=1 << 20)
    play = Play(config, [Request(12.0, Task(prompt=100, predict=-1))]).run(HOUR)
    assert play.done == []
    assert play.verdicts[-1][1] is State.BUSY


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_half_an_hour_of_traffic_in_every_format(name: str) -> None:
    happenings = traffic(until=0.5 * HOUR, every=15.0)
    play = Play(ServerConfig(half_rate_depth=2000, variation=0.3), happenings, form=FORMATS[name]).run(HOUR)
    assert play.done == []


@pytest.mark.parametrize(
    "watcher",
    [
        Watcher(sees_process=False),
        Watcher(sees_io=False),
        Watcher(has_key=False),
        Watcher(interval=1.0),
        Watcher(interval=30.0),
    ],
    ids=["no process", "no io", "no key", "1 s", "30 s"],
)
def test_traffic_seen_with_few_rights_or_at_odd_intervals(watcher: Watcher) -> None:
    happenings = traffic(until=0.5 * HOUR, every=15.0)
    assert Play(happenings=happenings, watcher=watcher).run(0.5 * HOUR).done == []
