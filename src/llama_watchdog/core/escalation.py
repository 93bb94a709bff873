"""From verdicts to actions: which stage follows which. Here are the ladder's; `restarting` has the breaker's.

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
    unkillable | its process ended, and all of its tree     | restarting |
    restarting | processes of its tree outlive it           | restarting | SIGKILL to them
    restarting | they outlive that, too                     | unkillable |
    restarting | its port or GPU memory is taken            | restarting |
    restarting | pause over, below the limit                | starting   | restart
    restarting | limit reached                              | held       | hold
    restarting | another incarnation is there already       | starting   |
    starting   | it serves                                  | watching   |
    starting   | ended again, or nothing for start_timeout  | restarting |
    starting   | its supervisor refused, or did not answer  | restarting |
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
from llama_watchdog.core.moves import CONFIRM_AFTER, begun, ended, healed, serves
from llama_watchdog.core.observation import Outcome, Unit
from llama_watchdog.core.policy import Policy, Rung
from llama_watchdog.core.restarting import held, restarting, starting, to_restart
from llama_watchdog.core.standing import Move, Order, Report, Sight, Stage, Standing
from llama_watchdog.core.verdict import BEYOND_CANCEL, SERVING, State

# Seconds until a restart is ordered again that its supervisor has refused, or did not answer in time.
TRIED_AGAIN_AFTER = 60.0


def admin_stopped(unit: Unit | None, standing: Standing) -> str | None:
    """Why the unit is down on purpose; `None` where it is not, or where nobody knows."""
    if unit is None or unit.outcome is not Outcome.OK:
        return None
    if unit.load in ("masked", "not-found"):
        return f"its unit is {unit.load}"
    ours = standing.stage is Stage.STARTING  # ordered by us, it lasts as long as the old one takes to end
    if unit.job == "stop" or (unit.job == "restart" and not ours):
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
    # Of a server that is well the supervisor isn't asked, as after a pause in which it was started.
    up = sight.unit is not None and sight.unit.active in ("active", "activating")
    if standing.stopped and (up or sight.verdict.state in SERVING):
        standing = replace(standing, stopped=False)
    if standing.restarts and sight.delivered and sight.verdict.state in SERVING:
        standing = replace(standing, restarts=())
    return _BY_STAGE[standing.stage](standing, policy, sight, dry_run)


def aside(standing: Standing, why: str) -> Move:
    """Hands off, whatever is seen: what was begun is dropped; a hold and what is not forgiven stay."""
    if standing.stage in (Stage.WATCHING, Stage.HELD):
        return Move(standing)
    if standing.stage is Stage.CONFIRMING:  # nothing was done yet
        return Move(replace(standing, stage=Stage.WATCHING, until=None, incident=standing.incident - 1))
    calm = replace(
        standing.calm(),
        target=standing.target,
        signalled=standing.signalled,
        stopped=standing.stopped,
    )
    return Move(calm, None, Report(Action.HOLD, Done.DONE, f"hands off: {why}", standing.incident))


def _stand_down(standing: Standing, why: str) -> Move:
    calm = replace(standing.calm(), stopped=True)
    if standing.stopped and standing.stage is Stage.WATCHING:
        return Move(calm)
    return Move(calm, None, Report(Action.HOLD, Done.DONE, f"left alone: {why}", standing.incident))


def _watching(standing: Standing, _policy: Policy, sight: Sight, _dry_run: bool) -> Move:
    return begun(standing, sight) if sight.verdict.fault else Move(standing)


def _confirming(standing: Standing, policy: Policy, sight: Sight, dry_run: bool) -> Move:
    if not sight.verdict.fault and sight.verdict.state is State.WEDGED:
        return Move(replace(standing, until=sight.at + CONFIRM_AFTER))  # this look has seen nothing
    if not sight.verdict.fault:
        return Move(replace(standing, stage=Stage.WATCHING, until=None, incident=standing.incident - 1))
    if sight.target != standing.target:
        return Move(replace(standing, target=sight.target, until=sight.at + CONFIRM_AFTER))
    if ended(standing, sight) or standing.target is None:
        return to_restart(standing, policy, sight, dry_run=dry_run)
    return _climb(standing, policy, sight, dry_run)


def _climb(standing: Standing, policy: Policy, sight: Sight, dry_run: bool) -> Move:
    """Order the next rung that makes sense here."""
    ladder = policy.escalation.ladder
    rung = standing.rung + 1
    while rung < len(ladder) and ladder[rung] is Rung.CANCEL and sight.verdict.reason in BEYOND_CANCEL:
        rung += 1
    if rung >= len(ladder):
        if standing.killed:
            return Move(replace(standing, stage=Stage.UNKILLABLE, until=None))
        return to_restart(standing, policy, sight, dry_run=dry_run)
    action = Action(ladder[rung].value)
    climbing = replace(
        standing,
        stage=Stage.CLIMBING,
        rung=rung,
        last=action,
        ordered=action,
        until=sight.at + policy.escalation.grace(ladder[rung]),
    )
    return Move(climbing, Order(action, standing.target, standing.incident))


def _climbing(standing: Standing, policy: Policy, sight: Sight, dry_run: bool) -> Move:
    if ended(standing, sight):
        return to_restart(standing, policy, sight, dry_run=dry_run)
    if serves(standing, sight):
        return healed(standing)
    if sight.verdict.state is State.PAUSED:
        return Move(replace(standing, stage=Stage.WATCHING, until=None))
    if standing.until is not None and sight.at < standing.until:
        return Move(standing)
    if standing.killed and dry_run:  # nothing was sent, so nothing can have ended
        return to_restart(standing, policy, sight, dry_run=dry_run)
    if not sight.verdict.fault and not standing.signalled:
        return Move(standing)  # neither healed nor proven: wait for a verdict
    return _climb(standing, policy, sight, dry_run)


def _unkillable(standing: Standing, policy: Policy, sight: Sight, dry_run: bool) -> Move:
    if sight.left is not None and sight.left.processes:
        return Move(standing)  # what it has left behind can't be ended either
    if ended(standing, sight):
        return to_restart(standing, policy, sight, dry_run=dry_run)
    if serves(standing, sight):
        return healed(standing)
    return Move(standing)


def _rehearsed(standing: Standing, _policy: Policy, sight: Sight, _dry_run: bool) -> Move:
    return Move(standing) if sight.verdict.fault else Move(Standing(incident=standing.incident))


_BY_STAGE = {
    Stage.WATCHING: _watching,
    Stage.CONFIRMING: _confirming,
    Stage.CLIMBING: _climbing,
    Stage.UNKILLABLE: _unkillable,
    Stage.RESTARTING: restarting,
    Stage.STARTING: starting,
    Stage.HELD: held,
    Stage.REHEARSED: _rehearsed,
}


def outcome(standing: Standing, action: Action, result: Result, at: float) -> Move:
    """What follows from how an order went."""
    standing = replace(standing, ordered=None)
    if action in (Action.SIGTERM, Action.SIGKILL) and result.outcome is not Done.UNSUPPORTED:
        standing = replace(standing, signalled=True)
    report = Report(action, result.outcome, result.text, standing.incident)
    if action is Action.RESTART and result.outcome is Done.FAILED and standing.stage is Stage.STARTING:
        again = replace(
            standing, stage=Stage.RESTARTING, until=at + TRIED_AGAIN_AFTER, ended_at=at, swept_at=None
        )
        return Move(again, None, report)
    if result.outcome in (Done.UNSUPPORTED, Done.FAILED):
        if standing.stage is not Stage.CLIMBING:  # it may come back by another hand; no pause is shortened
            return Move(standing, None, report)
        return Move(replace(standing, until=at), None, report)
    if action is Action.SIGKILL:
        standing = replace(standing, killed=True)
    if action is Action.RESTART:
        report = replace(report, outcome=Done.STARTED)
    return Move(standing, None, report)
