"""Whether a container's stop was somebody's order, and not ours.

No inspect of Docker's says so. Its events do: a stop is `kill` (of the stop signal, then of SIGKILL), `die`,
`stop`; a kill has no `stop`, and a process that ends by itself, or by a signal from outside, only `die`.

Podman says it from 4.7 on. Before, it mostly loses `stop`; but then its command and its monitor have both
cleaned up after the container, which is else done once (measured with 4.3.1).
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator

from llama_watchdog.supervisors.engine_answers import Inspected, StopEvent
from llama_watchdog.supervisors.engine_api import EngineApi

# Seconds: an order that the server has outlived by this is none any more; events are asked for as far back.
HOLDS = 600.0
_UNDER_WAY = 60.0  # seconds; what we asked for, and was not answered in time, may be done as late as this
_KEPT = 10  # orders of our own; a ladder has three
_STOPS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL})
_UNCONDITIONAL = ("always", "unless-stopped")


class StopOrders:
    """The orders that one container got. All times are by the wall clock, as the engine's are."""

    def __init__(self) -> None:
        self._seen_stopping = 0.0  # `started` of the incarnation that was
        self._signalled = 0.0  # `started` of the one that we had the engine signal
        self._ours: list[tuple[float, float]] = []  # when ours were under way

    @contextlib.contextmanager
    def ours(self, seen: Inspected) -> Iterator[None]:
        """What the engine is asked for within is our order."""
        began = time.time()
        self._signalled = seen.started
        self._ours = [*self._ours[1 - _KEPT :], (began, began + _UNDER_WAY)]
        yield  # where this raises, as by a timeout, the order may be under way still
        self._ours[-1] = began, time.time()

    async def given(self, engine: EngineApi, seen: Inspected, *, timeout: float) -> bool:  # noqa: ASYNC109 - EngineError
        """Whether somebody else has ordered it to stop, in this life of it. Raises EngineError."""
        if seen.status == "stopping" and not self._is_ours(time.time()):
            self._seen_stopping = seen.started
        if not seen.started:
            return False
        if seen.started == self._seen_stopping:
            return True
        # Once we have signalled it through the engine, it has been stopped by a user: by us.
        ours = seen.started == self._signalled
        if seen.stopped_by_user is not None and not ours:
            return seen.stopped_by_user
        # With these policies the engine starts again whatever it was not told to leave.
        if seen.status == "exited" and seen.policy in _UNCONDITIONAL and not seen.error and not ours:
            return True
        now = time.time()
        end = now if seen.pid is not None else seen.finished
        since = max(seen.started, end - HOLDS)
        events = await engine.stop_events(seen, since=since, until=now, timeout=timeout)
        cleanups = sum(event.action == "cleanup" for event in events)
        return cleanups > 1 or any(self._orders_stop(event, seen) for event in events)

    def _orders_stop(self, event: StopEvent, seen: Inspected) -> bool:
        if event.action == "cleanup" or self._is_ours(event.at):
            return False
        if event.action == "stop" or event.signal is None:
            return True
        return event.signal in _STOPS or seen.stop_signal in _names(event.signal)

    def _is_ours(self, at: float) -> bool:
        return any(began <= at <= done for began, done in self._ours)


def _names(number: int) -> tuple[str, ...]:
    """As a STOPSIGNAL may be written: 10, USR1, SIGUSR1."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        return (str(number),)
    return str(number), name, name.removeprefix("SIG")
