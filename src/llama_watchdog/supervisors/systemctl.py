"""The one adapter for systemd: the program `systemctl`, its questions and its verbs.

What belongs here is how systemctl is called and what it answers; what to do with a unit is decided elsewhere.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from llama_watchdog import subprocesses
from llama_watchdog.core.action import Done, Result
from llama_watchdog.core.observation import Outcome, Unit
from llama_watchdog.supervisors.base import Supervised

_TIMES = ("InactiveExit", "ActiveEnter", "ActiveExit", "ExecMainExit")
_PROPERTIES = ",".join(
    (
        "Id,LoadState,ActiveState,SubState,Result,Job,MainPID,ControlGroup,ExecMainCode,ExecMainStatus,Restart",
        *(f"{time}TimestampMonotonic" for time in _TIMES),
    )
)
_KILLED, _DUMPED = "2", "3"  # si_code of SIGCHLD: ended by a signal
_NOT_HERE = re.compile(r"not been booted with systemd|Failed to connect to .*bus|DBUS_SESSION_BUS_ADDRESS")
_NO_RIGHT = re.compile(r"Access denied|[Aa]uthentication required|Permission denied|not permitted")
_PATTERN = frozenset("*?[")
_FILE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class UnitState(Supervised):
    """`systemctl show UNIT`. `name` is the unit's own, also where it was asked for by an alias."""

    name: str = ""
    restart: str = ""  # Restart= of the unit: no, on-failure, always …

    @property
    def restart_pending(self) -> bool:
        """Whether systemd is about to start it by itself: waiting out RestartSec=, or with a job for it."""
        return self.unit.sub.startswith("auto-restart") or self.unit.job in ("start", "restart")


async def show(unit: str, *, user: bool = False, timeout: float = 5.0) -> UnitState:  # noqa: ASYNC109 - an outcome
    """The state of one unit, a missing one included (`load` not-found).

    Of a main process that was ended by a signal, `exit_status` is 128 and the signal, as in a shell.
    """
    text = await _ask(["show", "--property", _PROPERTIES, "--", unit], unit, user, timeout)
    if isinstance(text, UnitState):
        return text
    values = _values(text)
    job = ""
    if values.get("Job", "0") not in ("", "0"):
        jobs = await _ask(["list-jobs", "--no-legend", "--plain", "--full"], unit, user, timeout)
        if isinstance(jobs, UnitState):
            return jobs
        job = _job_type(jobs, values["Job"])
    return UnitState(
        Unit(
            Outcome.OK,
            load=values.get("LoadState", ""),
            active=values.get("ActiveState", ""),
            sub=values.get("SubState", ""),
            result=values.get("Result", ""),
            job=job,
            exit_status=_exit_status(values.get("ExecMainCode", "0"), values.get("ExecMainStatus", "")),
            stop_ordered=_stop_ordered(values),
        ),
        name=values.get("Id", ""),
        main_pid=int(values.get("MainPID", "0")) or None,
        control_group=values.get("ControlGroup") or None,
        restart=values.get("Restart", ""),
    )


async def environment(
    unit: str,
    names: Collection[str],
    *,
    user: bool = False,
    timeout: float = 5.0,  # noqa: ASYNC109 - an outcome
) -> dict[str, str] | None:
    """Those of `names` that the unit sets by Environment= or EnvironmentFile=; None: can't be told.

    For a process whose own environment we may not read. Of files that we may not read either, as one with a
    key in it, nothing can be told.
    """
    text = await _ask(["show", "--property", "Environment,EnvironmentFiles", "--", unit], unit, user, timeout)
    if isinstance(text, UnitState):
        return None
    found: dict[str, str] = {}
    lines = [line.partition("=") for line in text.splitlines()]
    for key, _, value in lines:
        if key == "Environment":
            found.update(_assignments(value, names))
    for key, _, value in lines:
        if key == "EnvironmentFiles":  # these override Environment=
            said = _from_file(Path(value.rpartition(" (ignore_errors=")[0]), names)
            if said is None:
                return None
            found.update(said)
    return found


async def verb(
    verb: str,
    unit: str,
    *options: str,
    user: bool = False,
    timeout: float = 10.0,  # noqa: ASYNC109 - an outcome
) -> Result:
    """`systemctl VERB OPTIONS -- UNIT`, such as `start … --no-block --job-mode=fail`.

    DONE: systemd has taken it; with a verb that waits, it is done. UNSUPPORTED: no systemd here, or no right.
    """
    asked = f"systemctl {verb} {unit}"
    try:
        finished = await _run([verb, *options, "--", unit], unit, user, timeout)
    except OSError as error:
        return Result(Done.UNSUPPORTED, f"{asked}: {error}")
    if finished.code == 0:
        return Result(Done.DONE, asked)
    if finished.code is None:
        return Result(Done.FAILED, f"{asked}: no answer from systemd within {timeout:g} s")
    said = _said(finished)
    if _NO_RIGHT.search(said):
        return Result(
            Done.UNSUPPORTED, f"{asked}: {said} (needs root or a polkit rule for this unit and verb)"
        )
    return Result(Done.UNSUPPORTED if _NOT_HERE.search(said) else Done.FAILED, f"{asked}: {said}")


def _stop_ordered(values: dict[str, str]) -> bool:
    """Whether the unit was asked to stop while its main process lived, by whoever.

    Of a unit whose process ends by itself, or of a signal, ActiveExit comes 150 to 500 µs after ExecMainExit
    (measured with systemd 252); of one that is stopped it comes before. RuntimeMaxSec= looks like a stop. The
    times of a unit that nothing refers to are gone with it: then nobody knows.
    """
    began, active, left, ended = (int(values.get(f"{time}TimestampMonotonic") or 0) for time in _TIMES)
    return 0 < left < ended and began <= active <= left and values.get("Result") != "watchdog"


async def _ask(arguments: list[str], unit: str, user: bool, within: float) -> str | UnitState:
    """The output, or the state that says why there is none."""
    try:
        finished = await _run(arguments, unit, user, within)
    except OSError as error:
        return UnitState(Unit(Outcome.UNSUPPORTED), why=str(error))
    if finished.code == 0:
        return finished.out
    if finished.code is None:
        return UnitState(Unit(Outcome.TIMEOUT), why=f"systemd did not answer within {within:g} s")
    said = _said(finished)
    return UnitState(Unit(Outcome.UNSUPPORTED if _NOT_HERE.search(said) else Outcome.ERROR), why=said)


async def _run(arguments: list[str], unit: str, user: bool, within: float) -> subprocesses.Finished:
    """Raises OSError, with words for people, where systemctl can't be run."""
    if _PATTERN & set(unit):
        raise OSError(f"{unit} is a pattern, and not one unit")
    program = shutil.which("systemctl")
    if program is None:
        raise OSError("there is no systemctl here")
    manager = ["--user"] if user else []
    # By env, since error texts come in the language of the locale.
    return await subprocesses.run(
        ["env", "LC_ALL=C", program, "--no-ask-password", "--no-pager", *manager, *arguments], timeout=within
    )


def _said(finished: subprocesses.Finished) -> str:
    lines = (finished.err.strip() or finished.out.strip()).splitlines()
    return lines[0].strip()[:200] if lines else f"exit status {finished.code}"


def _values(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def _job_type(listing: str, job: str) -> str:
    """Of lines such as "123 llama-server.service stop running"; "" where the job has ended meanwhile."""
    for line in listing.splitlines():
        columns = line.split()
        if len(columns) >= 3 and columns[0] == job:
            return columns[2]
    return ""


def _exit_status(code: str, status: str) -> int | None:
    if code in ("", "0") or not status.isdigit():
        return None
    return int(status) + (128 if code in (_KILLED, _DUMPED) else 0)


def _from_file(path: Path, names: Collection[str]) -> dict[str, str] | None:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            text = file.read(_FILE_BYTES)
    except PermissionError:
        return None
    except OSError:
        return {}
    found: dict[str, str] = {}
    for line in text.splitlines():
        if line.partition("=")[0].strip() in names:
            name, _, value = line.strip().partition("=")
            found.update(_assignments(f"{name.strip()}={value.strip()}", names))
    return found


def _assignments(text: str, names: Collection[str]) -> dict[str, str]:
    """NAME=value words, quoted as a shell would."""
    try:
        words = shlex.split(text)
    except ValueError:  # quoted in a way that only systemd understands
        return {}
    return {name: value for name, _, value in (word.partition("=") for word in words) if name in names}
