"""What is said of each rung, and that finding it out does nothing to anybody."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from llama_watchdog import signals
from llama_watchdog.core.action import Done, Identity, Result
from llama_watchdog.core.observation import Health, Observation, Outcome, Process, Unit
from llama_watchdog.doctor import remedies, rungs
from llama_watchdog.doctor.finding import Finding, Works
from llama_watchdog.doctor.look import Look
from llama_watchdog.settings import ServerSettings
from llama_watchdog.supervisors import systemctl
from llama_watchdog.supervisors.base import Supervised, Supervisor
from llama_watchdog.supervisors.systemd import SystemdUnit
from tests.support.supervisor import FakeSupervisor

UNIT = "llama-server.service"
ACTIVE = Supervised(Unit(Outcome.OK, "loaded", "active", "running"), control_group=f"/system.slice/{UNIT}")
STOPPED = Supervised(Unit(Outcome.OK, "loaded", "inactive", "dead"))
DENIED = f"systemctl start {UNIT}: Access denied (needs root or a polkit rule for this unit and verb)"
SERVER = ServerSettings(name="chat", unit=UNIT)


class Systemd:
    """Answers as the real one, and notes what was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: Result) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.answer = answer
        monkeypatch.setattr(systemctl, "verb", self._verb)

    async def _verb(self, verb: str, unit: str, *options: str, timeout: float) -> Result:  # noqa: ASYNC109 - as the real one
        assert timeout <= 3.0
        self.asked.append((verb, *options, unit))
        return self.answer


@pytest.fixture
def child() -> Iterator[Identity]:
    """A process that any signal would end."""
    process = subprocess.Popen(["sleep", "60"])
    identity = signals.identify(process.pid)
    assert identity is not None
    yield identity
    assert process.poll() is None, "it was signalled"
    process.kill()
    process.wait()


@pytest.fixture
def _nobody_special(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not root, and with no right to signal."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    def refuse(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(signal, "pidfd_send_signal", refuse)


def seen(identity: Identity | None, *, health: Outcome = Outcome.OK, why: str = "") -> Look:
    process = Process(Outcome.UNSUPPORTED)
    if identity is not None:
        process = Process(Outcome.OK, identity.pid, identity.start_ticks)
    observation = Observation(at=0.0, suspended=0.0, health=Health(health), process=process)
    return Look(observation, why)


def signalling(
    look: Look | None,
    supervisor: Supervisor | None = None,
    state: Supervised | None = None,
    *,
    dry_run: bool = False,
) -> list[Finding]:
    return asyncio.run(rungs.signalling(SERVER, look, supervisor, state, dry_run=dry_run))


def restart(
    server: ServerSettings,
    supervisor: Supervisor | None = None,
    state: Supervised | None = None,
    *,
    dry_run: bool = False,
) -> Finding:
    return asyncio.run(rungs.restart(server, None, supervisor, state, dry_run=dry_run))


# Signals


def test_what_may_be_signalled_is_not(child: Identity) -> None:
    """Of the ladder's rungs each once; `child` sees to it that it lives on."""
    found = signalling(seen(child))
    assert [(finding.check, finding.outcome) for finding in found] == [
        ("sigterm", Works.OK),
        ("sigkill", Works.OK),
    ]


@pytest.mark.usefixtures("_nobody_special")
def test_without_the_right_and_without_a_unit(child: Identity) -> None:
    for finding in signalling(replace(seen(child), unit="chat.service")):
        assert finding.outcome is Works.MISSING
        assert finding.text == f"no right to signal pid {child.pid}"
        assert 'config.toml, [servers.chat]: unit = "chat.service"' in finding.remedy


@pytest.mark.usefixtures("_nobody_special")
@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Result(Done.FAILED, f"systemctl kill {UNIT}: No control process to kill"), Works.OK),
        (Result(Done.UNSUPPORTED, DENIED), Works.MISSING),
        (Result(Done.FAILED, "no answer from systemd within 3 s"), Works.UNKNOWN),
    ],
)
def test_systemd_is_asked_in_their_place(
    child: Identity, monkeypatch: pytest.MonkeyPatch, answer: Result, outcome: Works
) -> None:
    """With a signal that would reach nobody who minds it."""
    systemd = Systemd(monkeypatch, answer)
    found = signalling(seen(child), SystemdUnit(UNIT), ACTIVE)
    assert {finding.outcome for finding in found} == {outcome}
    assert set(systemd.asked) == {("kill", "--kill-who=control", "--signal=SIGURG", UNIT)}
    remedy = remedies.polkit(UNIT) if outcome is Works.MISSING else ""
    assert {finding.remedy for finding in found} == {remedy}


@pytest.mark.usefixtures("_nobody_special")
@pytest.mark.parametrize("dry_run", [True, False])
def test_nothing_is_tried_in_a_dry_run_or_of_a_server_that_is_down(
    monkeypatch: pytest.MonkeyPatch, child: Identity, dry_run: bool
) -> None:
    systemd = Systemd(monkeypatch, Result(Done.DONE, "done"))
    look = seen(child) if dry_run else seen(None, health=Outcome.REFUSED)
    unit, state = SystemdUnit(UNIT), ACTIVE if dry_run else STOPPED
    found = [*signalling(look, unit, state, dry_run=dry_run), restart(SERVER, unit, state, dry_run=dry_run)]
    assert {finding.outcome for finding in found} == {Works.UNKNOWN}
    assert all(("dry run" if dry_run else "the server is down") in finding.text for finding in found)
    assert systemd.asked == []


@pytest.mark.parametrize(
    ("why", "remedy"),
    [
        ("example.org is not this machine", "run llama-watchdog on the machine of the server"),
        ("2 llama-server processes could be it: 1, 2", 'config.toml, [servers.chat]: unit = "UNIT.service"'),
    ],
)
def test_a_process_that_cannot_be_told_is_not_signalled(why: str, remedy: str) -> None:
    for finding in signalling(seen(None, why=why)):
        assert finding.outcome is Works.MISSING
        assert why in finding.text
        assert finding.remedy.startswith(remedy)


@pytest.mark.usefixtures("_nobody_special")
def test_of_a_unit_that_is_stopped_nothing_is_asked(child: Identity, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that it has left is still there, and denied to us."""
    systemd = Systemd(monkeypatch, Result(Done.DONE, "done"))
    found = signalling(seen(child), SystemdUnit(UNIT), STOPPED)
    assert {finding.outcome for finding in found} == {Works.UNKNOWN}
    assert systemd.asked == []


@pytest.mark.usefixtures("_nobody_special")
def test_the_rule_is_for_the_units_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """polkit is told that one, whatever the unit was asked for by."""
    Systemd(monkeypatch, Result(Done.UNSUPPORTED, DENIED))
    state = systemctl.UnitState(ACTIVE.unit, name="llama@chat.service")
    assert restart(SERVER, SystemdUnit("alias.service"), state).remedy == remedies.polkit(
        "llama@chat.service"
    )


@pytest.mark.usefixtures("_nobody_special")
def test_another_supervisor_does_it(child: Identity) -> None:
    engine = FakeSupervisor(name="container chat")
    found = signalling(seen(child), engine, ACTIVE)
    assert {finding.text for finding in found} == {"container chat can be asked to signal it"}
    assert engine.asked == []


def test_a_pid_that_is_another_process_by_then_is_not_asked_about(
    child: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("another process's rights are nobody's business")

    monkeypatch.setattr(signal, "pidfd_send_signal", refuse)
    signalling(seen(Identity(child.pid, child.start_ticks + 1)))


# Restart


@pytest.mark.usefixtures("_nobody_special")
@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Result(Done.FAILED, "--job-mode=triggering is only valid for stop."), Works.OK),
        (Result(Done.UNSUPPORTED, DENIED), Works.MISSING),
        (Result(Done.FAILED, "Job mode triggering invalid"), Works.UNKNOWN),
    ],
)
def test_systemd_is_asked_for_a_start_that_it_refuses(
    monkeypatch: pytest.MonkeyPatch, answer: Result, outcome: Works
) -> None:
    systemd = Systemd(monkeypatch, answer)
    finding = restart(SERVER, SystemdUnit(UNIT), ACTIVE)
    assert finding.outcome is outcome
    assert systemd.asked == [("start", "--no-block", "--job-mode=triggering", UNIT)]
    assert (finding.remedy == remedies.polkit(UNIT)) == (outcome is Works.MISSING)


@pytest.mark.parametrize("who", ["root", "the user of its manager"])
def test_whose_right_is_certain_tries_nothing(monkeypatch: pytest.MonkeyPatch, who: str) -> None:
    systemd = Systemd(monkeypatch, Result(Done.DONE, "done"))
    monkeypatch.setattr(os, "geteuid", lambda: 0 if who == "root" else 1000)
    state = ACTIVE
    if who != "root":
        state = replace(
            ACTIVE, control_group=f"/user.slice/user-1000.slice/user@1000.service/app.slice/{UNIT}"
        )
    assert restart(SERVER, SystemdUnit(UNIT), state).outcome is Works.OK
    assert systemd.asked == []


@pytest.mark.parametrize(
    ("unit", "text", "remedy"),
    [
        (Unit(Outcome.OK, "masked", "inactive", "dead"), "is masked", f"systemctl unmask {UNIT}"),
        (
            Unit(Outcome.OK, "not-found", "inactive", "dead"),
            "is not-found",
            "config.toml, [servers.chat]: unit",
        ),
    ],
)
def test_a_unit_that_cannot_be_started(unit: Unit, text: str, remedy: str) -> None:
    finding = restart(SERVER, SystemdUnit(UNIT), Supervised(unit))
    assert finding.outcome is Works.MISSING
    assert finding.text == f"{UNIT} {text}"
    assert finding.remedy.startswith(remedy)


@pytest.mark.parametrize("via", ["auto", "none"])
def test_left_to_whoever_started_it(via: str) -> None:
    """Where that was chosen it is no failure."""
    server = ServerSettings.model_validate({"name": "chat", "restart": {"via": via}})
    finding = restart(server)
    assert finding.outcome is Works.MISSING
    assert finding.matters == (via == "auto")
    assert finding.text.startswith("left to whoever started it")
    assert ('restart.via = "auto"' in finding.remedy) == (via == "none")


@pytest.mark.parametrize(("program", "outcome"), [("/bin/sh", Works.OK), ("/nowhere/sh", Works.MISSING)])
def test_a_command_is_looked_for_and_not_run(program: str, outcome: Works) -> None:
    command = [program, "-c", "kill 0 # sk-secret"]
    finding = restart(ServerSettings.model_validate({"name": "chat", "restart": {"command": command}}))
    assert finding.outcome is outcome
    assert program in finding.text
    assert "sk-secret" not in repr(finding)


# Cancel


@pytest.mark.parametrize(
    ("tried", "outcome", "remedy"),
    [
        (Result(Done.DONE, "closed 1 connection"), Works.OK, ""),
        (
            Result(Done.UNSUPPORTED, "closing connections needs CAP_NET_ADMIN: set …"),
            Works.MISSING,
            "AmbientCap",
        ),
        (
            Result(Done.UNSUPPORTED, "there is no ss here: install iproute2"),
            Works.MISSING,
            "install iproute2",
        ),
        (
            Result(Done.UNSUPPORTED, "this kernel closes none: it needs CONFIG_X"),
            Works.MISSING,
            "it needs CONFIG_X",
        ),
        (Result(Done.FAILED, "ss did not answer within 5 s"), Works.UNKNOWN, ""),
        (None, Works.UNKNOWN, ""),
    ],
)
def test_cancel(monkeypatch: pytest.MonkeyPatch, tried: Result | None, outcome: Works, remedy: str) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(remedies, "_capability_sets", dict)
    finding = rungs.cancel(SERVER, tried)
    assert finding.outcome is outcome
    assert remedy in finding.remedy


def test_a_users_manager_has_no_capability_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit of it that asks for one does not start at all."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    group = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/llama-watchdog.service"
    monkeypatch.setattr(remedies, "_own_cgroup", lambda: group)
    finding = rungs.cancel(SERVER, Result(Done.UNSUPPORTED, "closing connections needs CAP_NET_ADMIN"))
    assert finding.outcome is Works.MISSING
    assert finding.remedy.endswith('ladder = ["sigterm", "sigterm", "sigkill"]')
    assert "Ambient" not in remedies.capability("sys_ptrace")


@pytest.mark.parametrize("url", ["unix:///run/llama.sock", "http://example.org:8080"])
def test_clients_that_do_not_come_by_a_port_of_this_machine(url: str) -> None:
    finding = rungs.cancel(ServerSettings(name="chat", url=url), Result(Done.DONE, "closed 1 connection"))
    assert finding.outcome is Works.MISSING
    assert finding.remedy.endswith('ladder = ["sigterm", "sigterm", "sigkill"]')
