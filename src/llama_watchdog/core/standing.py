"""The words of the escalation: where an incident stands, what it is shown, what it orders and reports.

All frozen: `escalation` makes a new standing of each look.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from llama_watchdog.core.action import Action, Done, Identity
from llama_watchdog.core.observation import Unit
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
    stopped: bool = False  # by its admin, who has not started it again
    restarts: tuple[float, ...] = ()  # not yet forgiven


@dataclass(frozen=True, slots=True)
class Sight:
    """One fresh look: the verdict, the incarnation it is about, and its unit."""

    at: float
    verdict: Verdict
    target: Identity | None
    unit: Unit | None = None
    delivered: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """Something to be done now, to exactly this incarnation."""

    action: Action
    target: Identity | None
    incident: int


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
