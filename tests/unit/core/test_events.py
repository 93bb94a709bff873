"""The events that everybody reads, to the letter of the contract."""

from __future__ import annotations

from llama_watchdog.core.action import Action, Done
from llama_watchdog.core.events import action_event, verdict_event, with_time
from llama_watchdog.core.evidence import Evidence
from llama_watchdog.core.standing import Report
from llama_watchdog.core.verdict import Reason, State, Verdict


def test_a_wedge_as_an_event() -> None:
    verdict = Verdict(State.WEDGED, Reason.FROZEN, Evidence.BLOCKED, 31.24, 30.0, 0.0, (0,), fault=True)
    assert verdict_event("chat", 1160.0004, verdict) == {
        "v": 1,
        "event": "verdict",
        "elapsed": 1160.0,
        "server": "chat",
        "verdict": "wedged",
        "reason": "frozen",
        "evidence": "blocked",
        "stalled_for": 31.2,
        "budget": 30.0,
        "slots": [0],
        "text": "slot 0 stood still for 31 s, no CPU, no GPU",
    }


def test_what_a_verdict_does_not_know_is_left_out() -> None:
    event = verdict_event("chat", 0.0, Verdict(State.IDLE))
    assert list(event) == ["v", "event", "elapsed", "server", "verdict", "text"]


def test_an_action_as_an_event() -> None:
    report = Report(Action.SIGKILL, Done.DONE, "sent SIGKILL", incident=3)
    assert action_event("chat", 12.3456, report, dry_run=True) == {
        "v": 1,
        "event": "action",
        "elapsed": 12.346,
        "server": "chat",
        "action": "sigkill",
        "dry_run": True,
        "outcome": "done",
        "incident": "3",
        "text": "sent SIGKILL",
    }


def test_the_wall_time_stands_where_a_reader_looks_for_it() -> None:
    event = with_time(verdict_event("chat", 1.0, Verdict(State.IDLE)), "2026-11-30T15:00:05Z")
    assert list(event)[:4] == ["v", "event", "at", "elapsed"]
    assert event["at"] == "2026-11-30T15:00:05Z"
