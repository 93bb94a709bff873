"""Blocking calls, one at a time in a thread of their own, with a bound on how long they are waited for.

What belongs here is only that: a read of /proc or a call into a GPU driver can hang for good when the kernel
is stuck, and must then cost one thread, not one a poll.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class StillBusyError(Exception):
    """An earlier call has not returned yet, so nothing was asked."""


class Worker:
    """Runs one call at a time, in a daemon thread: one that hangs doesn't keep the program from ending."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._busy = threading.Lock()

    async def run(self, call: Callable[[], T], within: float) -> T:
        """What `call()` returns or raises.

        Raises TimeoutError after `within` seconds; the late result is dropped. Raises StillBusyError
        while an earlier call hangs.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def deliver(result: T | None, error: Exception | None) -> None:
            if answer.done():  # timed out meanwhile
                return
            if error is None:
                answer.set_result(result)  # type: ignore[arg-type]  # a T wherever there is no error
            else:
                answer.set_exception(error)

        def work() -> None:
            result: T | None = None
            failure: Exception | None = None
            try:
                result = call()
            except Exception as error:  # noqa: BLE001 - the caller gets it
                failure = error
            self._busy.release()
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(deliver, result, failure)

        if not self._busy.acquire(blocking=False):
            raise StillBusyError
        try:
            threading.Thread(target=work, name=self._name, daemon=True).start()
        except RuntimeError as error:  # no more threads to be had
            self._busy.release()
            raise OSError(str(error)) from error
        async with asyncio.timeout(within):
            return await answer
