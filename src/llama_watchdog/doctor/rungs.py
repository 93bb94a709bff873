"""What can be done to one server, found out without doing it.

    rung     | is tried by
    ---------+----------------------------------------------------------------------------------------------
    cancel   | closing a connection between two sockets of ours
    sigterm, | signal 0, which asks for the right and sends nothing, through a pidfd; where that is denied and
    sigkill  | systemd runs it: a signal to the unit's control process, which an active unit has none of
    restart  | asking systemd to start the unit in a way that it always refuses once the right is checked;
             | of a command: whether it is there

What systemd answers was seen with 262. It asks polkit first, and for each verb; only then it says that
`--job-mode=triggering is only valid for stop` (known since 249), or that there is `No control process to kill`.
SIGURG, should there be one, is ignored by whoever has no handler for it. Nothing of either is in the journal.
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
from llama_watchdog.core.observation import Outcome
from llama_watchdog.doctor import remedies
from llama_watchdog.doctor.finding import Finding, missing, ok, unknown
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
    """`tried`: as `machine.try_cancel` said; None: not tried."""
    if hands_of(server, dry_run=True).port is None:
        rest = [rung for rung in server.escalation.ladder if rung != "cancel"]
        remedy = remedies.ladder(server.name, rest)
        return missing("cancel", server.name, "connections to this url can't be closed from here", remedy)
    if tried is None:
        return unknown("cancel", server.name, DRY_RUN)
    if tried.outcome is Done.DONE:
        return ok("cancel", server.name, "clients' connections can be closed: tried on one of our own")
    if "CAP_NET_ADMIN" in tried.text:
        why = "closing clients' connections needs CAP_NET_ADMIN"
        return missing("cancel", server.name, why, remedies.capability("net_admin"))
    if tried.outcome is Done.UNSUPPORTED:
        why, _, remedy = tried.text.partition(": ")
        return missing("cancel", server.name, why, remedy)
    return unknown("cancel", server.name, tried.text)


async def signalling(
    server: ServerSettings,
    identity: Identity | None,
    supervisor: Supervisor | None,
    state: Supervised | None,
) -> list[Finding]:
    """The rungs of its ladder that signal; `identity`: of its process, None where it runs and can't be told."""
    rungs = dict.fromkeys(rung for rung in server.escalation.ladder if rung != "cancel")
    found = []
    for rung in rungs:
        targets = [identity] if identity is not None else []
        if identity is not None and rung == "sigkill":
            targets += signals.descendants(identity)
        denied = _first_denied(targets)
        if identity is not None and denied is None:
            found.append(ok(rung, server.name, f"pid {identity.pid} can be signalled"))
        elif supervisor is None or state is None:
            found.append(_nobody(rung, server, identity, denied or ""))
        else:
            found.append(await _by_supervisor(rung, server.name, supervisor, state, denied or ""))
    return found


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
                signal.pidfd_send_signal(pidfd, 0)  # type: ignore[arg-type]  # 0 is no signal, and is allowed
        except ProcessLookupError:
            continue
        except OSError:
            return f"no right to signal pid {target.pid}"
        finally:
            os.close(pidfd)
    return None


def _nobody(rung: str, server: ServerSettings, identity: Identity | None, denied: str) -> Finding:
    if identity is None:
        return missing(rung, server.name, "its process is not known", _name_it(server))
    remedy = f"{remedies.capability('kill')}; or let its unit signal it, {_name_it(server)}"
    return missing(rung, server.name, denied, remedy)


def _name_it(server: ServerSettings) -> str:
    return remedies.key(server.name, 'unit = "UNIT.service" (or container = "NAME")')


async def _by_supervisor(
    rung: str, server: str, supervisor: Supervisor, state: Supervised, denied: str
) -> Finding:
    if state.unit.outcome is not Outcome.OK:
        return missing(rung, server, "; ".join(filter(None, (denied, state.why))), "")
    if not is_running(state):
        return unknown(rung, server, DOWN)
    if not isinstance(supervisor, SystemdUnit):
        return ok(rung, server, f"{supervisor.name} can be asked to signal it")
    if _needs_no_trial(state):
        return ok(rung, server, f"systemd signals {supervisor.name}")
    options = ("--kill-who=control", "--signal=SIGURG")
    result = await systemctl.verb("kill", supervisor.name, *options, timeout=_VERB_SECONDS)
    return _asked(rung, server, supervisor, result, "signals", denied)


def _needs_no_trial(state: Supervised) -> bool:
    """Root may everything, and a user with his own manager, too."""
    return os.geteuid() == 0 or bool(_OF_USER.search(state.control_group or ""))


def _asked(
    check: str, server: str, supervisor: Supervisor, result: Result, does: str, denied: str = ""
) -> Finding:
    if result.outcome is Done.DONE or _REFUSED_ANYWAY.search(result.text):
        return ok(check, server, f"systemd {does} {supervisor.name} for {remedies.user()}")
    if "polkit" in result.text:
        why = f"{remedies.user()} has no right to it by polkit"
        text = f"{denied}, and {why}" if denied else why
        return missing(check, server, text, remedies.polkit(supervisor.name))
    return unknown(check, server, result.text)


async def restart(
    server: ServerSettings, supervisor: Supervisor | None, state: Supervised | None, *, dry_run: bool
) -> Finding:
    """What starts it again."""
    name, via = server.name, server.restart.via
    if via == "command" or (via == "auto" and supervisor is None and server.restart.command):
        return _command(server)
    if via == "none" or supervisor is None or state is None:
        remedy = remedies.key(name, 'unit = "UNIT.service" (or container = "NAME", or restart.command = [...])')
        if via != "auto":
            remedy += ', restart.via = "auto"'
        text = "left to whoever started it" + (', by restart.via = "none"' if via == "none" else "")
        return missing("restart", name, text, remedy, matters=via != "none")
    if state.unit.outcome is not Outcome.OK:
        return missing("restart", name, state.why, "")
    if state.unit.load == "masked":
        return missing("restart", name, f"{supervisor.name} is masked", f"systemctl unmask {supervisor.name}")
    if state.unit.load != "loaded":
        return missing("restart", name, f"{supervisor.name} is {state.unit.load}", _name_it(server))
    if not isinstance(supervisor, SystemdUnit):
        return ok("restart", name, f"{supervisor.name} can be asked to start again")
    if _needs_no_trial(state):
        return ok("restart", name, f"systemd starts {supervisor.name}")
    if dry_run:
        return unknown("restart", name, DRY_RUN)
    if not is_running(state):
        return unknown("restart", name, DOWN)
    options = ("--no-block", "--job-mode=triggering")
    result = await systemctl.verb("start", supervisor.name, *options, timeout=_VERB_SECONDS)
    return _asked("restart", name, supervisor, result, "starts")


def _command(server: ServerSettings) -> Finding:
    program = server.restart.command[0]
    if shutil.which(program) is None:
        remedy = f"chmod +x {program}, or in config.toml, [servers.{server.name}.restart]: its full path"
        return missing("restart", server.name, f"{program} is not there, or can't be run", remedy)
    return ok("restart", server.name, f"by {program}: it is there, and was not tried")
