"""What the daemon says: log lines and the contract's events, each one line, as JSON or as text for people.

What belongs here: how a line becomes an entry, its level, and which of the looks it gets. What is worth
saying is up to those who call; how a line looks to people is in console.py, how it is written in sink.py.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any, Literal, TextIO, cast

import structlog
from structlog.typing import FilteringBoundLogger

from .console import Console
from .sink import Sink, is_journal, is_terminal
from .values import VALUE_BYTES, bounded

__all__ = ["Console", "Format", "configure", "emit_event", "event_json", "get_logger", "level_of"]

Format = Literal["auto", "json", "console"]
Entry = Mapping[str, object]

_PRIORITIES = {"error": 3, "warning": 4, "notice": 5, "info": 6, "debug": 7}  # sd-daemon(3)
_LEVELS = {"critical": "error", "exception": "error", "fatal": "error", "warn": "warning"}
_VERDICTS = {
    **dict.fromkeys(("wedged", "down", "unkillable", "held"), "error"),
    "blind": "warning",
    **dict.fromkeys(("suspect", "paused"), "notice"),
}
_LIBRARIES = ("asyncio", "httpx", "httpcore", "uvicorn", "uvicorn.access", "uvicorn.error")


def configure(level: str = "info", fmt: Format = "auto", *, stream: TextIO | None = None) -> None:
    """Send all lines from now on to `stream` (standard error), those below `level` nowhere.

    `auto` is coloured text on a terminal and JSON lines elsewhere; in the journal each has its priority.
    Libraries that use logging come out the same way, and say no more than warnings. May be called again.
    """
    global _output
    _output = _Output(level, fmt, sys.stderr if stream is None else stream)
    root = logging.getLogger()
    root.handlers[:] = [_FromLibraries()]
    root.setLevel(logging.WARNING)
    for name in _LIBRARIES:
        library = logging.getLogger(name)
        library.handlers.clear()
        library.setLevel(logging.WARNING)
        library.propagate = True


def get_logger(**bound: object) -> FilteringBoundLogger:
    """A logger whose lines carry `bound`; it follows every later `configure`."""
    logger = structlog.wrap_logger(
        _Lines(),
        processors=[_entry],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
    )
    return cast(FilteringBoundLogger, logger.bind(**bound))


def emit_event(event: Entry) -> None:
    """Write one of the contract's events, as it is. Its level is `level_of` it."""
    _current().write(event)


def event_json(event: Entry) -> str:
    """An event as the contract's one line of JSON: ASCII, with long values cut, and null for NaN."""
    return json.dumps({key: bounded(value) for key, value in event.items()}, separators=(",", ":"))


def level_of(entry: Entry) -> str:
    """`error`, `warning`, `notice`, `info` or `debug`: how much a log line or event asks for attention."""
    match entry.get("event"):
        case "log":
            return str(entry.get("level"))
        case "verdict":
            return _VERDICTS.get(str(entry.get("verdict")), "info")
        case "action":
            return "error" if entry.get("outcome") == "failed" else "warning"
    return "info"


class _Lines:
    """Where structlog's chain ends."""

    def msg(self, entry: Entry) -> None:
        _current().write(entry)

    debug = info = warning = error = critical = msg


def _entry(_: object, method: str, event: MutableMapping[str, Any]) -> tuple[tuple[Entry], dict[str, object]]:
    message, fault = event.pop("event"), event.pop("exc_info", None)
    fault = sys.exc_info()[1] if fault is True else fault
    return (_log_entry(_LEVELS.get(method, method), message, event, fault),), {}


def _log_entry(level: str, message: object, more: Entry, fault: object = None) -> Entry:
    """One log line as an object beside the contract's events."""
    entry: dict[str, object] = {
        "v": 1,
        "event": "log",
        "level": level,
        "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "message": message,
    }
    entry.update({f"{key}_" if key in entry else key: value for key, value in more.items()})
    if isinstance(fault, BaseException):
        entry["error"] = f"{type(fault).__name__}: {fault}"
        entry["traceback"] = "".join(traceback.format_exception(fault))[-VALUE_BYTES:]  # its end says most
    return entry


class _FromLibraries(logging.Handler):
    """Takes the lines of libraries that know nothing of ours."""

    def emit(self, record: logging.LogRecord) -> None:
        level = record.levelname.lower()
        try:
            message = record.getMessage()
        except (TypeError, ValueError, KeyError):  # the library's own slip between format and arguments
            message = str(record.msg)
        fault = record.exc_info[1] if record.exc_info else None
        _current().write(_log_entry(_LEVELS.get(level, level), message, {"logger": record.name}, fault))


class _Output:
    """A stream, the least level that goes there, and how it looks there."""

    def __init__(self, level: str, fmt: Format, stream: TextIO) -> None:
        self._least = _PRIORITIES[level]
        self._sink = Sink(stream)
        self._lost = 0
        terminal, self._journal = is_terminal(stream), is_journal(stream, os.environ)
        text = fmt == "console" or (fmt == "auto" and terminal)
        colour = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._render: Callable[[Entry], str] = Console(colour=colour).line if text else event_json

    def write(self, entry: Entry) -> None:
        priority = _PRIORITIES.get(level_of(entry), _PRIORITIES["info"])
        if priority > self._least:
            return
        if self._lost:
            text = f"{self._lost} lines before this one could not be written, and are lost"
            if self._sink.write(self._lines(_PRIORITIES["warning"], _log_entry("warning", text, {}))):
                self._lost = 0
        if self._lost or not self._sink.write(self._lines(priority, entry)):
            self._lost += 1

    def _lines(self, priority: int, entry: Entry) -> str:
        text = self._render(entry)
        if self._journal:
            text = "\n".join(f"<{priority}>{line}" for line in text.split("\n"))
        return text


_output: _Output | None = None


def _current() -> _Output:
    """Where lines go; to standard error at `info` where nobody has said."""
    if _output is None:
        configure()
    return cast(_Output, _output)
