"""What several commands share: the flags that say which server, and how lines are printed."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from llama_watchdog import log
from llama_watchdog.core.policy import parse_duration
from llama_watchdog.settings import ConfigError, ServerSettings, Settings, load, targets
from llama_watchdog.settings.files import PREFIX

_LINES = log.Console(colour=True)  # rich takes the colours out again where they are not wanted

# How a verdict or an outcome looks on a terminal.
COLOURS = {
    "idle": "green",
    "busy": "green",
    "sleeping": "blue",
    "loading": "cyan",
    "paused": "blue",
    "suspect": "yellow",
    "blind": "yellow",
    "wedged": "bold red",
    "down": "bold red",
    "held": "bold magenta",
    "unkillable": "bold magenta",
    "started": "cyan",
    "done": "cyan",
    "healed": "bold green",
    "failed": "red",
    "unsupported": "yellow",
}


def add_target(parser: argparse.ArgumentParser, *, unit: bool = False) -> None:
    """The flags that say which server is meant."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="the configuration, in TOML")
    parser.add_argument("--url", help="one server, such as http://127.0.0.1:8080")
    if unit:
        parser.add_argument("--unit", help="the systemd unit that runs it")


def settings_of(options: argparse.Namespace) -> Settings:
    """The configuration that the flags ask for. Raises ConfigError."""
    return load(
        options.config,
        overrides={name: getattr(options, name, None) for name in ("url", "unit", "dry_run")},
    )


def settings_to_look(options: argparse.Namespace) -> Settings:
    """As `settings_of`, for what only looks: --url picks the server that is configured with it.

    Where none is, it is a server of its own, of which only the `[defaults]` hold: no other server's key goes
    to it. Raises ConfigError.
    """
    if options.url is None or list(load(options.config).servers) == ["default"]:
        return settings_of(options)
    try:
        url = targets.url(options.url)
    except ValueError as error:
        raise ConfigError(f"--url: {error}") from None
    known, where = load(options.config).servers, targets.listens_at(url)
    name = next((name for name, server in known.items() if targets.listens_at(server.url) == where), None)
    if name is not None:
        settings = load(options.config, overrides={"unit": options.unit})
    else:
        name = "default"
        while name in {taken.lower() for taken in known}:
            name += "-"
        given = {f"{PREFIX}SERVERS__{name}__URL": url, f"{PREFIX}SERVERS__{name}__UNIT": options.unit}
        environ = {**os.environ, **{variable: value for variable, value in given.items() if value}}
        settings = load(options.config, environ=environ)
    return settings.model_copy(update={"servers": {name: settings.servers[name]}})


def only_server(settings: Settings) -> ServerSettings:
    """The one server of a command that watches one. Raises ConfigError where there are several."""
    servers = list(settings.servers.values())
    if len(servers) > 1:
        names = ", ".join(server.name for server in servers)
        raise ConfigError(f"--url: several servers are configured ({names}); say which by its url")
    return servers[0]


def duration(text: str) -> float:
    """An argparse type: `10s`, `5m`, seconds."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def emit(value: Mapping[str, Any]) -> None:
    """One JSON line on standard output, at once."""
    sys.stdout.write(json.dumps(value, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def event_line(event: Mapping[str, Any]) -> Text:
    """One event for people, as in the log: when, what, why."""
    return Text.from_ansi(_LINES.line(event))


class _Output(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to `main`, which knows what a reader that has gone means; rich would exit with 1."""
        raise BrokenPipeError


def console() -> Console:
    """Standard output for people; plain where it is no terminal, or where NO_COLOR is set."""
    return _Output(highlight=False, soft_wrap=True)
