"""The judge: what is seen, and the verdict that follows. Kinds K1.. and F1.. are told as small stories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from llama_watchdog.core.evidence import Evidence
from llama_watchdog.core.judge import Judge
from llama_watchdog.core.observation import Health, Metrics, Observation, Outcome, Process, Props, Slots, Unit
from llama_watchdog.core.policy import StallPolicy
from llama_watchdog.core.verdict import Reason, State, Verdict
from tests.support.facts import CPU_SERVER, judged, process, seen, slot

STEP = 5.0
Poll = Callable[[int], Observation]


def working(n: int) -> Observation:
    """A poll of a server that decodes, all its threads at work."""
    return seen(STEP * n, slot(decoded=10 * n), cpu=(STEP * n, STEP * n))


def story(*chapters: tuple[int, Poll]) -> list[tuple[float, Verdict]]:
    """The verdicts on chapters of so many polls each, 5 s apart."""
    polls = [tell for count, tell in chapters for _ in range(count)]
    return list(judged(tell(n) for n, tell in enumerate(polls)))


def first(verdicts: list[tuple[float, Verdict]], state: State) -> float | None:
    return next((at for at, verdict in verdicts if verdict.state is state), None)


def states(verdicts: list[tuple[float, Verdict]]) -> set[State]:
    return {verdict.state for _, verdict in verdicts}


def frozen(n: int) -> Observation:
    return seen(STEP * n, slot(decoded=30), cpu=(20.0, 20.0))


def hanging(n: int) -> Observation:
    return seen(STEP * n, hangs=STEP, cpu=(20.0, 20.0))


def test_a_decoding_server_is_busy_and_an_idle_one_idle() -> None:
    assert states(story((5, working))) == {State.BUSY}
    assert states(story((5, lambda n: seen(STEP * n, slot(busy=False))))) == {State.IDLE}


def test_frozen_counters_and_a_still_process_are_a_wedge_within_the_budget() -> None:
    verdicts = story((5, working), (12, frozen))
    wedged_at = first(verdicts, State.WEDGED)
    assert wedged_at is not None
    assert 30.0 <= wedged_at - 20.0 <= 30.0 + 2 * STEP
    verdict = verdicts[-1][1]
    assert (verdict.reason, verdict.evidence, verdict.slots) == (Reason.FROZEN, Evidence.BLOCKED, (0,))
    assert verdict.fault


def test_a_suspicion_comes_before_the_proof() -> None:
    verdicts = story((5, working), (12, frozen))
    suspect, wedged = first(verdicts, State.SUSPECT), first(verdicts, State.WEDGED)
    assert suspect is not None
    assert wedged is not None
    assert suspect < wedged
    assert not any(verdict.fault for at, verdict in verdicts if at < wedged)


@pytest.mark.parametrize("health", [Outcome.OK, Outcome.TIMEOUT])
def test_slots_that_never_answer_are_a_wedge_whatever_health_says(health: Outcome) -> None:
    verdicts = story((5, working), (12, lambda n: replace(hanging(n), health=Health(health))))
    reason = Reason.SLOTS_HANG if health is Outcome.OK else Reason.DEAF
    assert verdicts[-1][1].fault
    assert verdicts[-1][1].reason is reason


def test_a_server_wedged_while_idle_is_found() -> None:
    verdicts = story(
        (5, lambda n: seen(STEP * n, slot(busy=False))), (12, lambda n: seen(STEP * n, hangs=STEP))
    )
    assert verdicts[-1][1].fault


def test_a_spinning_thread_is_a_wedge_after_its_own_budget() -> None:
    verdicts = story((5, working), (20, lambda n: seen(STEP * n, slot(decoded=30), cpu=(STEP * n, 20.0))))
    wedged_at = first(verdicts, State.WEDGED)
    assert wedged_at is not None
    assert 60.0 <= wedged_at - 20.0 <= 60.0 + 2 * STEP
    assert verdicts[-1][1].evidence is Evidence.SPINNING


def test_the_first_work_after_a_start_is_loading_however_long_one_thread_takes() -> None:
    """Kernels compile for minutes in one busy thread, before any token."""
    verdicts = story((200, lambda n: seen(STEP * n, slot(), cpu=(STEP * n, 0.0))))
    assert State.LOADING in states(verdicts)
    assert not any(verdict.fault for _, verdict in verdicts)


def test_a_slow_prefill_is_busy() -> None:
    """One step of 2,048 tokens at 3 tokens/s: eleven minutes without a counter moving."""
    verdicts = story(
        (5, working),
        (132, lambda n: seen(STEP * n, slot(task=2, prompt=2048), cpu=(STEP * n, STEP * n))),
    )
    assert states(verdicts) == {State.BUSY}


def test_an_old_build_may_be_silent_for_an_hour_while_it_computes() -> None:
    verdicts = story((3, working), (720, lambda n: seen(STEP * n, hangs=STEP, cpu=(STEP * n, STEP * n))))
    assert states(verdicts) == {State.BUSY}


def test_a_build_that_answers_in_mid_step_has_no_business_hanging() -> None:
    in_a_step: Poll = lambda n: seen(STEP * n, slot(decoded=30, done=9), cpu=(STEP * n, STEP * n))
    hangs: Poll = lambda n: seen(STEP * n, hangs=STEP, cpu=(STEP * n, STEP * n))
    verdicts = story((5, working), (6, in_a_step), (5, working), (40, hangs))
    wedged_at = first(verdicts, State.WEDGED)
    assert wedged_at is not None
    assert 120.0 <= wedged_at - 15 * STEP <= 120.0 + 2 * STEP


@pytest.mark.parametrize(
    "part",
    [
        Slots(Outcome.MALFORMED),
        Slots(Outcome.ERROR),
        Slots(Outcome.UNAUTHORIZED),
        Slots(Outcome.UNSUPPORTED),
        Slots(Outcome.UNREACHABLE),
    ],
)
def test_what_is_not_seen_is_blind_and_never_a_fault(part: Slots) -> None:
    verdicts = story((5, working), (100, lambda n: replace(frozen(n), slots=part)))
    assert verdicts[-1][1].state is State.BLIND
    assert not any(verdict.fault for _, verdict in verdicts)


def test_time_not_seen_does_not_count_as_a_standstill() -> None:
    """Frozen for 20 s, not seen for 100 s, frozen for 5 s more: that is 25 s, not 125."""
    blank: Poll = lambda n: replace(frozen(n), slots=Slots(Outcome.ERROR))
    verdicts = story((5, working), (4, frozen), (20, blank), (1, frozen))
    assert not any(verdict.fault for _, verdict in verdicts)


def test_a_look_that_sees_nothing_confirms_no_fault() -> None:
    blank: Poll = lambda n: replace(frozen(n), slots=Slots(Outcome.ERROR))
    verdicts = story((5, working), (12, frozen), (1, blank))
    assert verdicts[-2][1].fault
    assert not verdicts[-1][1].fault


@pytest.mark.parametrize("facts", [{"state": "T"}, {"state": "t", "tracer": 7}, {"frozen": True}])
def test_a_person_at_the_process_means_hands_off_and_clocks_anew(facts: dict[str, object]) -> None:
    stopped: Poll = lambda n: seen(STEP * n, hangs=STEP, process=process((20.0, 20.0), **facts))  # type: ignore[arg-type]  # any field
    verdicts = story((5, working), (240, stopped), (4, frozen))
    assert State.PAUSED in states(verdicts)
    assert not any(verdict.fault for _, verdict in verdicts)


def test_a_suspended_host_starts_the_clocks_anew() -> None:
    wake = replace(frozen(9), at=3600.0, suspended=3550.0)
    polls = [working(n) for n in range(5)] + [frozen(n) for n in range(5, 9)]
    polls += [wake, *(replace(frozen(0), at=3600.0 + STEP * n) for n in range(1, 5))]
    assert not any(verdict.fault for _, verdict in judged(polls))


def test_a_starved_watchdog_starts_the_clocks_anew() -> None:
    polls = [working(n) for n in range(5)] + [replace(frozen(0), at=20.0 + 300.0 * n) for n in range(1, 5)]
    assert not any(verdict.fault for _, verdict in judged(polls))


def test_a_new_incarnation_does_not_answer_for_the_old_one() -> None:
    polls = [working(n) for n in range(5)] + [frozen(n) for n in range(5, 10)]
    polls += [replace(frozen(n), process=process((20.0, 20.0), start=2)) for n in range(10, 14)]
    assert not any(verdict.fault for _, verdict in judged(polls))


def test_a_process_that_ended_is_down_at_once() -> None:
    gone = replace(
        seen(25.0, health=Outcome.REFUSED), slots=Slots(Outcome.REFUSED), process=Process(Outcome.GONE)
    )
    verdicts = list(judged([*(working(n) for n in range(5)), gone]))
    assert verdicts[-1][1].state is State.DOWN
    assert verdicts[-1][1].reason is Reason.GONE
    assert verdicts[-1][1].fault


def refusing(n: int) -> Observation:
    return seen(STEP * n, health=Outcome.REFUSED, slots=Slots(Outcome.REFUSED))


def test_a_server_that_answered_and_now_refuses_is_down_after_its_budget() -> None:
    verdicts = story((5, working), (5, refusing))
    assert first(verdicts, State.DOWN) == 25.0 + 15.0
    assert verdicts[-1][1].reason is Reason.REFUSED


def test_a_server_that_has_not_listened_yet_is_loading_while_it_downloads() -> None:
    def downloading(n: int) -> Observation:
        return replace(refusing(n), process=process(write_bytes=n * (10 << 20)))

    verdicts = story((720, downloading))
    assert states(verdicts) == {State.LOADING}


def loading(n: int, **facts: object) -> Observation:
    o = seen(STEP * n, health=Outcome.LOADING, slots=Slots(Outcome.LOADING))
    return replace(o, process=process(**facts))  # type: ignore[arg-type]  # any field


@pytest.mark.parametrize("figure", ["rss", "read_bytes"])
def test_a_load_that_makes_progress_may_take_for_ever(figure: str) -> None:
    verdicts = story((1000, lambda n: loading(n, **{figure: n * (2 << 20)})))
    assert states(verdicts) == {State.LOADING}


def test_a_load_without_progress_is_a_wedge_though_a_core_is_busy() -> None:
    verdicts = story((400, lambda n: replace(loading(n), process=process((STEP * n, 0.0)))))
    assert first(verdicts, State.WEDGED) == pytest.approx(1800.0, abs=STEP)
    assert verdicts[-1][1].reason is Reason.LOAD


def test_a_sleeping_server_is_asleep() -> None:
    asleep: Poll = lambda n: seen(STEP * n, slots=None, props=Props(Outcome.OK, sleeping=True))
    assert states(story((3, working), (50, asleep))) == {State.BUSY, State.SLEEPING}


def test_requests_that_wait_while_every_slot_is_idle_are_a_wedge() -> None:
    deaf: Poll = lambda n: seen(
        STEP * n, slot(busy=False, decoded=30), cpu=(20.0, 20.0), metrics=Metrics(Outcome.OK, 0, 3, 50)
    )
    verdicts = story((5, working), (10, deaf))
    assert verdicts[-1][1].reason is Reason.DEFERRED
    assert verdicts[-1][1].fault


def test_a_queue_behind_busy_slots_is_just_a_queue() -> None:
    queue = Metrics(Outcome.OK, 1, 9, 50)
    assert states(story((50, lambda n: replace(working(n), metrics=queue)))) == {State.BUSY}


def test_metrics_stand_in_where_slots_cannot_be_had() -> None:
    def by_metrics(n: int, decoded: int) -> Observation:
        metrics = Metrics(Outcome.OK, processing=1, deferred=0, decode_total=decoded)
        return seen(STEP * n, slots=Slots(Outcome.UNSUPPORTED), metrics=metrics, cpu=(20.0, 20.0))

    moving = story((10, lambda n: by_metrics(n, 7 * n)))
    assert states(moving[1:]) == {State.BUSY}
    standing = story((5, lambda n: by_metrics(n, 7 * n)), (12, lambda n: by_metrics(n, 30)))
    assert standing[-1][1].fault


def test_one_slot_that_stands_while_another_moves_is_said_and_left_alone() -> None:
    pair: Poll = lambda n: seen(STEP * n, slot(0, decoded=4), slot(1, decoded=n), cpu=(STEP * n, STEP * n))
    verdicts = story((700, pair))
    assert verdicts[-1][1].state is State.SUSPECT
    assert verdicts[-1][1].slots == (0,)
    assert not any(verdict.fault for _, verdict in verdicts)


def test_a_slot_left_over_is_given_patience() -> None:
    pair: Poll = lambda n: seen(STEP * n, slot(0, decoded=4), slot(1, decoded=n), cpu=(STEP * n, STEP * n))
    alone: Poll = lambda n: seen(
        STEP * n, slot(0, decoded=4), slot(1, busy=False, decoded=60), cpu=(300.0, 300.0)
    )
    verdicts = story((60, pair), (400, alone))
    wedged_at = first(verdicts, State.WEDGED)
    assert wedged_at is not None
    assert wedged_at >= 1800.0


def test_a_server_without_a_visible_process_gets_the_longest_budget() -> None:
    blank = Process(Outcome.UNSUPPORTED)
    verdicts = story((1500, lambda n: replace(frozen(n), process=blank)))
    wedged_at = first(verdicts, State.WEDGED)
    assert wedged_at is not None
    assert wedged_at >= 7200.0


def test_a_unit_that_failed_before_the_watch_began_is_down_soon() -> None:
    failed = Unit(Outcome.OK, load="loaded", active="failed", sub="failed", result="exit-code", exit_status=1)
    gone = Process(Outcome.UNSUPPORTED)
    verdicts = story((6, lambda n: replace(refusing(n), process=gone, unit=failed)))
    assert verdicts[-1][1].fault
    assert "exit-code" in verdicts[-1][1].text


def test_confirmations_are_asked_for_however_short_the_budget() -> None:
    judge = Judge(StallPolicy(blocked=0.0, confirmations=5), CPU_SERVER)
    for n in range(5):
        judge.observe(working(n))
    faults = [judge.observe(frozen(n)).fault for n in range(5, 12)]
    assert faults.index(True) >= 4


def test_every_verdict_says_why_in_one_line() -> None:
    told = [v for _, v in story((5, working), (12, frozen))] + [
        v for _, v in story((5, working), (12, hanging))
    ]
    for verdict in told:
        assert verdict.text
        assert "\n" not in verdict.text
    assert "slot 0 stood still" in told[16].text
