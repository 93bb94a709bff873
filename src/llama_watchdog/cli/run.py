"""`llama-watchdog run`: the daemon."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from llama_watchdog import log, privileges
from llama_watchdog.cli import common
from llama_watchdog.daemon import Daemon


def add(commands: Any) -> None:
    """Its flags."""
    parser = commands.add_parser("run", help="watch, and bring the server back", description=__doc__)
    common.add_target(parser, unit=True)
    parser.add_argument("--dry-run", action="store_true", help="do everything but the action itself")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Watch until told to end."""
    privileges.drop_ambient()
    settings = common.settings_of(options)
    log.configure(settings.log_level, settings.log_format)
    return asyncio.run(Daemon(settings, lambda: common.settings_of(options)).run())
