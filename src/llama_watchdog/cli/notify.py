"""`llama-watchdog notify`: a small process within llama-server's own unit that has systemd restart it.

What belongs here is being started by ExecStartPost=: which server that is, and going into the background, so
that `systemctl start` is not held up. Judging is the daemon's, all ending and starting is systemd's.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from llama_watchdog import log, privileges, signals
from llama_watchdog.cli import common
from llama_watchdog.core.action import Identity
from llama_watchdog.daemon import Daemon
from llama_watchdog.notify.systemd import Notifier, Silent
from llama_watchdog.parts import observer_of
from llama_watchdog.probes import cgroups, finding, stated
from llama_watchdog.probes.finding import Group
from llama_watchdog.probes.procfs import ProcessFolder, pids
from llama_watchdog.settings import ConfigError, ServerSettings, Settings, load, targets
from llama_watchdog.supervisors.trigger import Trigger
from llama_watchdog.worker import StillBusyError, Worker

DROP_IN = "see systemd/llama-server.service.d/notify.conf"
LOOK_EVERY = 1.0  # seconds between looks for where the server serves
SAY_AFTER = 30  # such looks in vain
LEAVE_WITHIN = 5  # seconds: systemd waits for us before it starts the server again


def add(commands: Any) -> None:
    """Its flags."""
    parser = commands.add_parser(
        "notify", help="within llama-server's own unit: have systemd restart it", description=__doc__
    )
    common.add_target(parser)
    parser.add_argument("--dry-run", action="store_true", help="do everything but the action itself")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Check what can be checked, and return; the watch goes on in the background."""
    privileges.drop_ambient()
    if not os.environ.get("NOTIFY_SOCKET"):
        raise ConfigError(f"NOTIFY_SOCKET is not set: the server's unit needs NotifyAccess=all ({DROP_IN})")
    main, group = _main_process(), own_group()
    with contextlib.closing(Notifier()) as notifier:
        # What we start, such as systemctl, has nothing to say to systemd in the service's name either.
        del os.environ["NOTIFY_SOCKET"]
        trigger = Trigger(main, group, trigger=notifier.trigger, complain=log.get_logger().error)
        settings = settings_of(options, trigger.unit)
        asyncio.run(
            observer_of(common.only_server(settings)).aclose()
        )  # its key and certificates can be read
        if os.fork() == 0:
            _in_background(options, settings, trigger)
    return 0


def _main_process() -> Identity:
    """Of the unit, as systemd tells an ExecStartPost=."""
    pid = os.environ.get("MAINPID", "")
    if not pid.isdecimal():
        raise ConfigError(
            f"MAINPID is not set: to be started by ExecStartPost= of the server's unit ({DROP_IN})"
        )
    main = signals.identify(int(pid))
    if main is None:
        raise ConfigError(f"the unit's main process (pid {pid}) has already ended: nothing to watch")
    return main


def own_group(cgroup: Path = Path("/proc/self/cgroup")) -> str | None:
    """The control group of the service that we are in; None where it can't be told, as in a cgroup namespace.

    In a unit with Delegate=, ExecStartPost= runs in a group below the service's.
    """
    groups = cgroups.memberships(cgroup.read_bytes())
    for path in (groups[name] for name in ("", "name=systemd") if name in groups):
        parts = path.split("/")
        while parts:
            if parts[-1].endswith(".service"):
                return "/".join(parts)
            parts.pop()
    return None


def settings_of(options: argparse.Namespace, unit: str, url: str | None = None) -> Settings:
    """The settings of the server in this unit alone, without rungs: the unit is killed as a whole.

    `url`: where it was found to serve, for where neither flag nor configuration says it. Raises ConfigError.
    """
    settings = load(options.config, overrides={"dry_run": options.dry_run})
    server = _ours(settings, unit)
    changes: dict[str, object] = {
        "pid_file": None,
        "container": "",
        "escalation": server.escalation.model_copy(update={"ladder": ()}),
    }
    if server.restart.via != "none":
        changes["restart"] = server.restart.model_copy(update={"via": "auto"})
    try:
        if options.url is not None:
            changes["url"] = targets.url(options.url)
        elif url is not None and not _says_url(server):
            changes["url"] = targets.url(url)
    except ValueError as error:
        raise ConfigError(f"{'--url' if options.url is not None else url}: {error}") from None
    return settings.model_copy(update={"servers": {server.name: server.model_copy(update=changes)}})


def _says_url(server: ServerSettings) -> bool:
    return "url" in server.model_fields_set


def _ours(settings: Settings, unit: str) -> ServerSettings:
    """The server of this unit, or the only one of which nobody says who runs it."""
    servers = settings.servers.values()
    found = [s for s in servers if unit and s.unit == unit] or [
        s for s in servers if not (s.unit or s.container)
    ]
    if len(found) == 1:
        return found[0]
    where = f"{settings.source}: " if settings.source else ""
    names = ", ".join(settings.servers)
    raise ConfigError(f'{where}which server is this? Of {names} one needs unit = "{unit or "NAME.service"}"')


def _in_background(options: argparse.Namespace, settings: Settings, trigger: Trigger) -> NoReturn:
    """The watch, in a process of its own that never returns to what has started it."""
    code = 1
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        log.configure(settings.log_level, settings.log_format)
        code = asyncio.run(watch(options, settings, trigger))
    except ConfigError as error:
        log.get_logger().error(str(error))
    except BaseException as error:  # noqa: BLE001 - whatever it is, it must not go on as a second foreground
        log.get_logger().error("notify has ended by an error of our own", exc_info=error)
    finally:
        os._exit(code)


async def watch(options: argparse.Namespace, settings: Settings, trigger: Trigger) -> int:
    """Watch the server of our unit for as long as its main process lives; returns the exit code."""
    server, url = common.only_server(settings), None
    if not _says_url(server):
        url = await _find_url(trigger, server.process_name)
        if url is None:
            return 0
        settings = settings_of(options, trigger.unit, url)
    daemon = _Within(settings, lambda: settings_of(options, trigger.unit, url), trigger)
    code = await daemon.run()
    signal.alarm(
        LEAVE_WITHIN
    )  # ends us, should what is left of the loop hang, as looking up a host's name can
    return code


class _Within(Daemon):
    """The daemon in another service's unit: nothing to say to systemd, and no life beyond the server's."""

    def __init__(self, settings: Settings, load: Any, trigger: Trigger) -> None:
        super().__init__(settings, load, supervisor=trigger, notifier=Silent())
        self._unit = trigger

    def over(self) -> int | None:
        """Whatever runs in the unit next has a watch of its own; with KillMode=process we would see it."""
        if not self._unit.main_has_ended:
            return None
        self.log.info(f"the main process of {self._unit.name} has ended: what follows is systemd's")
        return 0


async def _find_url(trigger: Trigger, process_name: str) -> str | None:
    """Where the server says or shows that it serves, once it does; None: the main process has ended."""
    worker = Worker("url")
    looks = 0
    while not trigger.main_has_ended:
        with contextlib.suppress(StillBusyError, TimeoutError, OSError, ValueError):
            url = await worker.run(partial(_look_for_url, trigger, process_name), 2.0)
            if url is not None:
                return url
        looks += 1
        if looks == SAY_AFTER:
            log.get_logger().warning(
                f"no {process_name} of {trigger.name} says or shows where it serves: not watched yet; "
                "--url or the configuration could say it"
            )
        await asyncio.sleep(LOOK_EVERY)
    return None


def _look_for_url(trigger: Trigger, process_name: str) -> str | None:
    """By the server itself, which need not be the main process, and may not have been started yet."""
    group = Group(trigger.control_group, trigger.main.pid)
    parents: dict[int, int] = {}
    for pid in pids():
        with contextlib.suppress(ProcessLookupError), ProcessFolder(pid) as folder:
            if folder.program() == process_name and finding.inside(pid, group):
                parents[pid] = folder.stat().parent
    outer = [
        pid for pid, parent in parents.items() if parent not in parents
    ]  # a router's children have their own
    if len(outer) != 1:
        return None
    with ProcessFolder(outer[0]) as folder:
        return stated.served_url(folder)
