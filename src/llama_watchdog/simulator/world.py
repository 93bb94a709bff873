"""The virtual world around a simulated server: its clients, its host, and what happens in which order."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from llama_watchdog.simulator.happenings import (
    Happening,
    Leave,
    Request,
    Restart,
    Sigkill,
    Sigterm,
    Strike,
    Suspend,
)
from llama_watchdog.simulator.model import ServerModel

_OPEN_TASKS = 512  # beyond so many, those that are over are forgotten


class World:
    """Makes `happenings` (in the order of `at`) happen to `model` as time passes."""

    def __init__(self, model: ServerModel, happenings: Iterable[Happening] = ()) -> None:
        self.model = model
        self.now = 0.0
        self._happenings = iter(happenings)
        self._next = next(self._happenings, None)
        self._suspended = 0.0  # since the start
        self._untold = 0.0  # of it, since last told
        self._open: dict[int, str] = {}  # task -> its client's name
        self._leaving: list[tuple[float, int]] = []  # when, which task

    @property
    def boottime(self) -> float:
        """Seconds since the start by CLOCK_BOOTTIME, which counts the host's sleep, too."""
        return self.now + self._suspended

    def take_suspended(self) -> float:
        """How much the host slept since this was last asked."""
        seconds, self._untold = self._untold, 0.0
        return seconds

    def advance(self, now: float) -> None:
        """Let time pass up to `now`, with all that happens until then."""
        while True:
            leaves = self._leaving[0][0] if self._leaving else None
            happens = self._next.at if self._next else None
            if leaves is not None and leaves <= now and (happens is None or leaves <= happens):
                at, task_id = heappop(self._leaving)
                self.model.cancel(at, task_id)
            elif self._next and self._next.at <= now:
                happening, self._next = self._next, next(self._happenings, None)
                self.happen(happening)
            else:
                break
        self.now = max(now, self.now)
        self.model.advance(self.now)

    def happen(self, happening: Happening) -> None:
        """Make one thing happen, at its time or, where that is past, now."""
        self.now = at = max(happening.at, self.now)
        model = self.model
        match happening:
            case Request():
                self._request(at, happening)
            case Leave(name=name):
                for task_id in [task for task, client in self._open.items() if name in ("", client)]:
                    del self._open[task_id]
                    model.cancel(at, task_id)
            case Strike(fault=fault):
                model.strike(at, fault)
            case Suspend(seconds=seconds):
                self._suspended += seconds
                self._untold += seconds
            case Sigterm():
                model.terminate(at)
            case Sigkill():
                model.kill(at)
            case Restart(fault=fault):
                self._open.clear()
                self._leaving.clear()
                model.restart(at, fault)

    def _request(self, at: float, request: Request) -> None:
        self.model.advance(at)
        if not self.model.listening or self.model.loading:
            return  # the client is refused, or told to come again
        task_id = self.model.submit(at, request.task)
        self._open[task_id] = request.name
        if request.leaves_after is not None:
            heappush(self._leaving, (at + request.leaves_after, task_id))
        if len(self._open) > _OPEN_TASKS:
            self._open = {task: name for task, name in self._open.items() if not self.model.task(task).over}
