"""`llama-watchdog exec -- llama-server …`: llama-server as our child, watched, and started again in place.

What belongs here is where that server is to be found, and what is refused before it is started.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from llama_watchdog import log, privileges
from llama_watchdog.cli import common
from llama_watchdog.executing import execute
from llama_watchdog.probes import finding, place, stated
from llama_watchdog.settings import ConfigError, ServerSettings, Settings, targets
from llama_watchdog.supervisors.child import Child
from llama_watchdog.worker import StillBusyError, Worker

TAKEN = 1
LOOK_UP_SECONDS = 2.0


def add(commands: Any) -> None:
    """Its flags."""
    parser = commands.add_parser(
        "exec",
        help="start llama-server, watch it, and start it again",
        description=__doc__.partition("\n")[0],
        usage="llama-watchdog exec [--config FILE] [--url URL] [--dry-run] -- llama-server ARG…",
    )
    common.add_target(parser)
    parser.add_argument("--dry-run", action="store_true", help="do everything but the action itself")
    parser.add_argument("argv", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Start the command behind `--`, and watch it to its end."""
    if options.argv[:1] != ["--"] or not options.argv[1:]:
        raise ConfigError("exec: the server's command is missing: llama-watchdog exec -- llama-server ARG…")
    privileges.lower_ours()
    settings = settings_of(options, os.environ)
    log.configure(settings.log_level, settings.log_format)
    return asyncio.run(_run(options, settings))


def settings_of(options: argparse.Namespace, environ: Mapping[str, str]) -> Settings:
    """The configuration; where it has no url, with that of the command behind `--`. Raises ConfigError."""
    settings = common.settings_of(options)
    server = common.only_server(settings)
    if "url" not in server.model_fields_set:
        options = argparse.Namespace(**{**vars(options), "url": url_of(options.argv[1:], environ)})
        settings = common.settings_of(options)
        server = common.only_server(settings)
    if server.restart.via not in ("auto", "child"):
        raise ConfigError(
            f"servers.{server.name}.restart.via: '{server.restart.via}' is not for exec, "
            "which starts its child again: leave it out"
        )
    # It is our child, whoever runs it elsewhere.
    server = server.model_copy(update={"unit": "", "container": "", "pid_file": None})
    return settings.model_copy(update={"servers": {server.name: server}})


def url_of(argv: Sequence[str], environ: Mapping[str, str]) -> str:
    """Where a llama-server with these arguments listens. Raises ConfigError where they don't say it."""
    url = stated.stated_url(argv, environ)
    if url is None:
        raise ConfigError("--url: not said, nor is there a --port behind the -- to tell it from")
    try:
        return targets.url(url)
    except ValueError as error:
        raise ConfigError(f"--url: not to be told from the server's --host: it {error}") from None


async def _run(options: argparse.Namespace, settings: Settings) -> int:
    server = common.only_server(settings)
    holder = await _holder(server)
    if holder is not None:
        where = place.parse(server.url)
        line = f"llama-watchdog: {where} is served by {holder} already: nothing is started"
        print(line, file=sys.stderr)  # noqa: T201 - a command's output
        return TAKEN
    return await execute(settings, lambda: settings_of(options, os.environ), Child(options.argv[1:]))


async def _holder(server: ServerSettings) -> str | None:
    """Who listens at the url now, for people; None: nobody, or nobody on this machine."""
    where = place.parse(server.url)
    here = place.always_here(where)
    try:
        if here is None:
            here = await Worker("resolver").run(lambda: place.look_up(where), LOOK_UP_SECONDS)
        door = finding.look_at_door(where, here)
    except (OSError, TimeoutError, StillBusyError):
        return None
    if not door.listening:
        return None
    pid = finding.holder(door.listening)
    return "a process that we may not look into" if pid is None else finding.describe(pid)
