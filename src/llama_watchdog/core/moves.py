"""What the stages of the escalation share: what a look shows of the incarnation at hand, and how an incident
begins and ends.
"""

from __future__ import annotations

from dataclasses import replace

from llama_watchdog.core.action import Action, Done
from llama_watchdog.core.standing import Move, Report, Sight, Stage, Standing
from llama_watchdog.core.verdict import SERVING, Reason, State

# The look just before acting comes this much later: long enough for a step of CPU times to mean something.
CONFIRM_AFTER = 1.0


def ended(standing: Standing, sight: Sight) -> bool:
    """Whether the process that the incident is about has ended."""
    if sight.verdict.reason is Reason.GONE:
        return True
    return standing.target is not None and sight.target is not None and sight.target != standing.target


def is_another(standing: Standing, sight: Sight) -> bool:
    """Whether another incarnation is there already."""
    return (
        sight.target is not None
        and sight.target != standing.target
        and sight.verdict.reason is not Reason.GONE
    )


def serves(standing: Standing, sight: Sight) -> bool:
    """Whether it serves, so that nothing more need be done.

    A watch that has just begun calls a server busy until its budget is over. For an incident that was taken
    over that is no proof: its main loop must have been seen to work, or another incarnation be there.
    """
    if sight.verdict.state not in SERVING:
        return False
    if not standing.resumed or sight.verdict.state is State.SLEEPING:
        return True
    return sight.proven or is_another(standing, sight)


def begun(standing: Standing, sight: Sight) -> Move:
    """A fault is seen: an incident begins, which the next look has to confirm."""
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
            ended_at=None,
            resumed=False,
        )
    )


def healed(standing: Standing) -> Move:
    """It serves: the incident is over. What is not forgiven yet stays."""
    calm = standing.calm()
    if standing.last is None:
        return Move(calm)
    if standing.last is not Action.RESTART and standing.signalled:  # it may yet end of our signal
        calm = replace(calm, target=standing.target, signalled=True)
    return Move(calm, None, Report(standing.last, Done.HEALED, "serving again", standing.incident))
