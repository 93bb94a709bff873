"""The model as the threads of the simulated process share it: one at a time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from time import monotonic

from llama_watchdog.simulator.faults import Fault
from llama_watchdog.simulator.model import ServerModel


class SharedModel:
    """A context manager that lends the model, locked; `wake` rouses the main loop from its sleep.

    `resulted`: when the server last had a result for any of its clients, by the monotonic clock.
    """

    def __init__(self, model: ServerModel, wake: Callable[[], None]) -> None:
        self._model = model
        self._wake = wake
        self._lock = threading.Lock()
        self.resulted = monotonic()

    def __enter__(self) -> ServerModel:
        self._lock.acquire()
        return self._model

    def __exit__(self, *_error: object) -> None:
        self._lock.release()

    def nudge(self) -> None:
        """There is something new in the queue; a loop that is stuck stays asleep."""
        if not self._model.stuck:
            self._wake()

    def strike(self, fault: Fault) -> None:
        """Make a fault begin now, or lift it."""
        with self as model:
            model.strike(model.clock, fault)
        self._wake()


def log(line: str) -> None:
    """One line on standard error, as llama-server logs."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
