"""The daemon of one server that is our child: when it is ready, and who ends when.

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

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from llama_watchdog.core.standing import Stage
from llama_watchdog.core.verdict import State
from llama_watchdog.daemon import Daemon
from llama_watchdog.settings import Settings
from llama_watchdog.supervisors.child import Child
from llama_watchdog.watching import ServerWatch

FAILED = 1
PASSED_ON = (signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
AGAIN_AFTER = 5.0  # seconds until a watch that an error of our own has ended begins anew
# While a load gets on, systemd is asked every few seconds for more time: for far more than a look takes.
EXTEND_SECONDS, EXTEND_EVERY = 60.0, 5.0
# Where an incident stands when no signal but SIGKILL is any good. Not in `starting`: then it is another that
# runs, and nothing is known of it yet.
_BEYOND = frozenset({Stage.CONFIRMING, Stage.CLIMBING, Stage.UNKILLABLE, Stage.RESTARTING, Stage.HELD})


async def execute(settings: Settings, load: Callable[[], Settings], child: Child) -> int:
    """Start the child and watch it to its end; returns its exit status, a shell's where it can't start."""
    anew = True
    while True:
        watching = Exec(settings, load, child, anew=anew)
        status = await watching.run()
        if not watching.done:  # an error of our own: with us would end a server that may be healthy
            await asyncio.sleep(AGAIN_AFTER)
        if watching.done:
            await watching.end_all()
            return child.status or (0 if watching.stopped_by is not None else status)
        settings, anew = watching.settings, False


class Exec(Daemon):
    """The daemon of one server, which is `child`.

    `done`: there is nothing left to watch. `stopped_by`: the signal that has ended the watch.
    """

    def __init__(
        self, settings: Settings, load: Callable[[], Settings], child: Child, *, anew: bool = True
    ) -> None:
        super().__init__(settings, load, supervisor=child, anew=anew)
        self.child = child
        self.done = False
        self.stopped_by: signal.Signals | None = None
        self._hopeless = False
        self._extended = -EXTEND_EVERY
        self._errands: set[asyncio.Task[None]] = set()  # the loop holds its tasks only weakly

    @property
    def watch(self) -> ServerWatch | None:
        """The one there is; None while it is exchanged for another."""
        return next(iter(self.watches.values()), None)

    async def run(self) -> int:
        """Watch it, started first where it is `anew`, until it is `done` or an error of our own ends that."""
        self.listen()  # before it is there: a signal in between would end us alone
        if self._anew and not await self._start_child():
            return FAILED
        nudging = asyncio.create_task(self._nudge())
        try:
            return await super().run()
        except Exception:
            self.log.error("our watch has ended by an error of our own", exc_info=True)
            return FAILED
        finally:
            nudging.cancel()

    async def _start_child(self) -> bool:
        try:
            await self.child.start()
        except OSError as error:
            self.log.error(f"{self.child.command}: {error.strerror}: nothing is started")  # noqa: TRY400 - the reason is the line; a traceback tells an admin nothing
            self.notifier.close()
            self.done = True
        return not self.done

    async def end_all(self) -> None:
        """Nothing of it outlives us. What has been told to end has as much time as it needs."""
        if self._hopeless:
            await self.child.kill()
        await self.child.wait()
        if not self._hopeless:  # what a wrapper has left has not heard of it yet
            await self.child.pass_on(self.stopped_by or signal.SIGTERM)
        await self.child.wait_for_all()

    async def _nudge(self) -> None:
        """A child that has ended, or is there again, is looked at at once."""
        while True:
            await self.child.changed.wait()
            self.child.changed.clear()
            if self.watch is not None:
                self.watch.nudge()

    def leave(self) -> None:
        """Not after an error of our own: TimeoutStopSec= after STOPPING systemd kills us, server and all."""
        if self.done or self.stopped_by is not None:
            super().leave()

    # Signals

    def listen(self) -> None:
        """As `Daemon.listen`, and with what is passed on."""
        super().listen()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop, number)
        for number in PASSED_ON:
            loop.add_signal_handler(number, self._pass_on, number)

    def _pass_on(self, sig: signal.Signals) -> None:
        self._send(self.child.pass_on(sig))

    def _on_stop(self, sig: signal.Signals) -> None:
        first, self.stopped_by = self.stopped_by is None, sig
        self._hopeless = self._hopeless or (first and self._hears_nothing())
        if self._hopeless:
            self.log.warning(f"{sig.name}: {self.child.name} would not hear it: SIGKILL to all of it")
            self._send(self.child.kill())
        else:
            self.log.info(f"{sig.name}: passed on to {self.child.name}, whose end is waited for")
            self._pass_on(sig)
        self.done = True
        self._stop.set()

    def _hears_nothing(self) -> bool:
        """Whether it is proven that it would never end by itself. In a dry run nothing is acted upon."""
        watch = self.watch
        if watch is None or watch.verdict is None or self.settings.dry_run:
            return False
        stage = watch.engine.standing.stage
        return stage in _BEYOND or (stage is Stage.WATCHING and watch.verdict.fault)  # the latter: hands off

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
        if watch is None or self.child.running:
            return None
        standing = watch.engine.standing
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
        after = f" · started again {again}×, last after exit status {self.child.status}" if again else ""
        return f"{super().status_line()}{after}"
