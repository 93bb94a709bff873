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
from llama_watchdog.cli import check, demo, doctor, notify, record, replay, run, wish
from llama_watchdog.cli import exec as exec_
from llama_watchdog.settings import ConfigError

FAILED, USAGE = 1, 2


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
    for module in (run, exec_, notify, check, wish, record, replay, doctor, demo):
        module.add(commands)
    options = parser.parse_args(argv)
    try:
        code = int(options.run(options))
        sys.stdout.flush()  # whatever can't be written is said here, and not at exit
    except ConfigError as error:
        for line in str(error).splitlines():
            print(f"llama-watchdog: {line}", file=sys.stderr)  # noqa: T201 - a command's output
        return USAGE
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader has gone, as `| head` does
        _write_no_more()
        return 0
    except OSError as error:  # such as a full disk behind standard output
        _write_no_more()
        print(f"llama-watchdog: {error.strerror or error}", file=sys.stderr)  # noqa: T201 - a command's output
        return FAILED
    return code


def _write_no_more() -> None:
    """What can't be written now can't be at exit either, where Python would try again, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
