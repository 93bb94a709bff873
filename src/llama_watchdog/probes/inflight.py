"""At most one request in flight, its answer kept until it has been reported: for what may hang."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Generic, TypeVar

from llama_watchdog.core.observation import Outcome

Facts = TypeVar("Facts")


class OneInFlight(Generic[Facts]):
    """Asks by `request`, never twice at once; that sees to its own timeout and makes facts of every failure.

    `blank` makes the facts of what has no answer, from the outcome and the age of the request in seconds.
    """

    def __init__(
        self, request: Callable[[], Coroutine[None, None, Facts]], blank: Callable[[Outcome, float], Facts]
    ) -> None:
        self._request = request
        self._blank = blank
        self._started = 0.0
        self.task: asyncio.Task[Facts] | None = None

    def start(self, asked: bool) -> None:
        """If `asked`, ask, unless an earlier request is still in flight or not yet reported."""
        if asked and self.task is None:
            self._started = monotonic()
            self.task = asyncio.create_task(self._request())

    def report(self) -> Facts:
        """The answer, once; PENDING where it is still to come, SKIPPED where nothing was asked."""
        if self.task is None:
            return self._blank(Outcome.SKIPPED, 0.0)
        if not self.task.done():
            return self._blank(Outcome.PENDING, monotonic() - self._started)
        task, self.task = self.task, None
        return task.result()
