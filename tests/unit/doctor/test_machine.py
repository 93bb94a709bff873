"""What concerns no server in particular: programs, the state directory, closing a connection for a trial."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path

import pytest

from llama_watchdog.core.action import Done, Result
from llama_watchdog.doctor import machine, remedies
from llama_watchdog.doctor.finding import Finding, Works
from llama_watchdog.settings import ServerSettings


def state(directory: Path) -> Finding:
    return asyncio.run(machine.state(directory))


@pytest.fixture
def _unprivileged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Permissions as the mode says them: root may write anything."""

    def access(path: Path, mode: int) -> bool:
        return (path.stat().st_mode >> 6) & mode == mode

    monkeypatch.setattr(os, "access", access)


def test_a_directory_that_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_text("")
    assert state(tmp_path).outcome is Works.OK
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.db"]


def test_one_that_is_not_there_yet(tmp_path: Path) -> None:
    finding = state(tmp_path / "a" / "b")
    assert finding.outcome is Works.OK
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("_unprivileged")
@pytest.mark.parametrize("what", ["directory", "state.db", "wishes.db", "parent"])
def test_what_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """It says who it is, whose it is, and what that costs."""
    monkeypatch.delenv("INVOCATION_ID", raising=False)
    directory = tmp_path / "state"
    directory.mkdir()
    locked = directory if what in ("directory", "parent") else directory / what
    if locked is not directory:
        locked.write_text("")
    locked.chmod(0o500 if locked.is_dir() else 0o400)
    asked = directory / "deeper" if what == "parent" else directory
    finding = state(asked)
    assert finding.outcome is Works.MISSING
    assert str(locked) in finding.text
    assert f"which is {remedies.user()}'s" in finding.text
    assert "the restarts it has spent" in finding.text
    assert finding.remedy.endswith(str(asked))
    directory.chmod(0o700)


@pytest.mark.usefixtures("_unprivileged")
def test_a_service_without_a_state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INVOCATION_ID", "0")
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    tmp_path.chmod(0o500)
    assert state(tmp_path).remedy.endswith(".service, [Service]: StateDirectory=llama-watchdog")
    tmp_path.chmod(0o700)


def test_a_disk_that_hangs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "_DISK_SECONDS", 0.01)
    monkeypatch.setattr(machine, "_state", lambda _: time.sleep(0.1))
    finding = state(tmp_path)
    assert finding.outcome is Works.UNKNOWN
    assert "has not answered" in finding.text


@pytest.mark.parametrize(
    ("server", "needed"),
    [
        ({}, {"ss"}),
        ({"unit": "llama-server.service"}, {"ss", "systemctl"}),
        ({"escalation": {"ladder": ["sigkill"]}}, set()),
    ],
)
def test_only_programs_that_are_needed_are_missed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: dict[str, object], needed: set[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = machine.tools([ServerSettings.model_validate(server)])
    assert {finding.check for finding in found} == needed
    assert {finding.outcome for finding in found} <= {Works.MISSING}
    assert all(finding.remedy == "apt install iproute2" for finding in found if finding.check == "ss")


def test_root_is_told_whose_rights_these_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (finding,) = machine.rights()
    assert finding.outcome is Works.OK
    assert finding.remedy.startswith("systemd-run ")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert machine.rights() == []


# The trial of `cancel`


def fake_ss(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """An `ss` of which `$*` are the arguments."""
    tool = folder / "ss"
    tool.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.skipif(shutil.which("ss") is None or os.geteuid() != 0, reason="needs ss, and root")
def test_a_connection_of_our_own_is_closed() -> None:
    assert asyncio.run(machine.try_cancel()) == Result(Done.DONE, "closed 1 connection")


def test_where_it_may_not_be_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real ss's words; only the trial's own port is ever named to it."""
    log = tmp_path / "log"
    script = f"""echo "$*" >>{log}
    port=${{6##*:}}; port=${{port%% *}}
    case $1 in
    *K*) echo "SOCK_DESTROY answers: Operation not permitted" >&2 ;;
    *) echo "0 0 127.0.0.1:$(echo "$*" | sed 's/.*sport = :\\([0-9]*\\).*/\\1/') 127.0.0.1:1" ;;
    esac"""
    fake_ss(tmp_path, monkeypatch, script)
    result = asyncio.run(machine.try_cancel())
    assert result.outcome is Done.UNSUPPORTED
    assert "CAP_NET_ADMIN" in result.text
    assert all("sport = :" in line for line in log.read_text().splitlines())


def test_where_no_connection_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_TRIAL_SECONDS", 0.01)
    result = asyncio.run(machine.try_cancel())
    assert result.outcome is Done.FAILED
    assert "no connection of our own" in result.text
