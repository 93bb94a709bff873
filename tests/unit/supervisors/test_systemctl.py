"""What systemctl is asked, and what is made of its answers: with a stand-in for it on PATH."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from llama_watchdog.core.action import Done, Result
from llama_watchdog.core.observation import Outcome, Unit
from llama_watchdog.supervisors import systemctl
from llama_watchdog.supervisors.systemctl import UnitState

T = TypeVar("T")
UNIT = "llama-server.service"
RUNNING = """\
Restart=on-failure
ExecMainCode=0
ExecMainStatus=0
MainPID=4711
Result=success
ControlGroup=/system.slice/llama-server.service
Id=llama-server.service
LoadState=loaded
ActiveState=active
SubState=running
Job=
"""


class Systemctl:
    """A systemctl that prints a text by its verb, and remembers how it was called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = folder / "calls"
        program = folder / "systemctl"
        program.write_text(
            f'#!/bin/sh\necho "$LC_ALL $*" >>{self.calls}\n'
            'while [ "${1#--}" != "$1" ]; do shift; done\n'
            f'cat {folder}/err-"$1" >&2 2>/dev/null || true\n'
            f'cat {folder}/out-"$1" 2>/dev/null || true\n'
            f'exit "$(cat {folder}/code-"$1" 2>/dev/null || echo 0)"\n'
        )
        program.chmod(0o755)

    def answers(self, verb: str, out: str = "", err: str = "", code: int = 0) -> None:
        """From now on, to `verb`."""
        (self.folder / f"out-{verb}").write_text(out)
        (self.folder / f"err-{verb}").write_text(err)
        (self.folder / f"code-{verb}").write_text(str(code))

    def asked(self) -> list[str]:
        """The command lines so far, each behind the locale."""
        return self.calls.read_text().splitlines() if self.calls.exists() else []


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemctl:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return Systemctl(tmp_path)


def run(question: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(question)


def changed(**values: str) -> str:
    lines = dict(line.split("=", 1) for line in RUNNING.splitlines())
    return "".join(f"{key}={value}\n" for key, value in (lines | values).items())


def test_a_running_unit(fake: Systemctl) -> None:
    fake.answers("show", RUNNING)
    assert run(systemctl.show("llama-server")) == UnitState(
        Unit(Outcome.OK, load="loaded", active="active", sub="running", result="success"),
        name=UNIT,
        main_pid=4711,
        control_group="/system.slice/llama-server.service",
        restart="on-failure",
    )
    (asked,) = fake.asked()
    assert asked.startswith("C --no-ask-password --no-pager show --property ")
    assert asked.endswith(" -- llama-server")


def test_a_unit_that_does_not_run(fake: Systemctl) -> None:
    fake.answers(
        "show",
        changed(ActiveState="failed", SubState="failed", MainPID="0", ControlGroup="", Result="exit-code"),
    )
    state = run(systemctl.show(UNIT))
    assert (state.main_pid, state.control_group) == (None, None)
    assert (state.unit.active, state.unit.result) == ("failed", "exit-code")


@pytest.mark.parametrize(
    ("code", "status", "exit_status"),
    [("0", "0", None), ("1", "0", 0), ("1", "9", 9), ("2", "9", 137), ("3", "6", 134), ("", "", None)],
)
def test_how_its_main_process_ended(code: str, status: str, exit_status: int | None, fake: Systemctl) -> None:
    fake.answers("show", changed(ExecMainCode=code, ExecMainStatus=status))
    assert run(systemctl.show(UNIT)).unit.exit_status == exit_status


@pytest.mark.parametrize(
    ("jobs", "job"),
    [
        ("7 other.service stop waiting\n88 llama-server.service stop running\n", "stop"),
        ("88 llama-server.service restart waiting\n", "restart"),
        ("7 other.service stop waiting\n", ""),  # it has ended between the two questions
        ("", ""),
    ],
)
def test_the_type_of_a_pending_job(jobs: str, job: str, fake: Systemctl) -> None:
    fake.answers("show", changed(Job="88"))
    fake.answers("list-jobs", jobs)
    assert run(systemctl.show(UNIT)).unit.job == job


def test_jobs_are_listed_only_where_there_is_one(fake: Systemctl) -> None:
    for none in ("", "0"):
        fake.answers("show", changed(Job=none))
        run(systemctl.show(UNIT))
    assert not [call for call in fake.asked() if "list-jobs" in call]


@pytest.mark.parametrize(
    ("values", "pending"),
    [
        ({}, False),
        ({"ActiveState": "activating", "SubState": "auto-restart"}, True),
        ({"ActiveState": "activating", "SubState": "auto-restart-queued"}, True),
        ({"ActiveState": "inactive", "SubState": "dead", "Job": "88"}, True),
    ],
)
def test_whether_systemd_starts_it_by_itself(values: dict[str, str], pending: bool, fake: Systemctl) -> None:
    fake.answers("show", changed(**values))
    fake.answers("list-jobs", "88 llama-server.service start waiting\n")
    assert run(systemctl.show(UNIT)).restart_pending is pending


def test_the_users_own_manager(fake: Systemctl) -> None:
    fake.answers("show", RUNNING)
    run(systemctl.show(UNIT, user=True))
    run(systemctl.verb("start", UNIT, user=True))
    assert all("--user" in call.split() for call in fake.asked())


NOT_BOOTED = (
    "System has not been booted with systemd as init system (PID 1). Can't operate.\n"
    "Failed to connect to bus: Host is down\n"
)
NO_SESSION = (
    "Failed to connect to user scope bus via local transport: $DBUS_SESSION_BUS_ADDRESS not defined\n"
)
DESTRUCTIVE = (
    "Failed to start llama-server.service: Transaction for llama-server.service/start is destructive"
    " (llama-server.service has 'stop' job queued, but 'start' is included in transaction).\n"
)


@pytest.mark.parametrize(
    ("err", "outcome"),
    [
        (NOT_BOOTED, Outcome.UNSUPPORTED),
        (NO_SESSION, Outcome.UNSUPPORTED),
        ("Failed to connect to bus: No such file or directory\n", Outcome.UNSUPPORTED),
        ("Failed to get properties: Connection reset by peer\n", Outcome.ERROR),
        ("", Outcome.ERROR),
    ],
)
def test_why_nothing_can_be_said_of_a_unit(err: str, outcome: Outcome, fake: Systemctl) -> None:
    fake.answers("show", err=err, code=1)
    state = run(systemctl.show(UNIT))
    assert state.unit == Unit(outcome)
    assert state.why == (err.splitlines()[0] if err else "exit status 1")


def test_without_systemctl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    state = run(systemctl.show(UNIT))
    assert (state.unit, state.why) == (Unit(Outcome.UNSUPPORTED), "there is no systemctl here")
    result = run(systemctl.verb("start", UNIT))
    assert result == Result(Done.UNSUPPORTED, f"systemctl start {UNIT}: there is no systemctl here")
    assert run(systemctl.environment(UNIT, {"A"})) is None


def test_a_systemd_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "systemctl"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    state = run(systemctl.show(UNIT, timeout=0.05))
    assert (state.unit, state.why) == (Unit(Outcome.TIMEOUT), "systemd did not answer within 0.05 s")
    result = run(systemctl.verb("start", UNIT, timeout=0.05))
    assert result.outcome is Done.FAILED
    assert "no answer from systemd within 0.05 s" in result.text


@pytest.mark.parametrize("pattern", ["llama*", "llama-?.service", "llama-[ab].service"])
def test_a_pattern_is_not_one_unit(pattern: str, fake: Systemctl) -> None:
    """systemctl would start every unit that it fits."""
    fake.answers("start")
    assert run(systemctl.verb("start", pattern)).outcome is Done.UNSUPPORTED
    assert run(systemctl.show(pattern)).unit.outcome is Outcome.UNSUPPORTED
    assert fake.asked() == []


def test_a_verb(fake: Systemctl) -> None:
    fake.answers("start")
    result = run(systemctl.verb("start", UNIT, "--no-block", "--job-mode=fail"))
    assert result == Result(Done.DONE, f"systemctl start {UNIT}")
    assert fake.asked() == [f"C --no-ask-password --no-pager start --no-block --job-mode=fail -- {UNIT}"]


@pytest.mark.parametrize(
    ("err", "outcome"),
    [
        ("Failed to start llama-server.service: Access denied\nSee system logs\n", Done.UNSUPPORTED),
        ("Failed to start llama-server.service: Interactive authentication required.\n", Done.UNSUPPORTED),
        (NOT_BOOTED, Done.UNSUPPORTED),
        ("Failed to start llama-server.service: Unit llama-server.service is masked.\n", Done.FAILED),
        (DESTRUCTIVE, Done.FAILED),
    ],
)
def test_a_verb_that_was_refused(err: str, outcome: Done, fake: Systemctl) -> None:
    fake.answers("start", err=err, code=1)
    result = run(systemctl.verb("start", UNIT))
    assert result.outcome is outcome
    assert err.splitlines()[0][:190] in result.text
    assert "\n" not in result.text
    assert ("polkit" in result.text) == ("denied" in err or "authentication" in err)


def test_the_environment_of_a_unit(fake: Systemctl, tmp_path: Path) -> None:
    """Its files are stronger than its settings, and only what was asked for comes out."""
    file = tmp_path / "llama server.env"
    file.write_text(
        "LLAMA_ARG_BATCH=512\n"
        "# LLAMA_ARG_BATCH=1\n"
        '  LLAMA_ARG_MODEL="/models/a b.gguf"\n'
        "LLAMA_API_KEY=sesame\n"
        "LLAMA_ARG_RPC='unbalanced\n"
    )
    fake.answers(
        "show",
        f"EnvironmentFiles={file} (ignore_errors=no)\n"
        f"EnvironmentFiles={tmp_path}/missing (ignore_errors=yes)\n"
        'Environment=LLAMA_ARG_BATCH=64 "LLAMA_ARG_HF_REPO=org/a model" LLAMA_API_KEY=sesame EMPTY=\n',
    )
    names = {"LLAMA_ARG_BATCH", "LLAMA_ARG_MODEL", "LLAMA_ARG_HF_REPO", "LLAMA_ARG_RPC", "EMPTY"}
    assert run(systemctl.environment(UNIT, names)) == {
        "LLAMA_ARG_BATCH": "512",
        "LLAMA_ARG_HF_REPO": "org/a model",
        "LLAMA_ARG_MODEL": "/models/a b.gguf",
        "EMPTY": "",
    }


def test_of_a_file_that_may_not_be_read_nothing_can_be_told(
    fake: Systemctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no empty one: it may say anything."""
    file = tmp_path / "secret.env"
    file.write_text("LLAMA_ARG_RPC=10.0.0.5:50052\n")
    fake.answers("show", f"EnvironmentFiles={file} (ignore_errors=no)\nEnvironment=LLAMA_ARG_BATCH=64\n")
    opened = Path.open

    def denied(self: Path, *arguments: Any, **more: Any) -> Any:
        if self == file:
            raise PermissionError(13, "Permission denied")  # root may read anything
        return opened(self, *arguments, **more)

    monkeypatch.setattr(Path, "open", denied)
    assert run(systemctl.environment(UNIT, {"LLAMA_ARG_BATCH"})) is None


def test_a_flood_of_output_is_cut(fake: Systemctl) -> None:
    fake.answers("start", err="x" * 300_000, code=1)
    assert len(run(systemctl.verb("start", UNIT)).text) < 300
