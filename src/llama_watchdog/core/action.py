"""The words between the pure half and the hands: what to do, to whom, and how it went."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Action(StrEnum):
    """What can be done to a server. HOLD is doing nothing any more, on purpose."""

    CANCEL = "cancel"
    SIGTERM = "sigterm"
    SIGKILL = "sigkill"
    RESTART = "restart"
    HOLD = "hold"


class Done(StrEnum):
    """How an action went. UNSUPPORTED: it cannot be done here, and nothing was done."""

    STARTED = "started"
    DONE = "done"
    HEALED = "healed"
    FAILED = "failed"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True)
class Result:
    """What an adapter says of one action: `text` is one line for people, with the remedy where it failed."""

    outcome: Done
    text: str


@dataclass(frozen=True, slots=True)
class Identity:
    """One incarnation of a process, never to be mistaken for another: pids are reused, this is not."""

    pid: int
    start_ticks: int  # field 22 of /proc/PID/stat: clock ticks after boot


def would_have(action: Action, target: Identity | None) -> Result:
    """How an order goes where nothing is done: in a dry run, and in a replay."""
    pid = f"pid {target.pid}" if target is not None else "its process"
    text = {
        Action.CANCEL: "would have closed its clients' connections",
        Action.SIGTERM: f"would have sent SIGTERM to {pid}",
        Action.SIGKILL: f"would have sent SIGKILL to {pid} and its descendants",
        Action.RESTART: "would have restarted it",
        Action.HOLD: "would have held",
    }[action]
    return Result(Done.DONE, text)
