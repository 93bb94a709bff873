"""What the process and the GPU say of a standstill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from llama_watchdog.core.evidence import Evidence, EvidenceLog, stopped_by_hand
from llama_watchdog.core.observation import Gpu, Observation, Outcome, Process, Thread, Watch
from tests.support.facts import CPU_SERVER, IDLE_GPU, PID, process, seen, slot

Cpu = Callable[[int], tuple[float, ...]]


def evidence_of(
    cpu: Cpu,
    *,
    polls: int = 8,
    watch: Watch = CPU_SERVER,
    delivered: bool = True,
    gpu: Gpu | None = None,
    **process_facts: Any,
) -> Evidence:
    """The evidence after `polls` polls 5 s apart; `cpu` gives each thread's CPU seconds at poll n."""
    log = EvidenceLog(watch)
    for n in range(polls):
        facts = {name: value(n) if callable(value) else value for name, value in process_facts.items()}
        observation = seen(5.0 * n, slot(), process=process(cpu(n), **facts), gpu=gpu)
        log.see(observation)
    return log.judge(observation, delivered=delivered)[0]


def still(_: int) -> tuple[float, ...]:
    return 0.0, 0.0, 0.0, 0.0


def spin(n: int) -> tuple[float, ...]:
    return 5.0 * n, 0.0, 0.0, 0.0


def test_no_thread_works_is_blocked() -> None:
    assert evidence_of(still) is Evidence.BLOCKED


def test_http_threads_that_answer_probes_are_no_work() -> None:
    assert evidence_of(lambda n: (0.0, 0.1 * n, 0.05 * n)) is Evidence.BLOCKED


def test_a_retrying_client_that_has_its_prompt_tokenised_is_no_work() -> None:
    """Every third poll one HTTP thread has used 1.5 s: noise, as long as most of the time is quiet."""
    assert evidence_of(lambda n: (0.0, 1.5 * (n // 3))) is Evidence.BLOCKED


def test_one_whole_core_is_spinning() -> None:
    assert evidence_of(spin) is Evidence.SPINNING


def test_a_worker_that_spins_while_the_main_thread_waits_is_spinning() -> None:
    """Some builds decode in a worker: it is the shape that counts, not whose thread it is."""
    assert evidence_of(lambda n: (0.0, 0.0, 5.0 * n)) is Evidence.SPINNING


def starved(cpu: Callable[[int, int], float]) -> Evidence:
    """Four threads, those that use CPU runnable at every look; `cpu` of poll n and thread k."""
    log = EvidenceLog(CPU_SERVER)
    for n in range(10):
        used = [cpu(n, k) for k in range(4)]
        runs = [used[k] > cpu(max(0, n - 1), k) for k in range(4)]
        threads = tuple(Thread(PID + k, "R" if runs[k] else "S", used[k]) for k in range(4))
        observation = seen(5.0 * n, slot(), process=replace(process(), threads=threads))
        log.see(observation)
    return log.judge(observation, delivered=True)[0]


def test_a_thread_that_spins_on_a_crowded_machine_gets_less_than_a_core() -> None:
    assert starved(lambda n, k: 3.0 * n if k == 0 else 0.0) is Evidence.SPINNING


@pytest.mark.parametrize("share", [0.02, 0.05, 0.2, 0.6])
@pytest.mark.parametrize("workers", [(0, 1, 2), (1, 2, 3)], ids=["main thread too", "workers only"])
def test_a_starved_server_computes_however_little_its_threads_get(
    share: float, workers: tuple[int, ...]
) -> None:
    """As under a CPU quota: no thread comes near any threshold, but they are runnable at every look."""
    assert starved(lambda n, k: share * 5.0 * n if k in workers else 0.0) is Evidence.COMPUTING


def test_one_thread_that_tokenises_for_a_while_does_not_make_a_blocked_server_work() -> None:
    assert starved(lambda n, k: 5.0 if n >= 5 and k == 2 else 0.0) is Evidence.BLOCKED


def test_spinning_before_the_first_token_may_be_compiling() -> None:
    assert evidence_of(spin, delivered=False) is Evidence.COMPUTING


def test_one_thread_of_one_is_just_computing() -> None:
    assert evidence_of(spin, watch=replace(CPU_SERVER, compute_threads=1)) is Evidence.COMPUTING


@pytest.mark.parametrize("threads", [2, 8])
def test_several_busy_threads_compute(threads: int) -> None:
    assert evidence_of(lambda n: (5.0 * n,) * threads) is Evidence.COMPUTING


@pytest.mark.parametrize("figure", ["read_bytes", "major_faults"])
def test_reads_and_faults_are_paging(figure: str) -> None:
    growing: dict[str, Any] = {figure: lambda n: 4096 * n}
    assert evidence_of(still, **growing) is Evidence.PAGING


def test_uninterruptible_sleep_is_paging() -> None:
    assert evidence_of(still, state="D") is Evidence.PAGING


def test_a_still_process_with_a_busy_gpu_computes() -> None:
    watch = replace(CPU_SERVER, uses_gpu=True)
    assert evidence_of(still, watch=watch, gpu=Gpu(Outcome.OK, busy=1.0, own=1.0)) is Evidence.COMPUTING


def test_a_neighbours_load_is_not_ours() -> None:
    watch = replace(CPU_SERVER, uses_gpu=True)
    assert evidence_of(still, watch=watch, gpu=Gpu(Outcome.OK, busy=1.0, own=0.0)) is Evidence.BLOCKED


def test_an_idle_gpu_lets_a_still_process_be_blocked() -> None:
    assert evidence_of(still, watch=replace(CPU_SERVER, uses_gpu=True), gpu=IDLE_GPU) is Evidence.BLOCKED


@pytest.mark.parametrize("uses_gpu", [True, None])
@pytest.mark.parametrize("gpu", [None, Gpu(Outcome.UNSUPPORTED), Gpu(Outcome.TIMEOUT), Gpu(Outcome.OK)])
def test_a_gpu_whose_load_cannot_be_known_leaves_it_open(uses_gpu: bool | None, gpu: Gpu | None) -> None:
    watch = replace(CPU_SERVER, uses_gpu=uses_gpu)
    assert evidence_of(still, watch=watch, gpu=gpu) is Evidence.UNKNOWN
    assert evidence_of(spin, watch=watch, gpu=gpu) is Evidence.COMPUTING


def test_rpc_peers_work_where_we_cannot_see() -> None:
    assert evidence_of(still, watch=replace(CPU_SERVER, rpc=True)) is Evidence.COMPUTING


@pytest.mark.parametrize("facts", [None, Process(Outcome.UNSUPPORTED), Process(Outcome.TIMEOUT)])
def test_an_unreadable_process_may_be_computing(facts: Process | None) -> None:
    log = EvidenceLog(CPU_SERVER)
    for n in range(8):
        observation = seen(5.0 * n, slot(), process=facts)
        log.see(observation)
    assert log.judge(observation, delivered=True)[0] is Evidence.COMPUTING


def test_work_ends_a_stillness_at_once() -> None:
    assert evidence_of(lambda n: (5.0 * max(0, n - 5), 5.0 * max(0, n - 5))) is Evidence.COMPUTING


def test_looks_too_close_together_are_taken_as_one() -> None:
    """One clock tick within 50 ms is a fifth of a core, and means nothing."""
    log = EvidenceLog(CPU_SERVER)
    times = [0.0, 5.0, 10.0, 10.05]
    for n, at in enumerate(times):
        observation = seen(at, slot(), process=process((0.01 if n == 3 else 0.0, 0.0)))
        log.see(observation)
    assert log.judge(observation, delivered=True)[0] is Evidence.BLOCKED


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"state": "T"}, "stopped by a signal"),
        ({"state": "t", "tracer": 99}, "debugger"),
        ({"tracer": 99}, "debugger"),
        ({"frozen": True}, "cgroup is frozen"),
    ],
)
def test_a_process_stopped_by_a_person_is_told(facts: dict[str, Any], why: str) -> None:
    said = stopped_by_hand(process(**facts))
    assert said is not None
    assert why in said


def test_a_running_process_is_not_stopped_by_anybody() -> None:
    assert stopped_by_hand(process()) is None
    assert stopped_by_hand(Process(Outcome.UNSUPPORTED)) is None


def test_an_observation_without_a_process_says_nothing() -> None:
    log = EvidenceLog(CPU_SERVER)
    log.see(Observation(0.0))
    assert log.judge(Observation(0.0), delivered=True)[0] is Evidence.COMPUTING
