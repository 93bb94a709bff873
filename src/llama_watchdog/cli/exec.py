"""`llama-watchdog exec -- llama-server …`: llama-server as our child, watched, and started again in place.

What belongs here is how that differs from the daemon: where the server is, when it is ready, who ends when.

    we get, or see                          | and do
    ----------------------------------------+---------------------------------------------------------------
    SIGTERM, SIGINT                         | pass it on, act no more, and wait: it ends after its batch
    that, when it is proven to hear nothing | SIGKILL to all of it, as the ladder would in the end
    SIGQUIT, SIGUSR1, SIGUSR2               | pass it on
    SIGHUP                                  | read the configuration again, as the daemon does
    somebody else has ended it              | end, too
    its restarts have not helped            | end, and not with 0: whoever supervises us then sees a failure

In the end we exit as it did: with its last status, 128 + n where signal n ended it.
"""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any

from llama_watchdog import log, privileges
from llama_watchdog.cli import common
from llama_watchdog.core.standing import Stage
from llama_watchdog.core.verdict import State
from llama_watchdog.daemon import Daemon
from llama_watchdog.probes import finding, place, traits
from llama_watchdog.settings import ConfigError, ServerSettings, Settings, targets
from llama_watchdog.supervisors.child import Child
from llama_watchdog.watching import ServerWatch
from llama_watchdog.worker import StillBusyError, Worker

TAKEN, FAILED = 1, 1
PASSED_ON = (signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
AGAIN_AFTER = 5.0  # seconds until a watch that an error of our own has ended begins anew
LOOK_UP_SECONDS = 2.0
# Each time a load is seen to get on, systemd is asked for that much more time: a minute for ten looks.
EXTEND_SECONDS, EXTEND_EVERY = 60.0, 5.0
# Where an incident stands when no signal but SIGKILL is any good.
_BEYOND = frozenset({Stage.CLIMBING, Stage.UNKILLABLE, Stage.RESTARTING, Stage.HELD})


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
    privileges.drop_ambient()
    settings = settings_of(options, os.environ)
    log.configure(settings.log_level, settings.log_format)
    return asyncio.run(_run(options, settings))


def settings_of(options: argparse.Namespace, environ: Mapping[str, str]) -> Settings:
    """The configuration, with the url of the command line behind `--` where it has none. Raises ConfigError."""
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
    said = traits.options(argv, environ)
    host, port = said.get("host") or "127.0.0.1", said.get("port")
    if host.endswith(".sock"):  # by which llama-server tells a unix socket
        return f"unix://{os.path.abspath(host)}"  # noqa: PTH100 - without resolving links, as it will be opened
    if port is None or any(argument.startswith("--ssl-") for argument in argv):
        raise ConfigError("--url: where the server listens is not to be told: say it, or give it a --port")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        if address.is_unspecified:
            host = "127.0.0.1" if address.version == 4 else "::1"
        host = f"[{host}]" if address.version == 6 else host
    try:
        return targets.url(f"http://{host}:{port}")
    except ValueError as error:
        raise ConfigError(f"--url: not to be told from the server's --host and --port: it {error}") from None


async def _run(options: argparse.Namespace, settings: Settings) -> int:
    server = common.only_server(settings)
    holder = await _holder(server)
    if holder is not None:
        return _refuse(f"{place.parse(server.url)} is served by {holder} already: nothing is started", TAKEN)
    child = Child(options.argv[1:])
    try:
        await child.start()
    except OSError as error:
        assert child.status is not None  # noqa: S101 - set by a start that fails
        return _refuse(f"{options.argv[1]}: {error.strerror}", child.status)
    while True:
        watching = Exec(settings, lambda: settings_of(options, os.environ), child)
        status = await watching.run()
        if watching.done:
            return status
        # Our own error is no reason to end a server that may be healthy: it would end with us.
        await asyncio.sleep(AGAIN_AFTER)
        settings = watching.settings


def _refuse(line: str, status: int) -> int:
    print(f"llama-watchdog: {line}", file=sys.stderr)  # noqa: T201 - a command's output
    return status


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


class Exec(Daemon):
    """The daemon of one server, which is `child`. `done`: there is nothing left to watch."""

    def __init__(self, settings: Settings, load: Callable[[], Settings], child: Child) -> None:
        super().__init__(settings, load, supervisor=child)
        self.child = child
        self.done = False
        self._stopped_by: signal.Signals | None = None
        self._hopeless = False
        self._extended = -EXTEND_EVERY
        self._errands: set[asyncio.Task[None]] = set()  # the loop holds its tasks only weakly

    @property
    def watch(self) -> ServerWatch | None:
        """The one there is; None while it is exchanged for another."""
        return next(iter(self.watches.values()), None)

    async def run(self) -> int:
        """Watch it to its end; returns its exit status."""
        nudging = asyncio.create_task(self._nudge())
        try:
            status = await super().run()
        finally:
            nudging.cancel()
        if self._stopped_by is not None:
            self.done = True
        if not self.done:
            return status
        await self._end_all()
        return self.child.status or (0 if self._stopped_by is not None else status)

    async def _end_all(self) -> None:
        """Nothing of it outlives us. What has been told to end has as much time as it needs."""
        if self._hopeless:
            await self.child.kill()
        await self.child.wait()
        if not self._hopeless:  # what a wrapper has left has not heard of it yet
            await self.child.pass_on(self._stopped_by or signal.SIGTERM)
        await self.child.wait_for_all()

    async def _nudge(self) -> None:
        """A child that has ended, or is there again, is looked at at once."""
        while True:
            await self.child.changed.wait()
            self.child.changed.clear()
            if self.watch is not None:
                self.watch.nudge()

    # Signals

    def listen(self) -> None:
        """As `Daemon.listen`, and with what is passed on."""
        super().listen()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop, number)
        for number in PASSED_ON:
            loop.add_signal_handler(number, lambda sig=number: self._send(self.child.pass_on(sig)))

    def _on_stop(self, sig: signal.Signals) -> None:
        first, self._stopped_by = self._stopped_by is None, sig
        self._hopeless = self._hopeless or (first and self._hears_nothing())
        if self._hopeless:
            self.log.warning(f"{sig.name}: {self.child.name} would not hear it: SIGKILL to all of it")
            self._send(self.child.kill())
        else:
            self.log.info(f"{sig.name}: passed on to {self.child.name}, whose end is waited for")
            self._send(self.child.pass_on(sig))
        self._stop.set()

    def _hears_nothing(self) -> bool:
        """Whether it is proven by now that it would never end by itself. In a dry run nothing is acted upon."""
        watch = self.watch
        if watch is None or watch.verdict is None or self.settings.dry_run:
            return False
        return watch.verdict.fault or watch.engine.standing.stage in _BEYOND

    def _send(self, errand: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(errand)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    # What the daemon asks

    def is_ready(self) -> bool:
        """Once /health has said ok. While a load gets on, systemd is asked to wait longer."""
        watch = self.watch
        if watch is None or watch.verdict is None:
            return False
        now = watch.clock.now()
        if watch.verdict.state is State.LOADING and now - self._extended >= EXTEND_EVERY:
            self._extended = now
            self.notifier.extend(EXTEND_SECONDS)
        return watch.engine.asking.served

    def over(self) -> int | None:
        """Where it has ended, and is not to be started again, its status."""
        watch = self.watch
        if watch is None:
            return None
        standing = watch.engine.standing
        if self.child.running:
            if standing.stage is Stage.HELD and self.child.starts == 1:
                # Held by the watchdog before us; that we were started means that somebody tries once more.
                watch.engine.standing = replace(standing, stage=Stage.WATCHING, until=None)
            return None
        status = self.child.status or 0
        if standing.stage is Stage.HELD:
            status = status or FAILED
            self.log.error(f"{self.child.name} can't be helped: we end as it did, with status {status}")
        elif standing.stopped:
            self.log.warning(f"somebody has ended {self.child.name}: we end as it did, with status {status}")
        elif self.settings.dry_run:
            self.log.warning(f"{self.child.name} has ended, and so do we (dry run), with status {status}")
        else:
            return None
        self.done = True
        return status

    def status_line(self) -> str:
        """As `Daemon.status_line`, with how often it was started again."""
        again = self.child.starts - 1
        line = super().status_line()
        return f"{line} · started again {again}×, last after exit status {self.child.status}" if again else line
