"""Starting again, and signalling, a server that is a systemd unit; never against an order of its admin.

| the unit is                                | what is done            |
| ------------------------------------------ | ----------------------- |
| masked, missing                            | nothing: UNSUPPORTED    |
| being stopped (a stop job is pending)      | nothing: FAILED         |
| being started, or waiting out RestartSec=  | nothing more: DONE      |
| active, its main process a newer one       | nothing more: DONE      |
| active                                     | restart                 |
| deactivating                               | start, once that is over|
| failed                                     | reset-failed, start     |
| inactive                                   | start                   |

Whether a unit that is not running was stopped on purpose is for the caller to judge, before.
"""

from __future__ import annotations

import signal

from llama_watchdog import systemctl
from llama_watchdog.actions import signals
from llama_watchdog.core.action import Done, Identity, Result
from llama_watchdog.core.observation import Outcome

# Not to wait for a load that takes minutes, and to be refused where an admin's job says the contrary.
_AS_ONE_OF_MANY = ("--no-block", "--job-mode=fail")


async def restart(unit: str, *, user: bool = False, ended: Identity | None = None) -> Result:
    """Have systemd run `unit` again. `ended`: the server that was ended, not to restart its successor.

    DONE says that systemd has taken the job or is at it anyway, not that the server is up: a start that hits
    the unit's start limit, too, is taken and comes to nothing.
    """
    state = await systemctl.show(unit, user=user)
    impossible = _not_there(unit, state) or _unwanted(unit, state)
    if impossible is not None:
        return impossible
    active = state.unit.active
    if state.restart_pending or active == "activating":
        return Result(Done.DONE, f"systemd is starting {unit} itself{_how_it_ended(state)}")
    if active == "failed":
        # Its Result= is no guide: a unit that hit its start limit after a crash still says exit-code. And
        # where only this is denied, the start may yet work.
        await systemctl.verb("reset-failed", unit, user=user)
    if active in ("failed", "inactive", "deactivating"):
        verb = "start"
    elif ended is not None and _is_newer(state, ended):
        return Result(Done.DONE, f"systemd has restarted {unit} itself")
    else:
        verb = "restart"
    result = await systemctl.verb(verb, unit, *_AS_ONE_OF_MANY, user=user)
    if result.outcome is not Done.DONE:
        return result
    return Result(Done.DONE, f"asked systemd to {verb} {unit}{_how_it_ended(state)}")


async def signal_unit(
    unit: str, sig: signal.Signals, *, user: bool = False, identity: Identity | None = None
) -> Result:
    """Have systemd signal the unit's main process; with SIGKILL every process in the unit.

    The way where we have no right to signal by ourselves. `identity`: the server that is meant; none that was
    started after it is signalled. DONE also where nobody is left to get the signal.
    """
    state = await systemctl.show(unit, user=user)
    missing = _not_there(unit, state)
    if missing is not None:
        return missing
    if identity is not None and _is_newer(state, identity):
        return Result(Done.FAILED, f"{unit} has been restarted meanwhile: not signalled")
    everything = sig is signal.SIGKILL
    if state.control_group is None:
        return Result(Done.DONE, f"nothing of {unit} is running any more")
    if state.main_pid is None and not everything:
        return Result(Done.DONE, f"the main process of {unit} is already gone")
    # --kill-who, as systemd before 252 calls it, is known to later ones as well.
    whom = "all" if everything else "main"
    result = await systemctl.verb("kill", unit, f"--kill-who={whom}", f"--signal={sig.name}", user=user)
    if result.outcome is not Done.DONE:
        return result
    return Result(
        Done.DONE, f"had systemd send {sig.name} to {'all' if everything else 'the main process'} of {unit}"
    )


def _not_there(unit: str, state: systemctl.UnitState) -> Result | None:
    if state.unit.outcome is not Outcome.OK:
        outcome = Done.UNSUPPORTED if state.unit.outcome is Outcome.UNSUPPORTED else Done.FAILED
        return Result(outcome, f"systemctl show {unit}: {state.why}")
    if state.unit.load not in ("loaded", "masked"):
        return Result(Done.UNSUPPORTED, f"{unit} is {state.unit.load}: systemd can't run it")
    return None


def _unwanted(unit: str, state: systemctl.UnitState) -> Result | None:
    if state.unit.load == "masked":
        return Result(Done.UNSUPPORTED, f"{unit} is masked: its admin wants it off (systemctl unmask {unit})")
    if state.unit.job == "stop":
        return Result(Done.FAILED, f"{unit} is being stopped by its admin")
    return None


def _is_newer(state: systemctl.UnitState, identity: Identity) -> bool:
    """Whether the unit's main process began after `identity` did; a wrapper around it began before."""
    if state.main_pid is None:
        return False
    main = signals.identify(state.main_pid)
    return main is not None and main.start_ticks > identity.start_ticks


def _how_it_ended(state: systemctl.UnitState) -> str:
    if state.unit.exit_status is None:
        return ""
    return f" (its last main process: {state.unit.result}, exit status {state.unit.exit_status})"
