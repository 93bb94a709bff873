"""The restart breaker: when a server that has ended is started again, and when that is given up.

What belongs here are the stages `restarting`, `starting` and `held`, and what has to be gone before anything
is started: the processes of the old server, its port, its GPU memory.
"""

from __future__ import annotations

from dataclasses import replace

from llama_watchdog.core.action import Action, Done
from llama_watchdog.core.moves import begun, healed, is_another, serves
from llama_watchdog.core.observation import Left, Unit
from llama_watchdog.core.policy import Policy
from llama_watchdog.core.standing import Move, Order, Report, Sight, Stage, Standing
from llama_watchdog.core.verdict import Reason, State, seconds

# A port or memory that is still taken is waited for no longer: a start beside it fails by itself, and counts.
FREE_WITHIN = 30.0


def pause_before_restart(standing: Standing, policy: Policy, at: float) -> float:
    """Seconds to wait: none before the first, doubling from the second on."""
    recent = _recent(standing, policy, at)
    if not recent:
        return 0.0
    return min(policy.restart.backoff * 2.0 ** (len(recent) - 1), policy.restart.backoff_max)


def _recent(standing: Standing, policy: Policy, at: float) -> tuple[float, ...]:
    return tuple(moment for moment in standing.restarts if at - moment < policy.restart.window)


def to_restart(standing: Standing, policy: Policy, sight: Sight, *, dry_run: bool) -> Move:
    """It has to be started again, as soon as it may be."""
    pause = pause_before_restart(standing, policy, sight.at)
    waiting = replace(
        standing, stage=Stage.RESTARTING, until=sight.at + pause, ended_at=sight.at, swept_at=None
    )
    return restarting(waiting, policy, sight, dry_run)


def restarting(standing: Standing, policy: Policy, sight: Sight, dry_run: bool) -> Move:
    """Nothing is started before whatever is in the way has gone, and the pause is over."""
    if sight.verdict.state is State.PAUSED:  # whatever it is that lives there, a person is at it
        return Move(standing)
    if serves(standing, sight):
        return healed(replace(standing, last=standing.last or Action.RESTART))
    if is_another(standing, sight):
        return Move(_starting_now(standing, policy, sight))
    unit = sight.unit
    in_the_way = None if dry_run or _runs_its_commands(unit) else _in_the_way(standing, policy, sight)
    if in_the_way is not None:
        return in_the_way
    if unit is not None and unit.active in ("activating", "deactivating"):
        return Move(standing)  # its supervisor is at it
    if standing.until is not None and sight.at < standing.until:
        return Move(standing)
    if _may_live(standing, sight):  # a restart would be its end: it is proven anew, or left alone
        lasts = standing.until is None or sight.at >= standing.until + FREE_WITHIN
        return Move(standing.calm() if lasts and sight.verdict.state is State.BLIND else standing)
    recent = _recent(standing, policy, sight.at)
    if len(recent) >= policy.restart.max_restarts:
        return _hold(standing, policy, sight, len(recent))
    starting = replace(_starting_now(standing, policy, sight), ordered=Action.RESTART)
    return Move(starting, Order(Action.RESTART, standing.target, standing.incident))


def _may_live(standing: Standing, sight: Sight) -> bool:
    """Whether it may be alive, with nothing proven against it: also where its process can't be seen."""
    if sight.verdict.fault:
        return False
    if sight.target is not None:
        return sight.target == standing.target
    down = sight.unit is not None and sight.unit.active in ("failed", "inactive")
    return not down and sight.verdict.reason is not Reason.REFUSED


def _runs_its_commands(unit: Unit | None) -> bool:
    """Whether systemd runs what the unit has before or after its server, as to fetch a model or to clean up.

    Like remains it is a cgroup without a main process.
    """
    if unit is None:
        return False
    before = unit.active == "activating" and not unit.sub.startswith("auto-restart")
    return before or unit.sub in ("stop", "stop-post")  # ExecStop=, ExecStopPost=


def _in_the_way(standing: Standing, policy: Policy, sight: Sight) -> Move | None:
    """What is left of the old server: its processes are killed, port and memory are waited for."""
    if sight.left is None or standing.ended_at is None:
        return None
    waited = sight.at - standing.ended_at
    # An active unit may run more than the one server: what else is in it has a life of its own.
    others = sight.unit is not None and sight.unit.active == "active" and not standing.signalled
    if sight.left.processes and not others:
        return _kill_what_is_left(standing, policy, sight, waited)
    if (sight.left.port or sight.left.gpu) and waited < FREE_WITHIN:
        return Move(standing)
    return None


def waits_for(left: Left | None) -> str:
    """What a start waits for, for people; "": nothing."""
    if left is None:
        return ""
    if left.processes:
        pids = ", ".join(str(process.pid) for process in left.processes)
        return f"processes that it has left live on (pid {pids})"
    if left.port:
        return f"its port is taken by {left.port}"
    return "its GPU memory is not free yet" if left.gpu else ""


def _kill_what_is_left(standing: Standing, policy: Policy, sight: Sight, waited: float) -> Move:
    """They get the time of a SIGTERM to end by themselves, as a supervisor may just have them do."""
    assert sight.left is not None  # noqa: S101 - the caller has looked
    escalation = policy.escalation
    if waited < escalation.sigterm_grace:
        return Move(standing)
    if standing.swept_at is None:
        order = Order(Action.SIGKILL, standing.target, standing.incident, left=sight.left.processes)
        return Move(replace(standing, ordered=Action.SIGKILL, swept_at=sight.at), order)
    if sight.at < standing.swept_at + escalation.sigkill_grace:
        return Move(standing)
    return Move(replace(standing, stage=Stage.UNKILLABLE, until=None))


def _hold(standing: Standing, policy: Policy, sight: Sight, restarts: int) -> Move:
    text = (
        f"{restarts} restarts within {seconds(policy.restart.window)} have not helped "
        f"({sight.verdict.text}); hands off until it serves again or is released"
    )
    if sight.unit is not None and sight.unit.exit_status:
        text += f"; last exit status {sight.unit.exit_status}"
    held = replace(standing, stage=Stage.HELD, until=None)
    return Move(held, None, Report(Action.HOLD, Done.DONE, text, standing.incident))


def _starting_now(standing: Standing, policy: Policy, sight: Sight) -> Standing:
    return replace(
        standing,
        stage=Stage.STARTING,
        last=Action.RESTART,
        until=sight.at + policy.restart.start_timeout,
        restarts=(*_recent(standing, policy, sight.at), sight.at),
        killed=False,
        appeared=False,
        ended_at=None,
    )


def starting(standing: Standing, policy: Policy, sight: Sight, dry_run: bool) -> Move:
    """It has been asked for: it serves in the end, or ends again, or never appears."""
    if sight.verdict.state is State.PAUSED:  # its start is not to blame for the time that this takes
        return Move(replace(standing, until=sight.at + policy.restart.start_timeout))
    if dry_run:
        return Move(replace(standing, stage=Stage.REHEARSED, until=None, restarts=()))
    if serves(standing, sight):
        return healed(standing)
    if is_another(standing, sight):  # from here on it is the one to look after
        return Move(replace(standing, target=sight.target, signalled=False, appeared=True))
    unit = sight.unit
    failed = unit is not None and unit.active == "failed" and not unit.job
    if failed or (standing.appeared and sight.verdict.reason is Reason.GONE):
        return to_restart(standing, policy, sight, dry_run=dry_run)
    if standing.appeared and sight.verdict.fault:
        return begun(standing, sight)
    if sight.verdict.state is State.LOADING:  # its own budget runs, by the load's progress
        return Move(replace(standing, until=sight.at + policy.restart.start_timeout))
    if standing.until is not None and sight.at >= standing.until:
        if sight.verdict.state is State.BLIND:  # up, for all that can be seen: no reason for another start
            return Move(standing.calm())
        return to_restart(standing, policy, sight, dry_run=dry_run)
    return Move(standing)


def held(standing: Standing, _policy: Policy, sight: Sight, _dry_run: bool) -> Move:
    """Only what others do is watched."""
    return healed(replace(standing, last=None)) if serves(standing, sight) else Move(standing)


def release(standing: Standing, at: float) -> Move:
    """Its admin has mended it: restarts are forgiven, and one that is held is started at once."""
    calm = replace(standing, restarts=())
    if standing.stage is not Stage.HELD:
        return Move(calm)
    freed = replace(calm, stage=Stage.RESTARTING, until=at, ended_at=at, last=None)
    return Move(freed, None, Report(Action.HOLD, Done.DONE, "released: restarts go on", standing.incident))
