"""`python -m tests.benchmarks.peers [--json FILE] [--only NAME ...]`: a quarter of an hour, as root."""

from __future__ import annotations

import argparse
import sys
import time
from http.client import HTTPException
from pathlib import Path

from tests.benchmarks.peers.needs import missing
from tests.benchmarks.peers.report import as_json, as_markdown, versions_of_tools
from tests.benchmarks.peers.round import Played, a_round
from tests.benchmarks.peers.situations import SITUATIONS, Situation
from tests.e2e.ground.llama_root import llama_root


def main() -> int:
    """Exit code 0; 1 where a situation could not be played; 2 where something is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.peers", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured there, too")
    names = [situation.name for situation in SITUATIONS]
    parser.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names)
    )
    given = parser.parse_args()
    if lacks := list(missing()):
        sys.stderr.write("".join(f"peers: {line}\n" for line in lacks))
        return 2
    tree = llama_root()
    began = time.monotonic()
    results: dict[Situation, Played] = {}
    failed = False
    for situation in SITUATIONS:
        if situation.name not in given.only:
            continue
        _say(began, f"{situation.name}: {situation.title}")
        try:
            results[situation] = _play(tree, situation)
        except (
            OSError,
            RuntimeError,
            AssertionError,
            HTTPException,
        ) as error:  # the others are worth their time all the same
            _say(began, f"  could not be played: {error}")
            failed = True
            continue
        for name, (after, words) in results[situation].first.items():
            _say(began, f"  {name} after {after:g} s: {words}")
        if given.json is not None:
            given.json.write_text(as_json(results, versions_of_tools()))
    sys.stdout.write(as_markdown(results))
    return 1 if failed else 0


def _play(tree: Path, situation: Situation) -> Played:
    with a_round(tree, situation.name) as this:
        situation.play(this)
        return this.played


def _say(began: float, what: str) -> None:
    sys.stderr.write(f"{time.monotonic() - began:6.0f} s  {what}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
