"""What is kept across restarts of the watchdog, in its state directory: the learned pace of each server.

A state that can't be read or written costs what was learned, never the watch; it is said once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from llama_watchdog import log
from llama_watchdog.core.pace import Learned, learned_from_json

_MAX_BYTES = 1 << 20
_MAX_SERVERS = 256  # models and flags that were ever seen; the oldest are forgotten


class StateFile:
    """The file `pace.json` in `directory`, read once, and written anew whenever something is learned."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "pace.json"
        self._complained = False
        self._paces: dict[str, Any] = self._read()

    def pace(self, fingerprint: str) -> Learned:
        """What is known of the server of that fingerprint (model, build, flags); nothing, at first."""
        known = self._paces.get(fingerprint)
        return learned_from_json(known) if isinstance(known, dict) else Learned()

    def keep(self, fingerprint: str, learned: Learned) -> None:
        """Remember a pace. Written beside and renamed, so that no crash leaves half a file."""
        if self.pace(fingerprint) == learned:
            return
        self._paces.pop(fingerprint, None)
        self._paces[fingerprint] = learned.as_json()
        while len(self._paces) > _MAX_SERVERS:
            del self._paces[next(iter(self._paces))]
        beside = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
            beside.write_text(json.dumps(self._paces), encoding="utf-8")
            beside.replace(self._path)
        except OSError as error:
            self._complain(f"what is learned of servers can't be kept in {self._path}: {error.strerror}")

    def _read(self) -> dict[str, Any]:
        paces: object = None
        try:
            if self._path.stat().st_size <= _MAX_BYTES:
                paces = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except OSError as error:
            self._complain(f"{self._path} can't be read: {error.strerror}")
            return {}
        except (ValueError, RecursionError):
            paces = None
        if isinstance(paces, dict):
            return paces
        self._complain(f"{self._path} is damaged: what was learned of servers is learned anew")
        return {}

    def _complain(self, line: str) -> None:
        if not self._complained:
            self._complained = True
            log.get_logger().warning(line)
