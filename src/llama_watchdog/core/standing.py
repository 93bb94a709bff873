"""The words of the escalation: where an incident stands, what it is shown, what it orders and reports.

All frozen: `escalation` makes a new standing of each look.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from llama_watchdog.core.action import Action, Done, Identity
from llama_watchdog.core.observation import Left, Unit
from llama_watchdog.core.verdict import Verdict


class Stage(StrEnum):
    """Where an incident stands."""

    WATCHING = "watching"
    CONFIRMING = "confirming"
    CLIMBING = "climbing"
    UNKILLABLE = "unkillable"
    RESTARTING = "restarting"
    STARTING = "starting"
    HELD = "held"
    REHEARSED = "rehearsed"


@dataclass(frozen=True, slots=True)
class Standing:
    """All that the escalation remembers."""

    stage: Stage = Stage.WATCHING
    incident: int = 0  # how many there were
    target: Identity | None = None
    rung: int = -1
    until: float | None = None  # when the grace, pause or timeout at hand is over
    signalled: bool = False  # we have sent `target` a signal that may end it cleanly
    killed: bool = False  # SIGKILL was sent
    appeared: bool = False  # a new incarnation was seen since the restart
    last: Action | None = None
    ordered: Action | None = None  # and how it went is not known yet
    ended_at: float | None = None  # when its process's end was seen
    swept_at: float | None = None  # when SIGKILL went to what it had left behind
    stopped: bool = False  # by its admin, who has not started it again
    resumed: bool = False  # taken over from a watchdog that has ended: `target` has to prove itself anew
    restarts: tuple[float, ...] = ()  # not yet forgiven

    def calm(self) -> Standing:
        """As after an incident: how many there were, and the restarts, which only tokens forgive."""
        return Standing(incident=self.incident, restarts=self.restarts)


@dataclass(frozen=True, slots=True)
class Sight:
    """One fresh look: the verdict, the incarnation it is about, and what its supervisor says.

    `delivered`: it has delivered tokens since it was started; `proven`: its main loop has been seen to work
    in this watch.
    """

    at: float
    verdict: Verdict
    target: Identity | None
    unit: Unit | None = None
    delivered: bool = False
    proven: bool = False
    left: Left | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """Something to be done now, to exactly this incarnation."""

    action: Action
    target: Identity | None
    incident: int
    left: tuple[Identity, ...] = ()  # of SIGKILL: these, in place of a target that has ended


@dataclass(frozen=True, slots=True)
class Report:
    """Something to be told of an action."""

    action: Action
    outcome: Done
    text: str
    incident: int


@dataclass(frozen=True, slots=True)
class Move:
    """What follows from a look or from an outcome."""

    standing: Standing
    order: Order | None = None
    report: Report | None = None
