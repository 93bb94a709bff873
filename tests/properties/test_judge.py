"""What the judge never does, whatever it is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from llama_watchdog.core.observation import (
    Gpu,
    Health,
    Metrics,
    Observation,
    Outcome,
    Process,
    Props,
    Slot,
    Slots,
    Thread,
    Watch,
)
from llama_watchdog.core.verdict import Verdict
from tests.support.facts import judged

NOT_SEEN = [
    Outcome.ERROR,
    Outcome.MALFORMED,
    Outcome.UNREACHABLE,
    Outcome.UNAUTHORIZED,
    Outcome.UNSUPPORTED,
    Outcome.SKIPPED,
]

figures = st.none() | st.integers(0, 1 << 40)
outcomes = st.sampled_from([outcome for outcome in Outcome if outcome is not Outcome.GONE])
threads = st.lists(
    st.builds(Thread, st.integers(4711, 4716), st.sampled_from("RSSSD"), st.floats(0, 1e4)), max_size=6
).map(tuple)
processes = st.builds(
    Process,
    st.sampled_from([Outcome.OK, Outcome.OK, Outcome.OK, Outcome.UNSUPPORTED, Outcome.TIMEOUT]),
    pid=st.just(4711),
    start_ticks=st.just(1),
    state=st.sampled_from("RSSD"),
    cpu=st.none() | st.floats(0, 1e5),
    threads=st.none() | threads,
    rss=figures,
    read_bytes=st.none() | st.just(0) | figures,
    write_bytes=st.none() | st.just(0),
    major_faults=st.none() | st.just(0),
)
gpus = st.none() | st.builds(Gpu, outcomes, st.none() | st.floats(0, 1), st.none() | st.floats(0, 1), figures)
slots = st.builds(
    Slot,
    st.integers(0, 5),
    processing=st.booleans(),
    task=st.none() | st.integers(0, 3),
    decoded=st.none() | st.integers(0, 5),
    prompt=st.none() | st.integers(0, 5),
    prompt_processed=st.none() | st.integers(0, 5),
)
answers = st.lists(slots, max_size=6, unique_by=lambda slot: slot.id).map(tuple)
watches = st.builds(
    Watch,
    uses_gpu=st.none() | st.booleans(),
    compute_threads=st.none() | st.sampled_from([1, 4]),
    rpc=st.booleans(),
    can_sleep=st.booleans(),
)
polls = st.builds(
    Observation,
    at=st.just(0.0),
    health=st.none() | st.builds(Health, outcomes),
    slots=st.none() | st.builds(Slots, outcomes, slots=answers),
    props=st.none() | st.builds(Props, outcomes, sleeping=st.none() | st.booleans()),
    metrics=st.none() | st.builds(Metrics, outcomes, st.integers(0, 3), st.integers(0, 3), st.integers(0, 9)),
    process=st.none() | processes,
    gpu=gpus,
)
streams = st.lists(polls, min_size=1, max_size=40)


def in_time(stream: list[Observation], step: float = 5.0) -> list[Observation]:
    """The polls, `step` seconds apart."""
    return [replace(one, at=step * n) for n, one in enumerate(stream)]


def verdicts(stream: list[Observation], watch: Watch) -> list[Verdict]:
    return [verdict for _, verdict in judged(stream, watch=watch)]


@given(streams, watches, st.integers(1, 9))
def test_no_fault_while_any_slot_progresses(stream: list[Observation], watch: Watch, growth: int) -> None:
    """One slot decodes at every poll; the other slots, the process and the GPU show anything at all."""

    def moving(n: int, one: Observation) -> Observation:
        others = tuple(slot for slot in (one.slots.slots if one.slots else ()) if slot.id != 9)
        mover = Slot(9, processing=True, task=1, decoded=growth * n)
        return replace(one, slots=Slots(Outcome.OK, slots=(*others, mover)))

    assert not any(v.fault for v in verdicts(in_time([moving(n, o) for n, o in enumerate(stream)]), watch))


@given(streams, watches, st.sampled_from(NOT_SEEN), st.sampled_from([*NOT_SEEN, Outcome.OK]))
def test_no_fault_from_what_is_not_seen(
    stream: list[Observation], watch: Watch, slots_say: Outcome, health_says: Outcome
) -> None:
    blind = [
        replace(one, slots=Slots(slots_say), health=Health(health_says), metrics=None, props=None)
        for one in stream
    ]
    assert not any(v.fault for v in verdicts(in_time(blind, step=30.0), watch))


@given(streams, watches, st.randoms(use_true_random=False))
def test_the_order_of_slots_never_matters(stream: list[Observation], watch: Watch, random: object) -> None:
    shuffle: Callable[[list[Slot]], None] = random.shuffle  # type: ignore[attr-defined]  # a Random of hypothesis

    def shuffled(one: Observation) -> Observation:
        if one.slots is None:
            return one
        order = list(one.slots.slots)
        shuffle(order)
        return replace(one, slots=replace(one.slots, slots=tuple(order)))

    def gist(verdict: Verdict) -> object:
        return verdict.state, verdict.reason, verdict.evidence, verdict.fault, sorted(verdict.slots)

    stream = in_time(stream)
    here, there = verdicts(stream, watch), verdicts([shuffled(one) for one in stream], watch)
    assert [gist(v) for v in here] == [gist(v) for v in there]


@given(streams, watches, st.sampled_from([0.3, 5.0, 60.0]))
def test_any_stream_is_judged_and_told_in_one_line(
    stream: list[Observation], watch: Watch, step: float
) -> None:
    for verdict in verdicts(in_time(stream, step), replace(watch, interval=step)):
        assert verdict.text
        assert "\n" not in verdict.text
        assert verdict.stalled_for >= 0.0


@given(streams, watches)
def test_a_fault_is_never_found_in_fewer_looks_than_asked_for(
    stream: list[Observation], watch: Watch
) -> None:
    found = verdicts(in_time(stream), watch)
    faults = [n for n, verdict in enumerate(found) if verdict.fault]
    assert not faults or faults[0] >= 2
