"""What llama-watchdog says: its events, one JSON object a line, among whatever else it logs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

Event = dict[str, Any]


def events_of(lines: Iterable[str]) -> list[Event]:
    """The `verdict` and `action` events among log lines, in their order."""
    found = []
    for line in lines:
        start = line.find("{")
        if start < 0:
            continue
        try:
            value = json.loads(line[start:])
        except ValueError:
            continue
        if isinstance(value, dict) and value.get("event") in ("verdict", "action", "summary"):
            found.append(value)
    return found


def verdicts(events: Iterable[Event]) -> list[str]:
    """The verdicts in their order."""
    return [event["verdict"] for event in events if event["event"] == "verdict"]


def actions(events: Iterable[Event]) -> list[str]:
    """The actions that were taken, or tried, in their order. That one has healed is no action of its own."""
    return [e["action"] for e in events if e["event"] == "action" and e["outcome"] != "healed"]
