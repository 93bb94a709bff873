"""Which manager a unit belongs to: the system's, or the user's own. A fake `systemctl` plays both."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from llama_watchdog.core.action import Done
from llama_watchdog.supervisors import systemd
from llama_watchdog.supervisors.systemd import SystemdUnit

T = TypeVar("T")
UNIT = "chat.service"


class Managers:
    """Both of them. `asked`: what each was asked, the words behind the options left out."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for manager in ("system", "user"):
            self.knows(manager, unit=False)
        program = folder / "systemctl"
        program.write_text(
            "#!/bin/sh\nmanager=system\n"
            'while [ "${1#--}" != "$1" ]; do [ "$1" = --user ] && manager=user; shift; done\n'
            f'echo "$manager $1" >>{folder}/asked\n'
            f'[ -e {folder}/$manager ] || {{ echo "Failed to connect to bus" >&2; exit 1; }}\n'
            f"[ $1 = show ] && cat {folder}/$manager\n"
            "exit 0\n"
        )
        program.chmod(0o755)

    def knows(self, manager: str, *, unit: bool) -> None:
        """Whether this manager has such a unit, running below it."""
        state = ("loaded", "active", f"/{manager}.slice/{UNIT}") if unit else ("not-found", "inactive", "")
        text = "LoadState={}\nActiveState={}\nControlGroup={}\nMainPID=0\n".format(*state)
        (self._folder / manager).write_text(text)

    def is_away(self, manager: str) -> None:
        """As the user's manager is where nobody has logged in."""
        (self._folder / manager).unlink()

    @property
    def asked(self) -> list[str]:
        log = self._folder / "asked"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def managers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Managers:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    return Managers(tmp_path)


def done(call: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(call)


def test_a_unit_of_the_users_own_manager_is_asked_and_acted_on_there(managers: Managers) -> None:
    managers.knows("user", unit=True)
    unit = SystemdUnit(UNIT)
    assert done(unit.show()).control_group == f"/user.slice/{UNIT}"
    assert done(unit.restart()).outcome is Done.DONE
    assert done(unit.signal(signal.SIGKILL)).outcome is Done.DONE
    assert done(unit.environment({"LLAMA_ARG_PORT"})) == {}
    assert {line.split()[1] for line in managers.asked} == {"show", "restart", "kill"}
    assert {line.split()[0] for line in managers.asked} == {"user"}


def test_a_unit_that_both_know_is_the_users(managers: Managers) -> None:
    managers.knows("user", unit=True)
    managers.knows("system", unit=True)
    assert done(SystemdUnit(UNIT).show()).control_group == f"/user.slice/{UNIT}"


def test_a_unit_that_only_the_system_knows_is_asked_and_acted_on_there(managers: Managers) -> None:
    managers.knows("system", unit=True)
    unit = SystemdUnit(UNIT)
    assert done(unit.show()).control_group == f"/system.slice/{UNIT}"
    done(unit.restart())
    assert "system restart" in managers.asked
    assert "user restart" not in managers.asked


@pytest.mark.parametrize("away", [False, True])
def test_until_the_users_manager_knows_it_the_unit_is_looked_for_there_again(
    managers: Managers, *, away: bool
) -> None:
    """It may yet be written, and the manager may yet be started: the watchdog can come first."""
    if away:
        managers.is_away("user")
    unit = SystemdUnit(UNIT)
    assert done(unit.show()).unit.load == "not-found"
    assert managers.asked == ["user show", "system show"]
    managers.knows("user", unit=True)
    assert done(unit.show()).control_group == f"/user.slice/{UNIT}"
    done(unit.show())
    assert managers.asked[2:] == ["user show", "user show", "user show"]  # known by then: asked once


def test_a_system_users_units_are_the_systems(managers: Managers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service has no session, and so no manager of its own that could be asked."""
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    managers.knows("system", unit=True)
    assert done(SystemdUnit(UNIT).show()).control_group == f"/system.slice/{UNIT}"
    assert managers.asked == ["system show"]


def test_roots_units_are_the_systems(managers: Managers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(systemd, "_in_user_manager", lambda: False)
    managers.knows("user", unit=True)
    managers.knows("system", unit=True)
    unit = SystemdUnit(UNIT)
    assert done(unit.show()).control_group == f"/system.slice/{UNIT}"
    done(unit.restart())
    assert {line.split()[0] for line in managers.asked} == {"system"}


def test_root_that_lives_in_a_users_manager_asks_that(
    managers: Managers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(systemd, "_in_user_manager", lambda: True)
    managers.knows("user", unit=True)
    assert done(SystemdUnit(UNIT).show()).control_group == f"/user.slice/{UNIT}"
