"""How lines look to people: the time, the server, what is the matter, and why, in quiet colours.

What belongs here: the looks of a line on a terminal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime

from .values import bounded, printable

_WORD = 10  # the width of the longest verdict, "unkillable"
_SERVER = 16  # the widest that the column of servers grows

_RED, _GREEN, _YELLOW, _BLUE, _CYAN = "31", "32", "33", "34", "36"
_BOLD, _DIM = "1", "2"
_ALARM = "1;31"
_VERDICTS = {
    **dict.fromkeys(("idle", "busy"), _GREEN),
    **dict.fromkeys(("loading", "sleeping"), _BLUE),
    **dict.fromkeys(("suspect", "paused", "blind"), _YELLOW),
    **dict.fromkeys(("wedged", "down", "unkillable", "held"), _ALARM),
}
_OUTCOMES = {"started": _YELLOW, "done": _YELLOW, "healed": _GREEN, "failed": _ALARM, "unsupported": _DIM}
_LEVELS = {"error": _ALARM, "warning": _YELLOW, "debug": _DIM}
_FIXED = frozenset({"v", "event", "level", "at", "elapsed", "server", "message", "traceback"})


class Console:
    """Turns log lines and events into text. One for each stream: its columns remember how wide they are."""

    def __init__(self, *, colour: bool) -> None:
        self._colour = colour
        self._width = 0

    def line(self, entry: Mapping[str, object]) -> str:
        """The entry as one line; below it, indented, the traceback of a log line that has one."""
        match entry.get("event"):
            case "verdict":
                verdict = _text(entry, "verdict")
                shown = verdict.upper() if _VERDICTS.get(verdict) == _ALARM else verdict
                parts = [self._word(shown, _VERDICTS.get(verdict, "")), _text(entry, "text")]
            case "action":
                parts = self._action(entry)
            case _:
                parts = self._log(entry)
        head = [self._paint(_time(entry), _DIM), *self._server(_text(entry, "server"))]
        lines = "  ".join(part for part in [*head, *parts] if part)
        for below in str(entry.get("traceback") or "").splitlines():
            lines += "\n" + self._paint(f"          {printable(below)}", _DIM)
        return lines

    def _action(self, entry: Mapping[str, object]) -> list[str]:
        outcome = _text(entry, "outcome")
        colour = _OUTCOMES.get(outcome, "")
        why = _text(entry, "text")
        if not (
            entry.get("dry_run") and outcome in ("started", "done")
        ):  # that text says "would have" itself
            why = f"{self._paint(outcome, colour)}: {why}"
        return [self._word(_text(entry, "action"), colour), why]

    def _log(self, entry: Mapping[str, object]) -> list[str]:
        level = _text(entry, "level")
        more = " ".join(f"{printable(key)}={_value(entry[key])}" for key in entry if key not in _FIXED)
        # Below a server's verdicts the column of words is always filled, for the texts to stand in line.
        tag = self._word(level, _LEVELS.get(level, _DIM)) if level in _LEVELS or "server" in entry else ""
        return [tag, _text(entry, "message"), self._paint(more, _DIM)]

    def _server(self, name: str) -> list[str]:
        self._width = max(self._width, min(len(name), _SERVER))
        return [self._paint(f"{name:<{self._width}}", _BOLD)] if name else []

    def _word(self, word: str, colour: str) -> str:
        return self._paint(f"{word:<{_WORD}}", colour)

    def _paint(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colour and colour and text else text


def _text(entry: Mapping[str, object], key: str) -> str:
    value = entry.get(key)
    return "" if value is None else printable(str(bounded(value)))


def _value(value: object) -> str:
    plain = bounded(value)
    text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
    return printable(text) if text and " " not in text else json.dumps(text, ensure_ascii=False)


def _time(entry: Mapping[str, object]) -> str:
    """By the clock on the wall here, else since the watch or trace began."""
    at, elapsed = entry.get("at"), entry.get("elapsed")
    if isinstance(at, str):
        try:
            return datetime.fromisoformat(at).astimezone().strftime("%H:%M:%S")
        except (ValueError, OverflowError, OSError):
            return printable(at)
    return f"{elapsed:8.1f}s" if isinstance(elapsed, int | float) else ""
