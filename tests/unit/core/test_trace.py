"""Traces: what is written is what is read, and what can't be read is said in one line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_watchdog.core.action import Identity
from llama_watchdog.core.observation import (
    Gpu,
    Health,
    Left,
    Metrics,
    Observation,
    Outcome,
    Process,
    Props,
    Slots,
    Thread,
    Unit,
    Watch,
)
from llama_watchdog.core.pace import Learned
from llama_watchdog.core.policy import LadderPolicy, Policy, Rung, StallPolicy
from llama_watchdog.core.trace import Header, TraceError, header_line, poll_line, read
from llama_watchdog.core.wire import parse_slots

BODY = [
    {
        "id": 0,
        "n_ctx": 4096,
        "is_processing": True,
        "id_task": 2,
        "next_token": [{"n_decoded": 8, "n_remain": -1}],
    }
]
HEADER = header_line(Header(Watch(server="chat"), Policy(), Learned()), recorded="2026-11-30T15:00:00Z")

count = st.integers(0, 1 << 40)
seconds = st.floats(0, 1e6, allow_nan=False).map(lambda value: round(value, 3))
outcomes = st.sampled_from(Outcome)
observations = st.builds(
    Observation,
    at=seconds,
    suspended=seconds,
    clients=st.none() | count,
    health=st.none() | st.builds(Health, outcomes, seconds),
    slots=st.none()
    | st.just(Slots(Outcome.OK, 0.001, parse_slots(BODY), BODY))
    | st.builds(Slots, outcomes.filter(lambda outcome: outcome is not Outcome.OK), seconds),
    props=st.none() | st.builds(Props, outcomes, sleeping=st.none() | st.booleans()),
    metrics=st.none() | st.builds(Metrics, outcomes, st.none() | count, st.none() | count, st.none() | count),
    process=st.none()
    | st.builds(
        Process,
        outcomes,
        pid=st.none() | count,
        start_ticks=st.none() | count,
        state=st.none() | st.sampled_from("RSDTtZ"),
        tracer=count,
        frozen=st.booleans(),
        cpu=st.none() | seconds,
        threads=st.none() | st.lists(st.builds(Thread, count, st.sampled_from("RS"), seconds)).map(tuple),
        rss=st.none() | count,
        read_bytes=st.none() | count,
        write_bytes=st.none() | count,
        major_faults=st.none() | count,
    ),
    gpu=st.none() | st.builds(Gpu, outcomes, st.none() | seconds, st.none() | seconds, st.none() | count),
    unit=st.none()
    | st.builds(Unit, outcomes, active=st.sampled_from(["active", "failed"]), exit_status=count),
    left=st.none()
    | st.builds(
        Left,
        st.lists(st.builds(Identity, count, count), max_size=3).map(tuple),
        st.sampled_from(["", "nginx (pid 12)"]),
        st.booleans(),
    ),
)


@given(observations)
def test_a_poll_is_read_as_it_was_written(observation: Observation) -> None:
    _, again = read([HEADER, poll_line(observation)])
    assert again == observation


def test_a_header_is_read_as_it_was_written() -> None:
    watch = Watch(
        "chat", 2.5, "b11669-Debian", 512, uses_gpu=True, compute_threads=8, rpc=True, can_sleep=True
    )
    policy = Policy(stall=StallPolicy(blocked=6.0), escalation=LadderPolicy(ladder=(Rung.SIGKILL,)))
    header = Header(watch, policy, Learned(prefill=90.0, prefill_depth=3501))
    assert list(read([header_line(header, recorded="")])) == [header]


def test_the_contracts_own_example_is_read() -> None:
    header = (
        '{"trace":1,"server":"chat","recorded":"2026-11-30T15:00:00Z","interval":5.0,"build":"b11669-Debian",'
        '"batch_size":2048,"uses_gpu":false,"compute_threads":8,"rpc":false,"can_sleep":false,"pace":{},"policy":{}}'
    )
    poll = (
        '{"at":5.0,"suspended":0.0,"clients":1,"health":{"outcome":"ok","seconds":0.001},'
        '"slots":{"outcome":"ok","seconds":0.002,"body":[{"id":0,"is_processing":true,"id_task":2,'
        '"n_prompt_tokens":12,"n_prompt_tokens_processed":4,"next_token":[{"n_decoded":8,"n_remain":-1}]}]},'
        '"props":{"outcome":"ok","sleeping":false},"metrics":{"outcome":"ok","requests_processing":1,'
        '"requests_deferred":0,"n_decode_total":31},"process":{"outcome":"ok","pid":4711,"start_ticks":88123456,'
        '"state":"S","tracer":0,"frozen":false,"cpu":12.34,"threads":[[4711,"S",9.87],[4712,"S",2.47]],'
        '"rss":123456789,"read_bytes":0,"write_bytes":0,"major_faults":0},'
        '"gpu":{"outcome":"ok","busy":0.0,"own":0.0,"memory":0}}'
    )
    said, observation = read([header, poll])
    assert said == Header(
        Watch("chat", build="b11669-Debian", uses_gpu=False, compute_threads=8), Policy(), Learned()
    )
    assert isinstance(observation, Observation)
    assert observation.metrics == Metrics(Outcome.OK, 1, 0, 31)
    assert observation.slots is not None
    assert observation.slots.slots[0].decoded == 8


def test_what_is_left_of_a_server_is_written_as_pairs() -> None:
    left = Left((Identity(4712, 89),), port="nginx (pid 12)")
    written = json.loads(poll_line(Observation(1.0, left=left)))["left"]
    assert written == {"processes": [[4712, 89]], "port": "nginx (pid 12)", "gpu": False}
    _, again = read([HEADER, '{"at":1,"left":{}}'])
    assert again == Observation(1.0, left=Left())


def test_unknown_keys_are_ignored_and_missing_ones_unknown() -> None:
    line = json.dumps({"at": 1, "weather": "fine", "slots": {"outcome": "ok", "mood": 7, "body": []}})
    _, observation = read([HEADER, line])
    assert observation == Observation(1.0, slots=Slots(Outcome.OK, 0.0, (), []))


def test_a_body_that_is_no_slots_is_malformed() -> None:
    _, observation = read([HEADER, '{"at":1,"slots":{"outcome":"ok","body":{"error":1}}}'])
    assert isinstance(observation, Observation)
    assert observation.slots == Slots(Outcome.MALFORMED)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (['{"at":1}'], "line 1: the first line must describe the watch"),
        ([HEADER, "{"], "line 2: no JSON"),
        ([HEADER, "[1]"], "line 2: no JSON object"),
        ([HEADER, "[" * 100_000], "line 2: no JSON"),
        ([HEADER, "{}"], "line 2: at: seconds since the first line are missing"),
        ([HEADER, '{"at":"soon"}'], "line 2: at: 'soon' is no number"),
        ([HEADER, '{"at":NaN}'], "line 2: at: nan is no number"),
        ([HEADER, '{"at":2}', '{"at":1}'], "line 3: at: 1 comes after 2"),
        ([HEADER, '{"at":1,"health":{"outcome":"fine"}}'], "line 2: outcome: 'fine' is none of: ok"),
        ([HEADER, '{"at":1,"health":7}'], "line 2: a value of the wrong type"),
        ([HEADER, '{"at":1,"process":{"outcome":"ok","threads":[[1]]}}'], "line 2: "),
        ([HEADER, '{"at":1,"left":{"processes":[[1]]}}'], "line 2: "),
        ([HEADER, '{"at":1,"left":{"processes":7}}'], "line 2: "),
        (['{"trace":2}'], "line 1: trace: version 2 is not known"),
        (
            ['{"trace":1,"policy":{"stall":{"blocked":"soon"}}}'],
            "line 1: policy.stall.blocked: 'soon' is no duration",
        ),
        (['{"trace":1,"policy":{"escalation":{"ladder":["nuke"]}}}'], "line 1: policy.escalation.ladder: "),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(lines: list[str], said: str) -> None:
    with pytest.raises(TraceError) as caught:
        list(read(lines))
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)
