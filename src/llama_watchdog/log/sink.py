"""Writing lines where they go, without failing by it, and without waiting for a reader that stalls.

What belongs here: streams and what can go wrong with them.
"""

from __future__ import annotations

import os
import select
from collections.abc import Mapping
from typing import TextIO

# A burst of lines may fill what a reader at work empties at once. Milliseconds, spent once in each stall.
PATIENCE = 100
# A closed stream raises ValueError, one in memory has no descriptor, and sys.stderr can be None.
_FAULTS = (OSError, ValueError, AttributeError)


def is_terminal(stream: TextIO) -> bool:
    """Whether people read the stream as it is written."""
    try:
        return stream.isatty()
    except _FAULTS:
        return False


def is_journal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether systemd has connected the stream to the journal (JOURNAL_STREAM, systemd.exec(5))."""
    try:
        where = os.fstat(stream.fileno())
    except _FAULTS:
        return False
    return environ.get("JOURNAL_STREAM") == f"{where.st_dev}:{where.st_ino}"


class Sink:
    """One stream, which may be closed, full, or read by nobody."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._encoding = getattr(stream, "encoding", None) or "utf-8"
        self._torn = False
        self._stalled = False
        try:
            self._in_memory = stream.fileno() < 0
        except _FAULTS:
            self._in_memory = True

    def write(self, text: str) -> bool:
        """Write `text` and a newline. Whether all of it was written."""
        data = f"{text}\n".encode(self._encoding, "backslashreplace")
        try:
            if self._in_memory:
                self._stream.write(data.decode(self._encoding))
                return True
            return self._write(data)
        except _FAULTS:
            return False

    def _write(self, data: bytes) -> bool:
        """Past the stream's buffer, which would keep what can't be written, and fail again at exit."""
        descriptor = self._stream.fileno()
        ready = select.poll()
        ready.register(descriptor, select.POLLOUT)
        rest = b"\n" + data if self._torn else data
        while rest:
            # What is ready takes PIPE_BUF bytes at once; anything else might wait for a reader.
            if not ready.poll(0 if self._stalled else PATIENCE):
                self._stalled = True
                return False
            rest = rest[os.write(descriptor, rest[: select.PIPE_BUF]) :]
            self._torn = bool(rest)
        self._stalled = False
        return True
