"""From verdicts to actions: the ladder and the restart breaker.

    stage      | sight                                      | next       | order
    -----------+--------------------------------------------+------------+--------------------------
    watching   | a fault                                    | confirming |
    confirming | a fault still, of the same incarnation     | climbing   | the first rung
    confirming | nothing seen                               | confirming |
    confirming | no fault                                   | watching   |
    climbing   | its process ended                          | restarting |
    climbing   | it serves again, or a person stopped it    | watching   |
    climbing   | grace over, the fault lasts                | climbing   | the next rung
    climbing   | grace over after SIGKILL, alive            | unkillable |
    climbing   | no rung left, none could kill              | restarting |
    unkillable | its process ended                          | restarting |
    restarting | pause over, below the limit                | starting   | restart
    restarting | limit reached                              | held       | hold
    restarting | another incarnation is there already       | starting   |
    starting   | it serves                                  | watching   |
    starting   | ended again, or nothing for start_timeout  | restarting |
    starting   | a fault of the new incarnation             | confirming |
    held       | it serves                                  | watching   |
    rehearsed  | no fault any more (dry run)                | watching   |
    any        | its admin stopped it                       | watching   | hold, once

Every order follows upon a fresh look; a rung that could not be done is over at once. Times are the
observations' own, `at`.
"""

from __future__ import annotations

from dataclasses import replace

from llama_watchdog.core.action import Action, Done, Result
from llama_watchdog.core.observation import Outcome, Unit
from llama_watchdog.core.policy import Policy, Rung
from llama_watchdog.core.standing import Move, Order, Report, Sight, Stage, Standing
from llama_watchdog.core.verdict import BEYOND_CANCEL, SERVING, Reason, State, seconds

# The look just before acting comes this much later: long enough for a step of CPU times to mean something.
CONFIRM_AFTER = 1.0


def admin_stopped(unit: Unit | None, standing: Standing) -> str | None:
    """Why the unit is down on purpose; `None` where it is not, or where nobody knows."""
    if unit is None or unit.outcome is not Outcome.OK:
        return None
    if unit.load in ("masked", "not-found"):
        return f"its unit is {unit.load}"
    if unit.job in ("stop", "restart"):
        return f"its unit has a {unit.job} job"
    if unit.active in ("active", "activating", "reloading", "refreshing"):
        return None
    # Our own SIGTERM, too, can end it without a failure, but then nobody had asked the unit to stop.
    clean = unit.active == "inactive" and not standing.signalled
    return "its unit was stopped" if standing.stopped or unit.stop_ordered or clean else None


def look(standing: Standing, policy: Policy, sight: Sight, *, dry_run: bool = False) -> Move:
    """The next move after a fresh look at the server."""
    why = admin_stopped(sight.unit, standing)
    if why is not None:
        return _stand_down(standing, why)
    if standing.stopped and sight.unit is not None and sight.unit.active in ("active", "activating"):
        standing = replace(standing, stopped=False)
    if standing.restarts and sight.delivered and sight.verdict.state in SERVING:
        standing = replace(standing, restarts=())
    return _BY_STAGE[standing.stage](standing, policy, sight, dry_run)


def _stand_down(standing: Standing, why: str) -> Move:
    calm = Standing(incident=standing.incident, stopped=True, restarts=standing.restarts)
    if standing.stopped and standing.stage is Stage.WATCHING:
        return Move(calm)
    return Move(calm, None, Report(Action.HOLD, Done.DONE, f"left alone: {why}", standing.incident))


def _watching(standing: Standing, _policy: Policy, sight: Sight, _dry_run: bool) -> Move:
    if not sight.verdict.fault:
        return Move(standing)
    return Move(
        replace(
            standing,
            stage=Stage.CONFIRMING,
            target=sight.target,
            until=sight.at + CONFIRM_AFTER,
            incident=standing.incident + 1,
            rung=-1,
            signalled=standing.signalled and sight.target in (standing.target, None),
            killed=False,
            last=None,
        )
    )


def _confirming(standing: Standing, policy: Policy, sight: Sight, _dry_run: bool) -> Move:
    if not sight.verdict.fault and sight.verdict.state is State.WEDGED:
        return Move(replace(standing, until=sight.at + CONFIRM_AFTER))  # this look has seen nothing
    if not sight.verdict.fault:
        return Move(replace(standing, stage=Stage.WATCHING, until=None, incident=standing.incident - 1))
    if sight.target != standing.target:
        return Move(replace(standing, target=sight.target, until=sight.at + CONFIRM_AFTER))
    if _ended(standing, sight) or standing.target is None:
        return _to_restart(standing, policy, sight)
    return _climb(standing, policy, sight)


def _ended(standing: Standing, sight: Sight) -> bool:
    if sight.verdict.reason is Reason.GONE:
        return True
    return standing.target is not None and sight.target is not None and sight.target != standing.target


def _climb(standing: Standing, policy: Policy, sight: Sight) -> Move:
    """Order the next rung that makes sense here."""
    ladder = policy.escalation.ladder
    rung = standing.rung + 1
    while rung < len(ladder) and ladder[rung] is Rung.CANCEL and sight.verdict.reason in BEYOND_CANCEL:
        rung += 1
    if rung >= len(ladder):
        if standing.killed:
            return Move(replace(standing, stage=Stage.UNKILLABLE, until=None))
        return _to_restart(standing, policy, sight)
    action = Action(ladder[rung].value)
    climbing = replace(
        standing,
        stage=Stage.CLIMBING,
        rung=rung,
        last=action,
        until=sight.at + policy.escalation.grace(ladder[rung]),
        signalled=standing.signalled or action in (Action.SIGTERM, Action.SIGKILL),
    )
    return Move(climbing, Order(action, standing.target, standing.incident))


def _climbing(standing: Standing, policy: Policy, sight: Sight, dry_run: bool) -> Move:
    if _ended(standing, sight):
        return _to_restart(standing, policy, sight)
    if sight.verdict.state in SERVING:
        return _healed(standing)
    if sight.verdict.state is State.PAUSED:
        return Move(replace(standing, stage=Stage.WATCHING, until=None))
    if standing.until is not None and sight.at < standing.until:
        return Move(standing)
    if standing.killed and dry_run:  # nothing was sent, so nothing can have ended
        return _to_restart(standing, policy, sight)
    if not sight.verdict.fault and not standing.signalled:
        return Move(standing)  # neither healed nor proven: wait for a verdict
    return _climb(standing, policy, sight)


def _unkillable(standing: Standing, policy: Policy, sight: Sight, _dry_run: bool) -> Move:
    if _ended(standing, sight):
        return _to_restart(standing, policy, sight)
    if sight.verdict.state in SERVING:
        return _healed(standing)
    return Move(standing)


def _healed(standing: Standing) -> Move:
    calm = Standing(incident=standing.incident, restarts=standing.restarts)
    if standing.last is None:
        return Move(calm)
    if standing.last is not Action.RESTART and standing.signalled:  # it may yet end of our signal
        calm = replace(calm, target=standing.target, signalled=True)
    return Move(calm, None, Report(standing.last, Done.HEALED, "serving again", standing.incident))


def pause_before_restart(standing: Standing, policy: Policy, at: float) -> float:
    """Seconds to wait: none before the first, doubling from the second on."""
    recent = _recent(standing, policy, at)
    if not recent:
        return 0.0
    return min(policy.restart.backoff * 2.0 ** (len(recent) - 1), policy.restart.backoff_max)


def _recent(standing: Standing, policy: Policy, at: float) -> tuple[float, ...]:
    return tuple(moment for moment in standing.restarts if at - moment < policy.restart.window)


def _to_restart(standing: Standing, policy: Policy, sight: Sight) -> Move:
    pause = pause_before_restart(standing, policy, sight.at)
    waiting = replace(standing, stage=Stage.RESTARTING, until=sight.at + pause)
    return _restarting(waiting, policy, sight, False)


def _restarting(standing: Standing, policy: Policy, sight: Sight, _dry_run: bool) -> Move:
    if sight.verdict.state is State.PAUSED:  # whatever it is that lives there, a person is at it
        return Move(standing)
    if sight.verdict.state in SERVING:
        return _healed(replace(standing, last=standing.last or Action.RESTART))
    if _is_another(standing, sight):
        return Move(_starting_now(standing, policy, sight))
    unit = sight.unit
    if unit is not None and unit.active in ("activating", "deactivating"):
        return Move(standing)  # systemd is at it
    if standing.until is not None and sight.at < standing.until:
        return Move(standing)
    recent = _recent(standing, policy, sight.at)
    if len(recent) >= policy.restart.max_restarts:
        text = (
            f"{len(recent)} restarts within {seconds(policy.restart.window)} have not helped "
            f"({sight.verdict.text}); hands off until it serves again"
        )
        if unit is not None and unit.exit_status:
            text += f"; last exit status {unit.exit_status}"
        held = replace(standing, stage=Stage.HELD, until=None)
        return Move(held, None, Report(Action.HOLD, Done.DONE, text, standing.incident))
    starting = _starting_now(standing, policy, sight)
    return Move(starting, Order(Action.RESTART, standing.target, standing.incident))


def _is_another(standing: Standing, sight: Sight) -> bool:
    return (
        sight.target is not None
        and sight.target != standing.target
        and sight.verdict.reason is not Reason.GONE
    )


def _starting_now(standing: Standing, policy: Policy, sight: Sight) -> Standing:
    return replace(
        standing,
        stage=Stage.STARTING,
        last=Action.RESTART,
        until=sight.at + policy.restart.start_timeout,
        restarts=(*_recent(standing, policy, sight.at), sight.at),
        killed=False,
        appeared=False,
    )


def _starting(standing: Standing, policy: Policy, sight: Sight, dry_run: bool) -> Move:
    if sight.verdict.state is State.PAUSED:  # its start is not to blame for the time that this takes
        return Move(replace(standing, until=sight.at + policy.restart.start_timeout))
    if dry_run:
        return Move(replace(standing, stage=Stage.REHEARSED, until=None, restarts=()))
    if sight.verdict.state in SERVING:
        return _healed(standing)
    if _is_another(standing, sight):  # from here on it is the one to look after
        return Move(replace(standing, target=sight.target, signalled=False, appeared=True))
    unit = sight.unit
    failed = unit is not None and unit.active == "failed" and not unit.job
    if failed or (standing.appeared and sight.verdict.reason is Reason.GONE):
        return _to_restart(standing, policy, sight)
    if standing.appeared and sight.verdict.fault:
        return _watching(standing, policy, sight, dry_run)
    if sight.verdict.state is State.LOADING:  # its own budget runs, by the load's progress
        return Move(replace(standing, until=sight.at + policy.restart.start_timeout))
    if standing.until is not None and sight.at >= standing.until:
        return _to_restart(standing, policy, sight)
    return Move(standing)


def _held(standing: Standing, _policy: Policy, sight: Sight, _dry_run: bool) -> Move:
    return _healed(replace(standing, last=None)) if sight.verdict.state in SERVING else Move(standing)


def _rehearsed(standing: Standing, _policy: Policy, sight: Sight, _dry_run: bool) -> Move:
    return Move(standing) if sight.verdict.fault else Move(Standing(incident=standing.incident))


_BY_STAGE = {
    Stage.WATCHING: _watching,
    Stage.CONFIRMING: _confirming,
    Stage.CLIMBING: _climbing,
    Stage.UNKILLABLE: _unkillable,
    Stage.RESTARTING: _restarting,
    Stage.STARTING: _starting,
    Stage.HELD: _held,
    Stage.REHEARSED: _rehearsed,
}


def outcome(standing: Standing, action: Action, result: Result, at: float) -> Move:
    """What follows from how an order went."""
    report = Report(action, result.outcome, result.text, standing.incident)
    if result.outcome in (Done.UNSUPPORTED, Done.FAILED):
        if action is Action.RESTART:
            return Move(standing, None, report)  # it may come back by another hand; else start_timeout
        return Move(replace(standing, until=at), None, report)
    if action is Action.SIGKILL:
        standing = replace(standing, killed=True)
    if action is Action.RESTART:
        report = replace(report, outcome=Done.STARTED)
    return Move(standing, None, report)
