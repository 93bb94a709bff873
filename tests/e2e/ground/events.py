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
    """The actions in the order in which they were first begun; several events of one are one."""
    order: list[str] = []
    for event in events:
        if event["event"] != "action":
            continue
        began = event["outcome"] == "started"
        if began or not order or order[-1] != event["action"]:
            order.append(event["action"])
    return order
