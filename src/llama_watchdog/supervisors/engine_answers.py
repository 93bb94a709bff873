"""What a container engine answers: the JSON of Docker's Engine API, as Docker and Podman write it.

What belongs here is reading what was answered. Times are the engine's, in seconds since 1970.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

_TEXT = 200
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Inspected:
    """What an engine knows of one container, from its inspect."""

    id: str
    status: str  # created, running, paused, restarting, exited, removing, dead; Podman: stopping, stopped
    pid: int | None  # of its first process, as its host counts; None while there is none
    exit_code: int  # 128 and the signal, where one ended it
    error: str  # why it could not be started
    oom: bool
    started: float  # 0.0: not yet
    finished: float  # Podman's is 4 ms coarse, and may be before `started`
    policy: str  # no, always, unless-stopped, on-failure
    stop_signal: str  # SIGTERM where it is not set
    environment: tuple[str, ...]  # NAME=value
    health: str  # of its HEALTHCHECK: healthy, unhealthy, starting; "" without one
    podman: bool
    stopped_by_user: bool | None  # or killed; None: it runs, or this is not told (Docker, Podman before 4.7)


@dataclass(frozen=True, slots=True)
class StopEvent:
    """What was asked of the engine: `kill`, `stop`; what Podman did: `cleanup`."""

    at: float
    action: str
    signal: int | None = None  # None: not told (Podman)


def inspected(body: Json, *, podman: bool, stopped_by_user: bool | None) -> Inspected:
    """Of `GET /containers/NAME/json`. What is missing is as in a container that was never started."""
    state, config = part(body, "State"), part(body, "Config")
    health = str(part(state, "Health").get("Status") or "")
    return Inspected(
        id=str(body.get("Id", "")),
        status=str(state.get("Status", "")),
        pid=_number(state, "Pid") or None,
        exit_code=_number(state, "ExitCode"),
        error=one_line(str(state.get("Error") or "")),
        oom=state.get("OOMKilled") is True,
        started=_moment(state.get("StartedAt")),
        finished=_moment(state.get("FinishedAt")),
        policy=str(part(part(body, "HostConfig"), "RestartPolicy").get("Name") or "no"),
        stop_signal=str(config.get("StopSignal") or "SIGTERM"),
        environment=tuple(str(each) for each in config.get("Env") or ()),
        health="" if health == "none" else health,
        podman=podman,
        stopped_by_user=stopped_by_user,
    )


def stop_events(lines: Sequence[Json]) -> list[StopEvent]:
    """Of `GET /events`."""
    found = []
    for line in lines:
        number = str(part(part(line, "Actor"), "Attributes").get("signal", ""))
        found.append(
            StopEvent(
                at=_number(line, "timeNano") / 1e9,
                action=str(line.get("Action", "")),
                signal=int(number) if number.isdecimal() else None,
            )
        )
    return found


def json_object(text: bytes) -> dict[str, Any] | None:
    """None where it is none."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def part(body: Json, key: str) -> dict[str, Any]:
    """The object under a key; an empty one where there is none."""
    found = body.get(key)
    return found if isinstance(found, dict) else {}


def version(text: str) -> tuple[int, ...]:
    """Of 4.3.1, the first two numbers; () of what is none."""
    numbers = text.split(".")[:2]
    return tuple(map(int, numbers)) if all(number.isdecimal() for number in numbers) else ()


def one_line(text: str) -> str:
    """For people: an engine's message may go over several."""
    return " ".join(text.split())[:_TEXT]


def _number(body: Json, key: str) -> int:
    found = body.get(key)
    return found if isinstance(found, int) else 0


def _moment(text: object) -> float:
    """Of 2026-11-30T20:05:15.511793327Z; the year 1 stands for never."""
    try:
        return max(0.0, datetime.fromisoformat(str(text)).timestamp())
    except (ValueError, OverflowError):
        return 0.0
