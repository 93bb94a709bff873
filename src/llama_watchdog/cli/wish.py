"""`llama-watchdog pause NAME [30m]`, `resume NAME`, `release NAME`: an admin's wishes to a running watchdog.

pause: hands off that server, whatever is seen; a time after it ends the pause. resume: hands on again.
release: lift a hold, and forgive the restarts that led to it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any

from llama_watchdog import lock
from llama_watchdog.cli import common
from llama_watchdog.probes.procfs import ProcessFolder
from llama_watchdog.settings import ConfigError, Settings, load
from llama_watchdog.settings.targets import listens_at
from llama_watchdog.store import Pause, StateError, WishWriter

_HELP = {
    "pause": "hands off a server, for a while or until it is resumed",
    "resume": "hands on again",
    "release": "lift a hold: restarts go on",
}


def add(commands: Any) -> None:
    """The three commands and their flags."""
    for name, line in _HELP.items():
        parser = commands.add_parser(name, help=line, description=line)
        parser.add_argument("name", metavar="NAME", help="the server's name, as in [servers.NAME]")
        if name == "pause":
            parser.add_argument("time", nargs="?", type=common.duration, metavar="30m", help="for that long")
        parser.add_argument("--config", type=Path, metavar="FILE", help="the configuration, in TOML")
        parser.set_defaults(run=run, wish=name)


def run(options: argparse.Namespace) -> int:
    """Write the wish down where the daemon looks for it, twice a second."""
    settings = common.settings_of(options)
    target = _target(settings, options.name)
    watchdog = lock.holder(target)
    state_dir = settings.state_dir if watchdog is None else _where_it_looks(watchdog.pid, options)
    try:
        said = asyncio.run(_write(state_dir, target, options))
    except StateError as error:
        print(f"llama-watchdog: {error} (run it as root, or as the daemon's user)", file=sys.stderr)  # noqa: T201 - a command's output
        return 1
    note = "; no watchdog is at work on it now" if watchdog is None else ""
    common.console().print(f"{options.name}: {said}{note}")
    return 0


def _target(settings: Settings, name: str) -> str:
    server = settings.servers.get(name)
    if server is None:
        names = ", ".join(settings.servers)
        raise ConfigError(f"NAME: {name} is no server of the configuration; there are: {names}")
    return listens_at(server.url)


def _where_it_looks(watchdog: int, options: argparse.Namespace) -> Path:
    """The state directory of that running watchdog: each unit has its own, as with exec and notify."""
    with contextlib.suppress(ProcessLookupError), ProcessFolder(watchdog) as folder:
        theirs = (folder.environment() or {}).get("STATE_DIRECTORY")
        if theirs:
            return load(options.config, environ={**os.environ, "STATE_DIRECTORY": theirs}).state_dir
    return common.settings_of(options).state_dir


async def _write(state_dir: Path, target: str, options: argparse.Namespace) -> str:
    writer = WishWriter(state_dir, lambda line: print(f"llama-watchdog: {line}", file=sys.stderr))  # noqa: T201 - a command's output
    try:
        if options.wish == "pause":
            pause = await writer.pause(target, options.time)
            return f"hands off {_until(pause)} (llama-watchdog resume {options.name} ends it)"
        if options.wish == "resume":
            return "hands on again" if await writer.resume(target) else "was not paused"
        await writer.release(target)
        return "released: restarts are forgiven, and a hold is lifted"
    finally:
        await writer.close()


def _until(pause: Pause) -> str:
    if pause.until is None:
        return "until it is resumed"
    return f"until {time.strftime('%H:%M:%S', time.localtime(pause.until))}"
