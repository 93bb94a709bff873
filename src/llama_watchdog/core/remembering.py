"""A standing as it is kept across the watchdog's own end, and how an incident is taken over from there.

Whatever the instant at which a watchdog was killed, the one after it neither repeats a rung nor forgets a
restart. For that a standing is kept *before* each order is carried out, with the order in it (`ordered`), and
again when its outcome is known. Times are kept as seconds of CLOCK_BOOTTIME: each watch counts its own from
its beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from llama_watchdog.core.action import Action, Identity
from llama_watchdog.core.standing import Stage, Standing

_TIMES = ("until", "ended_at", "swept_at")

# A restart that was ordered, and of which nobody knows whether it was carried out, has this long to show.
SHOWS_WITHIN = 10.0
# A ladder that was left longer ago is not climbed on: what was proven then may have passed since.
STALE_AFTER = 60.0


def as_json(standing: Standing, began: float, at: float) -> dict[str, Any]:
    """`began`: when the watch began, that the standing's times are counted from, as is `at`: now."""
    value = asdict(standing)
    value["kept_at"] = at + began
    for name in _TIMES:
        if value[name] is not None:
            value[name] += began
    value["restarts"] = [moment + began for moment in standing.restarts]
    return value


def from_json(value: Mapping[str, Any], began: float) -> tuple[Standing, float]:
    """What `as_json` made, for a watch that began then, and when it was kept.

    Raises ValueError where it is something else.
    """
    try:
        until, ended_at, swept_at = (
            None if value[name] is None else float(value[name]) - began for name in _TIMES
        )
        target = value["target"]
        standing = Standing(
            stage=Stage(value["stage"]),
            incident=int(value["incident"]),
            target=None if target is None else Identity(int(target["pid"]), int(target["start_ticks"])),
            rung=int(value["rung"]),
            signalled=bool(value["signalled"]),
            killed=bool(value["killed"]),
            appeared=bool(value["appeared"]),
            last=_action(value["last"]),
            ordered=_action(value["ordered"]),
            stopped=bool(value["stopped"]),
            restarts=tuple(float(moment) - began for moment in value["restarts"]),
            until=until,
            ended_at=ended_at,
            swept_at=swept_at,
        )
        return standing, float(value["kept_at"]) - began
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"no standing: {error!r}") from None


def _action(value: str | None) -> Action | None:
    return None if value is None else Action(value)


def take_over(standing: Standing, at: float, kept_at: float) -> Standing:
    """What a watch that begins at `at` makes of a standing of this boot, kept at `kept_at`.

    stage      | order without a known outcome | goes on
    -----------+-------------------------------+----------------------------------------------------------
    confirming |                               | as watching: nothing was done
    climbing   | cancel, SIGTERM               | as if it was sent: it gets its grace
    climbing   | SIGKILL                       | with SIGKILL once more: to the same process, or to nobody
    climbing   | any or none, but long ago     | as watching: it has to be proven anew, and may yet end of
               |                               | what was sent
    restarting | SIGKILL to what was left      | with SIGKILL once more
    starting   | restart                       | as restarting, once it has had the time to show; and the
               |                               | restart is not counted twice
    any other  | none                          | where it was: what it waits for shows in any look
    """
    signalled = standing.signalled or standing.ordered in (Action.SIGTERM, Action.SIGKILL)
    taken = replace(standing, resumed=True, ordered=None, signalled=signalled)
    if standing.stage is Stage.CONFIRMING:
        return replace(taken, stage=Stage.WATCHING, until=None, incident=standing.incident - 1)
    if standing.stage is Stage.CLIMBING and at > max(kept_at, standing.until or kept_at) + STALE_AFTER:
        return replace(taken, stage=Stage.WATCHING, until=None)
    if standing.ordered is Action.SIGKILL and standing.stage is Stage.CLIMBING:
        return replace(taken, rung=standing.rung - 1, until=at)
    if standing.ordered is Action.SIGKILL:
        return replace(taken, swept_at=None)
    if standing.ordered is Action.RESTART and standing.stage is Stage.STARTING:
        until = at + SHOWS_WITHIN
        return replace(
            taken, stage=Stage.RESTARTING, restarts=standing.restarts[:-1], until=until, ended_at=at
        )
    return taken


def started_anew(standing: Standing) -> Standing:
    """What outlives a server that was just started by hand, or by whoever starts us: nothing that was begun
    with the one before it. But its restarts are not forgiven by that."""
    return standing.calm()


def after_reboot(standing: Standing) -> Standing:
    """What outlives the machine's own restart: how many incidents there were. No process does."""
    return Standing(incident=standing.incident)
