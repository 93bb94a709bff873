"""Restarting a server by a command of its admin's."""

from __future__ import annotations

from collections.abc import Sequence

from llama_watchdog import subprocesses
from llama_watchdog.core.action import Done, Result

_KEEP = 4096


async def run(command: Sequence[str], *, timeout: float = 60.0) -> Result:  # noqa: ASYNC109 - a failure, no error
    """Run `command` (the program and its arguments) without a shell.

    DONE says that it ended well, not that the server is up. A daemon that it leaves in the background lives
    on. Longer than `timeout` seconds is a failure, and its whole process group is killed. The arguments are
    never shown: they may hold a key.
    """
    program = command[0]
    try:
        finished = await subprocesses.run(command, timeout=timeout, keep=_KEEP)
    except FileNotFoundError:
        return Result(Done.UNSUPPORTED, f"restart.command: {program} is not there: give its full path")
    except OSError as error:
        return Result(Done.UNSUPPORTED, f"restart.command: {program} can't be run: {error.strerror}")
    if finished.code == 0:
        return Result(Done.DONE, f"ran {program}")
    if finished.code is None:
        how = f"took longer than {timeout:g} s and was killed"
    elif finished.code < 0:
        how = f"was ended by signal {-finished.code}"
    else:
        how = f"failed with exit status {finished.code}"
    return Result(Done.FAILED, f"{program} {how}{_last_line(finished.err or finished.out)}")


def _last_line(output: str) -> str:
    lines = output.strip().splitlines()
    return f": {_printable(lines[-1])[:200]}" if lines else ""


def _printable(line: str) -> str:
    """Without the escapes by which a program colours, or could garble, a terminal."""
    return "".join(character for character in line if character.isprintable()).strip()
