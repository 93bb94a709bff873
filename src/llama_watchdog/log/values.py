"""Values made fit for one line: short, plain, and unable to break out of it.

What belongs here: what the JSON and the text of a line do alike to their values.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

VALUE_BYTES = 2048  # of UTF-8: the longest value that is written whole
_DEPTH = 8


def bounded(value: object) -> object:
    """`value` as JSON can hold it, cut to VALUE_BYTES. A longer list or table ends up as text."""
    plain = _plain(value, _DEPTH)
    if isinstance(plain, list | dict) and len(text := json.dumps(plain)) > VALUE_BYTES:
        return _cut(text)
    return plain


def printable(text: str) -> str:
    """`text` with newlines, terminal codes and all else that isn't printable as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _plain(value: object, depth: int) -> object:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth and isinstance(value, Mapping):
        return {str(key): _plain(below, depth - 1) for key, below in value.items()}
    if depth and isinstance(value, list | tuple | set | frozenset):
        return [_plain(below, depth - 1) for below in value]
    return _cut(str(value))


def _cut(text: str) -> str:
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= VALUE_BYTES:
        return text
    return data[: VALUE_BYTES - len("…".encode())].decode("utf-8", "ignore") + "…"
