"""The server's unit from within: what is known of it without rights, and the one request to systemd."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from llama_watchdog import signals
from llama_watchdog.core.action import Done, Identity
from llama_watchdog.core.observation import Outcome
from llama_watchdog.supervisors import trigger as room
from llama_watchdog.supervisors.trigger import Trigger

GROUP = "/system.slice/chat.service"


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No waiting but for the order in which things happen; and no systemctl."""
    sleep = asyncio.sleep

    async def at_once(_seconds: float) -> None:
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", at_once)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture
def main() -> Iterator[subprocess.Popen[bytes]]:
    """The unit's main process."""
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        yield process
        process.kill()


class Manager:
    """Takes triggers, from the `takes_from`th on, and kills the main process upon one if it `heeds` it."""

    def __init__(self, main: subprocess.Popen[bytes], *, takes_from: int = 1, heeds: bool = True) -> None:
        self.main = main
        self.takes_from = takes_from
        self.heeds = heeds
        self.asked = 0
        self.complaints: list[str] = []
        identity = signals.identify(main.pid)
        assert identity is not None
        self.trigger = Trigger(identity, GROUP, trigger=self.take, complain=self.complaints.append)

    def take(self) -> bool:
        self.asked += 1
        if self.asked < self.takes_from:
            return False
        if self.heeds:
            self.end()
        return True

    def end(self) -> None:
        self.main.kill()
        self.main.wait()

    def play(self, story: Callable[[Trigger], Awaitable[None]]) -> None:
        """A story, and what it has set going, to the end."""

        async def run() -> None:
            await story(self.trigger)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            await asyncio.gather(*others)

        asyncio.run(run())


def test_the_order_is_told_before_the_trigger_ends_us(main: subprocess.Popen[bytes]) -> None:
    manager = Manager(main)

    async def story(trigger: Trigger) -> None:
        result = await trigger.restart(trigger.main)
        assert result.outcome is Done.DONE
        assert result.text == "asking systemd to kill and restart chat.service (WATCHDOG=trigger)"
        assert manager.asked == 0

    manager.play(story)
    assert manager.asked == 1
    assert manager.complaints == []


def test_two_orders_are_one_trigger(main: subprocess.Popen[bytes]) -> None:
    manager = Manager(main)

    async def story(trigger: Trigger) -> None:
        await trigger.restart()
        await trigger.restart()

    manager.play(story)
    assert manager.asked == 1


def test_what_has_ended_is_left_to_systemd(main: subprocess.Popen[bytes]) -> None:
    manager = Manager(main)
    manager.end()

    async def story(trigger: Trigger) -> None:
        result = await trigger.restart(trigger.main)
        assert result.outcome is Done.DONE
        assert "left to systemd (Restart= of chat.service)" in result.text

    manager.play(story)
    assert manager.asked == 0


def test_a_server_that_ends_before_the_trigger_is_not_asked_for(main: subprocess.Popen[bytes]) -> None:
    """Its successor in the unit would be killed."""
    manager = Manager(main)

    async def story(trigger: Trigger) -> None:
        await trigger.restart()
        manager.end()

    manager.play(story)
    assert manager.asked == 0


@pytest.mark.parametrize(
    ("takes_from", "heeds", "asked", "complaint"),
    [
        (3, True, 3, ""),
        (99, True, room.TRIES, "systemd takes no WATCHDOG=trigger"),
        (1, False, 1, "it needs NotifyAccess=all and WatchdogSignal=SIGKILL"),
    ],
)
def test_a_trigger_that_comes_to_nothing_is_said(
    main: subprocess.Popen[bytes], takes_from: int, heeds: bool, asked: int, complaint: str
) -> None:
    manager = Manager(main, takes_from=takes_from, heeds=heeds)

    async def story(trigger: Trigger) -> None:
        await trigger.restart()

    manager.play(story)
    assert manager.asked == asked
    assert len(manager.complaints) == bool(complaint)
    assert complaint in "".join(manager.complaints)


def test_no_signal_is_ever_ours(main: subprocess.Popen[bytes]) -> None:
    manager = Manager(main)

    async def story(trigger: Trigger) -> None:
        for sig in (signal.SIGTERM, signal.SIGKILL):
            assert (await trigger.signal(sig, trigger.main)).outcome is Done.UNSUPPORTED

    manager.play(story)
    assert main.poll() is None


def fake_systemctl(folder: Path, answer: str) -> None:
    tool = folder / "systemctl"
    tool.write_text(f"#!/bin/sh\n{answer}\n", encoding="utf-8")
    tool.chmod(0o755)


@pytest.mark.parametrize(
    ("answer", "active"),
    [
        ("echo LoadState=loaded; echo ActiveState=deactivating; echo MainPID=1", "deactivating"),
        ("echo LoadState=not-found; echo ActiveState=inactive", "active"),
        ("echo 'Failed to connect to bus' >&2; exit 1", "active"),
        (None, "active"),
    ],
)
def test_what_systemd_says_of_the_unit_or_else_what_we_see(
    main: subprocess.Popen[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: str | None,
    active: str,
) -> None:
    """Always with the group and the main process, without which no server would be found."""
    if answer is not None:
        fake_systemctl(tmp_path, answer)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    manager = Manager(main)

    async def story(trigger: Trigger) -> None:
        state = await trigger.show()
        assert (state.unit.outcome, state.unit.active) == (Outcome.OK, active)
        assert (state.main_pid, state.control_group) == (main.pid, GROUP)

    manager.play(story)


def test_without_a_name_nobody_is_asked(main: subprocess.Popen[bytes]) -> None:
    """As where a cgroup namespace hides it."""
    identity = Identity(main.pid, 1)  # that process is another one by now
    trigger = Trigger(identity, None, trigger=bool, complain=print)
    state = asyncio.run(trigger.show())
    assert (state.unit.outcome, state.unit.active) == (Outcome.OK, "deactivating")
    assert state.control_group is None
    assert trigger.name == "its unit"


def test_the_units_environment_is_our_own(
    main: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_ARG_BATCH", "512")
    assert "LLAMA_ARG_RPC" not in os.environ
    said = asyncio.run(Manager(main).trigger.environment({"LLAMA_ARG_BATCH", "LLAMA_ARG_RPC"}))
    assert said == {"LLAMA_ARG_BATCH": "512"}
