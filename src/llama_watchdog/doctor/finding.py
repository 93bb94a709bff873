"""What one check has found out, in words for people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Works(StrEnum):
    """UNKNOWN: it could not be tried, such as with a server that is down."""

    OK = "ok"
    MISSING = "missing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check. `server` is "" for what concerns all of them; `remedy`: the line to add, and where.

    `matters`: the watch loses a rung, or evidence that has no substitute, where it is missing. `watch_says`:
    a running watch says so by itself, by the verdict `blind` or as `core.blindspots`.
    """

    check: str
    server: str
    outcome: Works
    text: str
    remedy: str = ""
    matters: bool = True
    watch_says: bool = False


def ok(check: str, server: str, text: str, remedy: str = "") -> Finding:
    """It works."""
    return Finding(check, server, Works.OK, text, remedy)


def missing(
    check: str, server: str, text: str, remedy: str, *, matters: bool = True, watch_says: bool = False
) -> Finding:
    """It can't be had here."""
    return Finding(check, server, Works.MISSING, text, remedy, matters, watch_says)


def unknown(check: str, server: str, text: str, *, matters: bool = True) -> Finding:
    """It can't be told."""
    return Finding(check, server, Works.UNKNOWN, text, matters=matters)
