"""The daemon: one watch a server, the signals it gets itself, reloads, and what systemd is told.

SIGTERM, SIGINT   end, with STOPPING
SIGHUP            read the configuration again; a bad one is refused, and the old one stays in force
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from llama_watchdog import doctor, log
from llama_watchdog.clock import wall_time
from llama_watchdog.core.events import Event, with_time
from llama_watchdog.notify.systemd import Notifier
from llama_watchdog.parts import hands_of, observer_of
from llama_watchdog.settings import ConfigError, Settings
from llama_watchdog.store import Store, Wish, Wishes
from llama_watchdog.supervisors.base import Supervisor
from llama_watchdog.watching import ServerWatch

TICK = 0.5  # seconds between looks at how far the rounds are


class Daemon:
    """Watches every configured server until told to end. `load` reads the configuration anew.

    `supervisor`: who runs the server, where it isn't as configured: then there is one server only. `anew`: it
    was just started.
    """

    def __init__(
        self,
        settings: Settings,
        load: Callable[[], Settings],
        *,
        supervisor: Supervisor | None = None,
        notifier: Notifier | None = None,
        anew: bool = False,
    ) -> None:
        self.settings = settings
        self.load = load
        self.supervisor = supervisor
        self._anew = anew
        self.log = log.get_logger()
        self.notifier = notifier or Notifier()
        self.store = Store(settings.state_dir, self.log.warning)
        self.wishes = Wishes(settings.state_dir, self.log.warning)
        self.watches: dict[str, ServerWatch] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stop = asyncio.Event()
        self._reload = asyncio.Event()
        self._ready = False
        self._self_test: asyncio.Task[None] | None = None

    async def run(self) -> int:
        """Watch until SIGTERM or SIGINT; returns the exit code: 1 where an error of our own ended a watch."""
        self.listen()
        try:
            for server in self.settings.servers.values():
                self._start(server.name)
            return await self._attend()
        finally:
            self.leave()
            if self._self_test is not None:
                self._self_test.cancel()
                await asyncio.gather(self._self_test, return_exceptions=True)
            for name in list(self._tasks):
                await self._end(name)
            await self.store.close()
            await self.wishes.close()
            self.notifier.close()

    def leave(self) -> None:
        """Tell systemd that we end."""
        self.notifier.stopping()

    def listen(self) -> None:
        """Take the signals that are meant for us."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)

    def _start(self, name: str) -> None:
        server = self.settings.servers[name]
        for key in _without_effect(self.settings, name):
            self.log.warning(f"{key} is set, but has no effect in this version")
        watch = ServerWatch(
            server,
            observer=observer_of(server, supervisor=self.supervisor),
            hands=hands_of(server, dry_run=self.settings.dry_run, supervisor=self.supervisor),
            tell=self._tell,
            store=self.store,
            anew=self._anew,
        )
        self.watches[name] = watch
        self._tasks[name] = asyncio.create_task(watch.run(), name=f"watch {name}")
        self.log.info(f"watching {name} at {server.url}" + (" (dry run)" if self.settings.dry_run else ""))

    async def _end(self, name: str) -> None:
        task, watch = self._tasks.pop(name), self.watches.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await watch.aclose()

    async def _attend(self) -> int:
        """Look after the watches: ping systemd for completed rounds, reload, notice one that has died."""
        pinged: dict[ServerWatch, int] = {}
        while not self._stop.is_set():
            if self._reload.is_set() and not self._acting:
                self._reload.clear()
                await self._reconfigure()
            await self.store.catch_up()
            await self._heed_wishes()
            rounds = {watch: watch.rounds for watch in self.watches.values()}
            # All of them: one that hangs must not hide behind the others. One that sleeps until its next look
            # has completed its round, and its interval may be longer than WatchdogSec=.
            if all(
                count and (watch.asleep or watch.acting or count > pinged.get(watch, 0))
                for watch, count in rounds.items()
            ):
                if not self._ready and self.is_ready():
                    self._ready = True
                    self.notifier.ready()
                if self._self_test is None:
                    self._self_test = asyncio.create_task(self._test_self(), name="self-test")
                self.notifier.alive()
                pinged = rounds
            self.notifier.status(self.status_line())
            for name, task in self._tasks.items():
                if task.done():
                    error = None if task.cancelled() else task.exception()
                    self.log.error(f"the watch of {name} has ended by an error of our own", exc_info=error)
                    return 1
            if (code := self.over()) is not None:
                return code
            await self._pause()
        return 0

    @property
    def _acting(self) -> bool:
        """Whether an order is being carried out: a reload would have to wait for it, for up to a minute."""
        return any(watch.acting for watch in self.watches.values())

    def is_ready(self) -> bool:
        """Whether systemd may hear READY, once every watch has completed a round."""
        return True

    def status_line(self) -> str:
        """How everything is, in one line for people."""
        return " · ".join(watch.line for watch in self.watches.values())

    def over(self) -> int | None:
        """The exit code, where there is nothing more to watch."""
        return None

    async def _test_self(self) -> None:
        """Say once what can't be had here. The watch waits for none of it, and goes on in any case."""
        try:
            await doctor.self_test(self.settings, self.supervisor, self._lacks)
        except Exception as error:
            self.log.warning("what works here could not be found out", exc_info=error)

    @staticmethod
    def _lacks(server: str, line: str) -> None:
        log.get_logger(**({"server": server} if server else {})).warning(line)

    async def _heed_wishes(self) -> None:
        """What admins have asked for by `pause`, `resume` and `release`."""
        wishes = await self.wishes.read()
        for watch in self.watches.values():
            wish = wishes.get(watch.target, Wish())
            if await watch.heed(wish) and wish.release is not None:
                await self.wishes.released(watch.target, wish.release)

    async def _pause(self) -> None:
        events = [self._stop] if self._reload.is_set() else [self._stop, self._reload]
        waits = [asyncio.create_task(event.wait()) for event in events]
        await asyncio.wait([*waits, *self._tasks.values()], timeout=TICK, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _reconfigure(self) -> None:
        if self._ready:
            self.notifier.reloading()
        try:
            settings = self.load()
            await self._apply(settings)
        except ConfigError as error:
            for line in str(error).splitlines():
                self.log.error(f"the old configuration stays in force: {line}")  # noqa: TRY400 - the reason is the line; a traceback tells an admin nothing
        else:
            self.log.info("reloaded the configuration")
        if self._ready:
            self.notifier.ready()

    async def _apply(self, settings: Settings) -> None:
        """Take over `settings`; a server that stays where it is keeps what is known of it."""
        for server in settings.servers.values():
            # Whatever can't be read, or be done here, is found before anything is changed.
            await observer_of(server).aclose()
            hands_of(server, dry_run=settings.dry_run, supervisor=self.supervisor)
        old, self.settings = self.settings, settings
        log.configure(settings.log_level, settings.log_format)
        for name in old.servers.keys() - settings.servers.keys():
            await self._end(name)
            self.log.info(f"no longer watching {name}")
        for name, server in settings.servers.items():
            known = old.servers.get(name)
            if known is not None and known.url == server.url:
                hands = hands_of(server, dry_run=settings.dry_run, supervisor=self.supervisor)
                await self.watches[name].reconfigure(server, hands)
                continue
            if known is not None:
                await self._end(name)
            self._start(name)

    @staticmethod
    def _tell(event: Event) -> None:
        log.emit_event(with_time(event, wall_time()))


def _without_effect(settings: Settings, name: str) -> list[str]:
    """The keys that are set, are part of the configuration's contract, and are not acted on yet."""
    server = settings.servers[name]
    found = {
        "web.listen": settings.web.listen,
        "alerts.urls": settings.alerts.urls,
        "alerts.webhook": settings.alerts.webhook,
        f"servers.{name}.hooks.on_event": server.hooks.on_event,
    }
    return [key for key, value in found.items() if value]
