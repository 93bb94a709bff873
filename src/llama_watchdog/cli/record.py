"""`llama-watchdog record`: writes what a watch sees to a trace, and acts never."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from io import FileIO
from pathlib import Path
from typing import Any

from llama_watchdog.cli import common
from llama_watchdog.clock import wall_time
from llama_watchdog.core.events import Event, with_time
from llama_watchdog.core.observation import Observation, Watch
from llama_watchdog.core.pace import Learned
from llama_watchdog.core.trace import Header, header_line, poll_line
from llama_watchdog.parts import hands_of, observer_of
from llama_watchdog.probes.observer import Observer
from llama_watchdog.settings import ConfigError, ServerSettings
from llama_watchdog.watching import ServerWatch

MAX_BYTES = 1 << 30  # of a trace: a day of 4 slots at 5 s is some 20 MB


def add(commands: Any) -> None:
    """Its flags."""
    parser = commands.add_parser("record", help="write what a watch sees to a trace", description=__doc__)
    common.add_target(parser, unit=True)
    parser.add_argument("--for", dest="span", type=common.duration, metavar="1h", help="end after that long")
    parser.add_argument("-o", dest="trace", required=True, type=Path, metavar="TRACE", help="a new file")
    parser.add_argument("--json", action="store_true", help="the events, too, as JSON lines")
    parser.set_defaults(run=run)


class TraceEndsError(Exception):
    """No more can be written; the text says why."""


class Writer:
    """Writes a trace, line by line: a header for each new thing known of the server, then its polls."""

    def __init__(self, file: FileIO, server: ServerSettings) -> None:
        self._file = file
        self._policy = server.policy()
        self._headed: tuple[Watch, object] | None = None
        self._incarnation: object = None
        self._size = 0
        self.polls = 0

    def keep(self, watch: Watch, observation: Observation) -> None:
        """Write one poll. Raises TraceEndsError where no more can be, or may be, written."""
        process = observation.process
        if process is not None and process.pid is not None:
            self._incarnation = (process.pid, process.start_ticks)
        if (watch, self._incarnation) != self._headed:
            self._headed = (watch, self._incarnation)
            header = Header(watch, self._policy, Learned())
            self._write(header_line(header, recorded=wall_time()))
        self._write(poll_line(observation))
        self.polls += 1

    def _write(self, line: str) -> None:
        rest = f"{line}\n".encode()
        self._size += len(rest)
        if self._size > MAX_BYTES:
            raise TraceEndsError(f"has grown to {MAX_BYTES >> 20} MB; recorded no further")
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise TraceEndsError(error.strerror) from None


def run(options: argparse.Namespace) -> int:
    """Record until the time is over, or until Ctrl-C."""
    server = common.only_server(common.settings_to_look(options))
    observer = observer_of(server)  # before the file: what can't be used here leaves no empty one behind
    try:
        descriptor = os.open(options.trace, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
    except FileExistsError:
        raise ConfigError(f"-o {options.trace}: exists already; choose a new name") from None
    except OSError as error:
        raise ConfigError(f"-o {options.trace}: {error.strerror}") from None
    try:
        with FileIO(descriptor, "w") as file:
            writer = Writer(file, server)
            with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
                asyncio.run(_record(server, observer, writer, options))
    except TraceEndsError as error:
        print(f"llama-watchdog: -o {options.trace}: {error}", file=sys.stderr)  # noqa: T201 - a command's output
        return 1
    print(f"{options.trace}: {writer.polls} polls", file=sys.stderr)  # noqa: T201 - a command's output
    return 0


async def _record(
    server: ServerSettings, observer: Observer, writer: Writer, options: argparse.Namespace
) -> None:
    out = common.console()

    def tell(event: Event) -> None:
        if event["event"] != "verdict":
            return
        if options.json:
            common.emit(with_time(event, wall_time()))
        else:
            out.print(common.event_line(event))

    watch = ServerWatch(
        server,
        observer=observer,
        hands=hands_of(server, dry_run=True),
        tell=tell,
        keep=writer.keep,
    )
    loop, ours = asyncio.get_running_loop(), asyncio.current_task()
    assert ours is not None  # noqa: S101 - run by asyncio.run
    loop.add_signal_handler(signal.SIGTERM, ours.cancel)
    try:
        async with asyncio.timeout(options.span):
            await watch.run()
    except TimeoutError:
        pass
    finally:
        await watch.aclose()
