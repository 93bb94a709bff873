"""Each verdict in one line for people."""

from __future__ import annotations

from itertools import product

import pytest

from llama_watchdog.core.evidence import Evidence
from llama_watchdog.core.verdict import BEYOND_CANCEL, Reason, State, Verdict, seconds


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (Verdict(State.IDLE), "every slot is idle"),
        (Verdict(State.SLEEPING), "asleep until the next request"),
        (
            Verdict(State.PAUSED, note="a debugger is attached"),
            "stopped from outside: a debugger is attached",
        ),
        (Verdict(State.BUSY, slots=(0,), stalled_for=45.0), "at work: slot 0 last moved 45 s ago"),
        (Verdict(State.BUSY, slots=(0, 2), stalled_for=300.0), "at work: slots 0, 2 last moved 5 min ago"),
        (
            Verdict(State.WEDGED, Reason.FROZEN, Evidence.BLOCKED, 31.2, 30.0, slots=(0,)),
            "slot 0 stood still for 31 s, no CPU, no GPU",
        ),
        (
            Verdict(State.SUSPECT, Reason.SLOTS_HANG, Evidence.COMPUTING, 6000.0, 7200.0),
            "/slots has not answered for 100 min, computing, a wedge after 2 h",
        ),
        (
            Verdict(State.WEDGED, Reason.DEAF, Evidence.SPINNING, 61.0, 60.0),
            "neither /health nor /slots has answered for 61 s, one thread spins, the others are still",
        ),
        (
            Verdict(State.WEDGED, Reason.DEFERRED, stalled_for=31.0),
            "requests wait while every slot has been idle for 31 s",
        ),
        (Verdict(State.WEDGED, Reason.LOAD, stalled_for=1800.0), "loading has made no progress for 30 min"),
        (Verdict(State.DOWN, Reason.REFUSED, stalled_for=15.0), "connections have been refused for 15 s"),
        (Verdict(State.DOWN, Reason.GONE), "its process has ended"),
        (Verdict(State.WEDGED, Reason.CANARY, stalled_for=9.0), "a canary request got no token for 9 s"),
    ],
)
def test_what_a_person_reads(verdict: Verdict, text: str) -> None:
    assert verdict.text == text


def test_every_verdict_has_one_line() -> None:
    for state, reason, evidence in product(State, [None, *Reason], [None, *Evidence]):
        text = Verdict(state, reason, evidence, 12.0, 30.0, note="a note").text
        assert text.strip() == text != ""
        assert "\n" not in text
        assert "None" not in text


@pytest.mark.parametrize(
    ("span", "words"),
    [(0.4, "0 s"), (31.2, "31 s"), (119.0, "119 s"), (120.0, "2 min"), (7100.0, "118 min"), (7200.0, "2 h")],
)
def test_spans_for_people(span: float, words: str) -> None:
    assert seconds(span) == words


def test_cancel_is_only_for_a_loop_that_hears_of_it() -> None:
    assert Reason.FROZEN not in BEYOND_CANCEL
    assert {Reason.SLOTS_HANG, Reason.DEAF, Reason.GONE, Reason.REFUSED, Reason.LOAD} <= BEYOND_CANCEL
