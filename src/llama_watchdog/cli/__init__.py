"""The command line: one module a command, each with `add` (its flags) and `run` (its work and exit code).

Exit codes: 0 fine; 1 the server is not serving, or an action failed; 2 usage or configuration; 3 unknown.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from llama_watchdog import __version__
from llama_watchdog.cli import check, demo, record, replay, run
from llama_watchdog.settings import ConfigError

USAGE = 2


class _Parser(argparse.ArgumentParser):
    """Errors of usage in one line, as all errors here."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message} (see {self.prog} --help)", file=sys.stderr)  # noqa: T201 - a command's output
        sys.exit(USAGE)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    parser = _Parser(
        prog="llama-watchdog",
        description="Watches llama-server from outside, proves that it has wedged, and brings it back.",
    )
    parser.add_argument("--version", action="version", version=f"llama-watchdog {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in (run, check, record, replay, demo):
        module.add(commands)
    options = parser.parse_args(argv)
    try:
        return int(options.run(options))
    except ConfigError as error:
        for line in str(error).splitlines():
            print(f"llama-watchdog: {line}", file=sys.stderr)  # noqa: T201 - a command's output
        return USAGE
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader has gone, as `| head` does; nothing more can be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
