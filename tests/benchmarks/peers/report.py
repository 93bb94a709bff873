"""What came of it all: a table in Markdown for people, the same and more as JSON."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from llama_watchdog import __version__
from tests.benchmarks.peers.round import Played
from tests.benchmarks.peers.situations import PATIENCE, Situation
from tests.benchmarks.peers.watchers import NAMES

Results = Mapping[Situation, Played]


def as_markdown(results: Results) -> str:
    """Wedges: the time to the first action. Healthy servers: whether one was killed, and when."""
    lines = [_row("", *NAMES), _row(*["---"] * (len(NAMES) + 1))]
    for wedged, heading in ((True, "**wedged: acted after**"), (False, "**healthy: killed?**")):
        rows = [(s, played) for s, played in results.items() if s.wedged is wedged]
        if rows:
            lines.append(_row(heading, *[""] * len(NAMES)))
        lines += [_row(_title(s, played), *(_cell(s, played, name) for name in NAMES)) for s, played in rows]
    return "\n".join(lines) + "\n"


def as_json(results: Results, versions: Mapping[str, str]) -> str:
    """Everything that was measured, with what it was measured on."""
    what: dict[str, Any] = {
        "measured": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": {"cores": os.cpu_count(), "kernel": platform.release()},
        "versions": {"llama-watchdog": __version__, **versions},
        "patience": PATIENCE,
        "situations": [
            {
                "name": situation.name,
                "title": situation.title,
                "wedged": situation.wedged,
                "simulated": situation.simulated,
                "build": played.build,
                "seconds": played.seconds,
                "load_average": round(played.load, 2),
                "first_action": {name: _first(played, name) for name in NAMES},
            }
            for situation, played in results.items()
        ],
    }
    return json.dumps(what, indent=1) + "\n"


def versions_of_tools() -> dict[str, str]:
    """Of monit and curl: the first word with a digit in front."""
    versions = {}
    for tool in ("monit", "curl"):
        out = subprocess.run([tool, "--version"], capture_output=True, text=True, timeout=10, check=True)
        versions[tool] = next(word for word in out.stdout.split() if word[0].isdigit())
    return versions


def _title(situation: Situation, played: Played) -> str:
    lasted = "" if situation.wedged else f", {played.seconds:.0f} s"
    return f"{situation.title}{lasted}{' (simulated)' if situation.simulated else ''}"


def _cell(situation: Situation, played: Played, name: str) -> str:
    first = played.first.get(name)
    if situation.wedged:
        return f"never in {PATIENCE:.0f} s" if first is None else f"{first[0]:.0f} s"
    return "left alone" if first is None else f"**killed** after {first[0]:.0f} s"


def _first(played: Played, name: str) -> dict[str, Any] | None:
    first = played.first.get(name)
    return None if first is None else {"after": first[0], "action": first[1]}


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
