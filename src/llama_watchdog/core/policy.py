"""The settings that judging and escalating depend on, as plain frozen values in seconds.

`settings` yields these from the configuration; traces carry them. The defaults here are the product's
defaults, each with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any


class Rung(StrEnum):
    """One rung of the ladder, from the gentlest on."""

    CANCEL = "cancel"  # close the clients' connections, as their own "stop" would
    SIGTERM = "sigterm"  # the second one makes llama-server call exit(1) on the spot
    SIGKILL = "sigkill"


@dataclass(frozen=True, slots=True)
class StallPolicy:
    """How long each kind of standstill may last before it is a wedge."""

    blocked: float = 30.0
    spinning: float = 60.0
    unknown: float = 120.0
    computing: float = 7200.0  # while the pace is not learned
    pace_factor: float = 5.0
    pace_floor: float = 300.0
    loading: float = 1800.0
    down: float = 15.0
    deferred: float = 30.0
    slot_patience: float = 1800.0
    confirmations: int = 3


@dataclass(frozen=True, slots=True)
class LadderPolicy:
    """The rungs in their order, and how long each may take to work."""

    ladder: tuple[Rung, ...] = (Rung.CANCEL, Rung.SIGTERM, Rung.SIGTERM, Rung.SIGKILL)
    cancel_grace: float = 5.0  # /slots is left alone for the first 3 s of it
    sigterm_grace: float = 3.0
    sigkill_grace: float = 10.0

    def grace(self, rung: Rung) -> float:
        """Seconds that `rung` has to work."""
        graces = {
            Rung.CANCEL: self.cancel_grace,
            Rung.SIGTERM: self.sigterm_grace,
            Rung.SIGKILL: self.sigkill_grace,
        }
        return graces[rung]


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How often a server may be restarted, and the pauses between."""

    max_restarts: int = 5
    window: float = 3600.0
    backoff: float = 5.0  # from the second restart on, doubling
    backoff_max: float = 300.0
    start_timeout: float = 1800.0  # without load progress


@dataclass(frozen=True, slots=True)
class Policy:
    """All of it, for one server."""

    stall: StallPolicy = field(default_factory=StallPolicy)
    escalation: LadderPolicy = field(default_factory=LadderPolicy)
    restart: RestartPolicy = field(default_factory=RestartPolicy)


_ENDLESS = 1e15  # integers beyond floating point must not overflow
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")


def parse_duration(value: object) -> float:
    """Seconds from `250ms`, `30s`, `5m`, `1h`, `1d` or a plain number of seconds.

    Raises ValueError, with what is allowed, for anything else, negatives and infinities included.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value) if abs(value) < _ENDLESS else float("inf")
    else:
        match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None:
            raise ValueError(f"{value!r} is no duration: use 250ms, 30s, 5m, 1h or seconds")
        seconds = float(match[1]) * _UNITS[match[2] or "s"]
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{value!r} is no duration: it must be 0 or more, and finite")
    return seconds


def policy_as_json(policy: Policy) -> dict[str, Any]:
    """The settings in force, grouped and named as in the configuration, durations in seconds."""
    return {
        "stall": asdict(policy.stall),
        "escalation": asdict(policy.escalation),
        "restart": asdict(policy.restart),
    }


def policy_from_json(value: Mapping[str, Any]) -> Policy:
    """A policy as `policy_as_json` wrote it; durations may also be words (`30s`). Missing: the defaults."""
    return Policy(
        stall=StallPolicy(**_fields(StallPolicy, value, "stall")),
        escalation=LadderPolicy(**_fields(LadderPolicy, value, "escalation")),
        restart=RestartPolicy(**_fields(RestartPolicy, value, "restart")),
    )


def _fields(kind: type, policy: Mapping[str, Any], section: str) -> dict[str, Any]:
    given = policy.get(section) or {}
    known = {field.name: field.default for field in fields(kind)}
    out: dict[str, Any] = {}
    for name in known.keys() & given.keys():
        try:
            if name == "ladder":
                out[name] = tuple(Rung(rung) for rung in given[name])
            elif isinstance(known[name], int):
                out[name] = int(given[name])
            else:
                out[name] = parse_duration(given[name])
        except (TypeError, ValueError) as error:
            raise ValueError(f"policy.{section}.{name}: {error}") from None
    return out
