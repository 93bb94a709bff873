"""The events that everybody reads: logs, `replay`, hooks. One JSON object for each change.

Plain dicts, as they are written; `at` (wall time, for people) is added by whoever has a clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_watchdog.core.standing import Report
from llama_watchdog.core.verdict import Verdict

VERSION = 1

Event = dict[str, Any]


def verdict_event(server: str, elapsed: float, verdict: Verdict) -> Event:
    """A verdict has changed. `elapsed`: seconds since the watch or the trace began."""
    event: Event = {
        "v": VERSION,
        "event": "verdict",
        "elapsed": round(elapsed, 3),
        "server": server,
        "verdict": verdict.state.value,
    }
    if verdict.reason is not None:
        event["reason"] = verdict.reason.value
    if verdict.evidence is not None:
        event["evidence"] = verdict.evidence.value
    if verdict.budget is not None:
        event["stalled_for"] = round(verdict.stalled_for, 1)
        event["budget"] = verdict.budget
    if verdict.slots:
        event["slots"] = list(verdict.slots)
    event["text"] = verdict.text
    return event


def action_event(server: str, elapsed: float, report: Report, *, dry_run: bool) -> Event:
    """Something was done, could not be done, or has healed the server."""
    return {
        "v": VERSION,
        "event": "action",
        "elapsed": round(elapsed, 3),
        "server": server,
        "action": report.action.value,
        "dry_run": dry_run,
        "outcome": report.outcome.value,
        "incident": str(report.incident),
        "text": report.text,
    }


def with_time(event: Mapping[str, Any], at: str) -> Event:
    """The event with its wall time, placed where a reader looks for it."""
    head = {key: event[key] for key in ("v", "event")}
    return {**head, "at": at, **{key: value for key, value in event.items() if key not in head}}
