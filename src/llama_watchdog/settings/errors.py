"""How a bad configuration is told: one line a problem, fit for a terminal and a log. No secret's value, ever.

What belongs here: the exceptions of settings, and how keys and values are shown in their lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

KeyPath = tuple[str, ...]  # of a key: ("servers", "chat", "stall", "blocked")

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_LINE_CHARS = 400
_VALUE_CHARS = 60


class ConfigError(Exception):
    """The configuration can't be used. `problems`: one line each: the place, what is wrong, what is allowed.

    `str()` of it is those lines, without a word of Python's or a library's.
    """

    def __init__(self, *problems: str) -> None:
        self.problems = tuple(dict.fromkeys(one_line(problem) for problem in problems))
        super().__init__("\n".join(self.problems))


class ConflictError(ValueError):
    """Keys that are each fine and can't go together: one `(keys, message)` for each such set.

    The keys are relative to the table that raised it, the one to blame first.
    """

    def __init__(self, *conflicts: tuple[tuple[KeyPath, ...], str]) -> None:
        self.conflicts = conflicts
        super().__init__("; ".join(message for _, message in conflicts))


def one_line(text: str, limit: int = _LINE_CHARS) -> str:
    """`text` with all that is not printable (newlines, NULs, terminal codes) escaped, and cut at `limit`."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def dotted(path: Iterable[str]) -> str:
    """A key as TOML writes it: `servers.chat.stall.blocked`."""
    return ".".join(part if _BARE.fullmatch(part) else shown(part) for part in path)


def shown(value: object) -> str:
    """A value for people, short whatever it is. Not for secrets."""
    if isinstance(value, str):
        return f"'{one_line(value, _VALUE_CHARS)}'"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) > 10**18:
        return "a huge number"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list"
    return "a date or time"  # all that TOML knows beside the above
