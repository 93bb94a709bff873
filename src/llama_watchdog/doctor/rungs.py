"""What can be done to one server, found out without doing it.

    rung     | is tried by
    ---------+----------------------------------------------------------------------------------------------
    cancel   | closing a connection between two sockets of ours
    sigterm, | signal 0, which asks for the right and sends nothing, through a pidfd; where that is denied and
    sigkill  | systemd runs it: a signal to the unit's control process, which an active unit has none of
    restart  | asking systemd to start the unit in a way that it always refuses once the right is checked;
             | of a command: whether it is there

What systemd answers was seen with 262. It asks polkit first, and for each verb; only then it says that
`--job-mode=triggering is only valid for stop` (known since 249), or that there is `No control process to
kill`. SIGURG, should there be one, is ignored by whoever has no handler for it. The journal shows nothing.
Not tried: `restart`, which no mistake must ever make of this, and `reset-failed`, which makes systemd forget
how often it has restarted the unit. They are in the remedy.
"""

from __future__ import annotations

import os
import re
import shutil
import signal

from llama_watchdog import signals
from llama_watchdog.core.action import Done, Identity, Result
from llama_watchdog.core.observation import HANGS, Outcome
from llama_watchdog.doctor import remedies
from llama_watchdog.doctor.evidence import to_be_asked, where_it_is
from llama_watchdog.doctor.finding import Finding, missing, ok, unknown
from llama_watchdog.doctor.look import Look
from llama_watchdog.doctor.together import together
from llama_watchdog.parts import hands_of
from llama_watchdog.settings import ServerSettings
from llama_watchdog.supervisors import systemctl
from llama_watchdog.supervisors.base import Supervised, Supervisor, is_running
from llama_watchdog.supervisors.systemd import SystemdUnit

DRY_RUN = "not tried in a dry run"
DOWN = "not to be tried: the server is down"
_VERB_SECONDS = 3.0
_REFUSED_ANYWAY = re.compile(r"only valid for stop|No control process")
_OF_USER = re.compile(r"/user@\d+\.service/")


def cancel(server: ServerSettings, tried: Result | None) -> Finding:
    """`tried`: as `machine.try_cancel` said; None: not tried, in a dry run."""
    without = remedies.ladder(server.name, [rung for rung in server.escalation.ladder if rung != "cancel"])
    if hands_of(server, dry_run=True).port is None:
        return missing("cancel", server.name, "connections to this url can't be closed from here", without)
    if tried is None:
        return unknown("cancel", server.name, DRY_RUN)
    if tried.outcome is Done.DONE:
        return ok("cancel", server.name, "clients' connections can be closed: tried on one of our own")
    if "CAP_NET_ADMIN" in tried.text:
        why = "closing clients' connections needs CAP_NET_ADMIN"
        can_be_given = not remedies.of_users_manager()
        remedy = remedies.capability("net_admin") if can_be_given else without
        return missing("cancel", server.name, why, remedy)
    if tried.outcome is Done.UNSUPPORTED:
        why, _, remedy = tried.text.partition(": ")
        return missing("cancel", server.name, why, remedy)
    return unknown("cancel", server.name, tried.text)


async def signalling(
    server: ServerSettings,
    look: Look | None,
    supervisor: Supervisor | None,
    state: Supervised | None,
    *,
    dry_run: bool,
) -> list[Finding]:
    """The rungs of its ladder that signal; `look` None: it could not be looked at."""
    rungs = dict.fromkeys(rung for rung in server.escalation.ladder if rung != "cancel")
    if dry_run or look is None or look.down:
        why = DRY_RUN if dry_run else DOWN if look is not None else "its process could not be looked at"
        return [unknown(rung, server.name, why) for rung in rungs]
    # Side by side: where systemd hangs, each takes its whole time.
    async with together() as group:
        tasks = [group.create_task(_signal(rung, server, look, supervisor, state)) for rung in rungs]
    return [task.result() for task in tasks]


async def _signal(
    rung: str, server: ServerSettings, look: Look, supervisor: Supervisor | None, state: Supervised | None
) -> Finding:
    identity = look.identity
    targets = [identity] if identity is not None else []
    if identity is not None and rung == "sigkill":
        targets += signals.descendants(identity)
    denied = _first_denied(targets)
    if identity is not None and denied is None:
        return ok(rung, server.name, f"pid {identity.pid} can be signalled")
    if supervisor is None or state is None:
        return _nobody(rung, server, look, denied or "")
    return await _by_supervisor(rung, server, look, supervisor, state, denied or "")


def _first_denied(targets: list[Identity]) -> str | None:
    """Why one of these could not be signalled; None where each could, or has ended."""
    for target in targets:
        try:
            pidfd = os.pidfd_open(target.pid)
        except ProcessLookupError:
            continue
        except OSError as error:
            return f"no pidfd for pid {target.pid} (Linux 5.3 or newer): {error.strerror}"
        try:
            if signals.identify(target.pid) == target:
                signal.pidfd_send_signal(pidfd, 0)
        except ProcessLookupError:
            continue
        except OSError:
            return f"no right to signal pid {target.pid}"
        finally:
            os.close(pidfd)
    return None


def _nobody(rung: str, server: ServerSettings, look: Look, denied: str) -> Finding:
    if look.identity is None:
        text = f"its process can't be told ({look.why or 'not seen'})"
        return missing(rung, server.name, text, where_it_is(server, look))
    unit = look.unit or "UNIT.service"
    by_unit = remedies.key(server.name, f'unit = "{unit}"')
    return missing(
        rung, server.name, denied, f"{remedies.capability('kill')}; or {by_unit}, which then does it"
    )


async def _by_supervisor(
    rung: str, server: ServerSettings, look: Look, supervisor: Supervisor, state: Supervised, denied: str
) -> Finding:
    if (impossible := _not_there(rung, server, look, supervisor, state)) is not None:
        return impossible
    name = server.name
    if not is_running(state):
        return unknown(rung, name, DOWN)
    if not isinstance(supervisor, SystemdUnit):
        return ok(rung, name, f"{supervisor.name} can be asked to signal it")
    if _needs_no_trial(state):
        return ok(rung, name, f"systemd signals {supervisor.name}")
    options = ("--kill-who=control", "--signal=SIGURG")
    result = await systemctl.verb("kill", supervisor.name, *options, timeout=_VERB_SECONDS)
    return _asked(rung, name, _unit(supervisor, state), result, "signals", denied)


def _needs_no_trial(state: Supervised) -> bool:
    """Root may everything, and a user with his own manager, too."""
    return os.geteuid() == 0 or bool(_OF_USER.search(state.control_group or ""))


def _unit(unit: SystemdUnit, state: Supervised) -> str:
    """Its own name, which polkit is told, also where it is known by an alias."""
    return (state.name if isinstance(state, systemctl.UnitState) else "") or unit.name


def _asked(check: str, server: str, unit: str, result: Result, does: str, denied: str = "") -> Finding:
    if result.outcome is Done.DONE or _REFUSED_ANYWAY.search(result.text):
        return ok(check, server, f"systemd {does} {unit} for {remedies.user()}")
    if "needs root or a polkit rule" in result.text:
        why = f"{remedies.user()} has no right to it by polkit"
        text = f"{denied}, and {why}" if denied else why
        return missing(check, server, text, remedies.polkit(unit))
    return unknown(check, server, result.text)


async def restart(
    server: ServerSettings,
    look: Look | None,
    supervisor: Supervisor | None,
    state: Supervised | None,
    *,
    dry_run: bool,
) -> Finding:
    """What starts it again."""
    name, via = server.name, server.restart.via
    if via == "command" or (via == "auto" and supervisor is None and server.restart.command):
        return _command(server)
    if via == "none" or supervisor is None or state is None:
        return _left_to_others(server, look)
    if (impossible := _not_there("restart", server, look, supervisor, state)) is not None:
        return impossible
    if not isinstance(supervisor, SystemdUnit):
        return ok("restart", name, f"{supervisor.name} can be asked to start again")
    if _needs_no_trial(state):
        return ok("restart", name, f"systemd starts {supervisor.name}")
    if dry_run or not is_running(state):
        return unknown("restart", name, DRY_RUN if dry_run else DOWN)
    options = ("--no-block", "--job-mode=triggering")
    result = await systemctl.verb("start", supervisor.name, *options, timeout=_VERB_SECONDS)
    return _asked("restart", name, _unit(supervisor, state), result, "starts")


def _left_to_others(server: ServerSettings, look: Look | None) -> Finding:
    unit = (look.unit if look is not None else "") or "UNIT.service"
    lines = [f'unit = "{unit}" (or container = "NAME", or restart.command = [...])']
    chosen = server.restart.via == "none"
    if server.restart.via != "auto":
        lines.append('restart.via = "auto"')
    text = "left to whoever started it" + (', by restart.via = "none"' if chosen else "")
    return missing("restart", server.name, text, remedies.key(server.name, *lines), matters=not chosen)


def _not_there(
    rung: str, server: ServerSettings, look: Look | None, supervisor: Supervisor, state: Supervised
) -> Finding | None:
    if state.unit.outcome in HANGS:
        return unknown(rung, server.name, state.why)
    if state.unit.outcome is not Outcome.OK:
        return missing(rung, server.name, state.why, to_be_asked(supervisor))
    if state.unit.load == "masked" and rung == "restart":
        why = f"{supervisor.name} is masked"
        return missing(rung, server.name, why, f"systemctl unmask {supervisor.name}")
    if state.unit.load not in ("loaded", "masked"):
        why = f"{supervisor.name} is {state.unit.load}"
        return missing(rung, server.name, why, where_it_is(server, look))
    return None


def _command(server: ServerSettings) -> Finding:
    program = server.restart.command[0]
    if shutil.which(program) is None:
        remedy = f"chmod +x {program}, or in config.toml, [servers.{server.name}.restart]: its full path"
        return missing("restart", server.name, f"{program} is not there, or can't be run", remedy)
    return ok("restart", server.name, f"by {program}: it is there, and was not tried")
