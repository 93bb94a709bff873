"""`llama-watchdog doctor`: which rungs, probes and tools work here. Nothing is done to a server.

Exit 0: all that matters works. 1: a rung is missing, or evidence that judging needs. 3: that can't be told,
as of a server that is down.
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import asdict
from typing import Any

from rich.text import Text

from llama_watchdog import privileges
from llama_watchdog.cli import common
from llama_watchdog.doctor import Finding, Works, examine

_STYLES = {Works.OK: "green", Works.MISSING: "bold red", Works.UNKNOWN: "yellow"}
_WIDTH = max(len(works.value) for works in Works)


def add(commands: Any) -> None:
    """Its flags."""
    parser = commands.add_parser("doctor", help="what works here, and what is missing", description=__doc__)
    common.add_target(parser, unit=True)
    parser.add_argument("--json", action="store_true", help="one JSON line a check")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Look at everything once."""
    privileges.drop_ambient()  # as the daemon: what it starts has no more rights than there
    found = asyncio.run(examine(common.settings_to_look(options)))
    if options.json:
        for finding in found:
            common.emit(_as_json(finding))
    else:
        _print(found)
    return _exit_code(found)


def _as_json(finding: Finding) -> dict[str, Any]:
    value = asdict(finding)
    del value["matters"], value["watch_says"]
    return value


def _exit_code(found: list[Finding]) -> int:
    outcomes = {finding.outcome for finding in found if finding.matters}
    if Works.MISSING in outcomes:
        return 1
    return 3 if Works.UNKNOWN in outcomes else 0


def _print(found: list[Finding]) -> None:
    console = common.console()
    width = max(len(finding.check) for finding in found)
    server = ""
    for finding in found:
        if finding.server != server:
            server = finding.server
            console.print(Text(f"\n{server}", style="bold"))
        console.print(_line(finding, width))


def _line(finding: Finding, width: int) -> Text:
    """What it is, and below it what helps. Not wrapped, so that a line to add can be copied."""
    style = _STYLES[finding.outcome] if finding.matters or finding.outcome is Works.OK else "yellow"
    line = Text(f"{finding.check:<{width}}  ", style="dim")
    line.append(f"{finding.outcome.value:<{_WIDTH}}", style=f"not dim {style}")
    line.append(f"  {finding.text}", style="not dim")
    if finding.remedy:
        line.append(f"\n{'':<{width + _WIDTH + 4}}{finding.remedy}", style="not dim cyan")
    return line
