"""What is asked of systemd in each state of a unit: a fake `systemctl` answers as the real one does."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from llama_watchdog import signals
from llama_watchdog.core.action import Done, Identity, Result
from llama_watchdog.supervisors.systemd import SystemdUnit

UNIT = "chat.service"
START = f"start --no-block --job-mode=fail -- {UNIT}"
RESTART = f"restart --no-block --job-mode=fail -- {UNIT}"
RESET = f"reset-failed -- {UNIT}"

RUNNING = {
    "LoadState": "loaded",
    "ActiveState": "active",
    "SubState": "running",
    "Result": "success",
    "Job": "",
    "MainPID": "0",
    "ControlGroup": f"/system.slice/{UNIT}",
    "ExecMainCode": "0",
    "ExecMainStatus": "0",
}
STOPPED = RUNNING | {"ActiveState": "inactive", "SubState": "dead", "ControlGroup": ""}
CRASHED = RUNNING | {
    "ActiveState": "failed",
    "SubState": "failed",
    "Result": "signal",
    "ControlGroup": "",
    "ExecMainCode": "2",
    "ExecMainStatus": "9",
}
WAITING = CRASHED | {"ActiveState": "activating", "SubState": "auto-restart"}
LINGERING = CRASHED | {
    "ActiveState": "deactivating",
    "SubState": "stop-sigterm",
    "ControlGroup": f"/system.slice/{UNIT}",
}
STOPPING = RUNNING | {"ActiveState": "deactivating", "SubState": "stop-sigterm", "Job": "274"}


@dataclass
class Systemctl:
    """The fake: `asked` are the verbs it got, questions left out."""

    folder: Path

    def says(self, state: dict[str, str], *, job: str = "", refuses: str = "", verbs: str = "*") -> None:
        """It shows `state`, lists `job`, and refuses the `verbs` (a shell pattern) with that message."""
        shown = "\n".join(f"{key}={value}" for key, value in state.items())
        refusal = f"echo '{refuses}' >&2; exit 1" if refuses else "exit 0"
        script = (
            'while [ "${1#--}" != "$1" ]; do shift; done\n'
            f"case $1 in show) echo '{shown}'; exit 0 ;; esac\n"
            f"case $1 in list-jobs) echo '274 {UNIT} {job} waiting'; exit 0 ;; esac\n"
            f'echo "$*" >>{self.folder}/asked\n'
            f"case $1 in {verbs}) {refusal} ;; esac\n"
        )
        tool = self.folder / "systemctl"
        tool.write_text(f"#!/bin/sh\n{script}", encoding="utf-8")
        tool.chmod(0o755)

    @property
    def asked(self) -> list[str]:
        log = self.folder / "asked"
        return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemctl:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return Systemctl(tmp_path)


def restart(ended: Identity | None = None) -> Result:
    return asyncio.run(SystemdUnit(UNIT).restart(ended))


def signal_unit(sig: signal.Signals, identity: Identity | None = None) -> Result:
    return asyncio.run(SystemdUnit(UNIT).signal(sig, identity))


def ourselves() -> Identity:
    found = signals.identify(os.getpid())
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("state", "asked"),
    [
        pytest.param(RUNNING, [RESTART], id="active"),
        pytest.param(STOPPED, [START], id="inactive"),
        pytest.param(CRASHED, [RESET, START], id="failed"),
        pytest.param(CRASHED | {"Result": "start-limit-hit"}, [RESET, START], id="start limit"),
        pytest.param(LINGERING, [START], id="its remains are being stopped"),
    ],
)
def test_each_state_gets_its_verb(systemctl: Systemctl, state: dict[str, str], asked: list[str]) -> None:
    systemctl.says(state)
    assert restart().outcome is Done.DONE
    assert systemctl.asked == asked


@pytest.mark.parametrize(
    ("state", "job"),
    [
        pytest.param(WAITING, "", id="auto-restart"),
        pytest.param(WAITING | {"SubState": "auto-restart-queued"}, "", id="auto-restart of systemd 254"),
        pytest.param(
            RUNNING | {"ActiveState": "activating", "SubState": "start", "Job": "274"}, "start", id="loading"
        ),
        pytest.param(
            RUNNING | {"ActiveState": "activating", "SubState": "start"}, "", id="loading, job cancelled"
        ),
        pytest.param(STOPPING, "restart", id="restart under way"),
    ],
)
def test_what_systemd_does_itself_is_left_to_it(
    systemctl: Systemctl, state: dict[str, str], job: str
) -> None:
    systemctl.says(state, job=job)
    result = restart()
    assert result.outcome is Done.DONE
    assert "itself" in result.text
    assert systemctl.asked == []


@pytest.mark.parametrize(
    ("state", "outcome", "said"),
    [
        pytest.param(STOPPED | {"LoadState": "masked"}, Done.UNSUPPORTED, "masked", id="masked"),
        pytest.param(
            CRASHED | {"LoadState": "masked"}, Done.UNSUPPORTED, "masked", id="masked while running"
        ),
        pytest.param(STOPPED | {"LoadState": "not-found"}, Done.UNSUPPORTED, "not-found", id="no such unit"),
        pytest.param(STOPPING, Done.FAILED, "being stopped by its admin", id="stop job"),
    ],
)
def test_the_admins_will_is_done(
    systemctl: Systemctl, state: dict[str, str], outcome: Done, said: str
) -> None:
    systemctl.says(state, job="stop")
    result = restart()
    assert result.outcome is outcome
    assert said in result.text
    assert systemctl.asked == []


def test_the_text_says_what_was_done_and_how_the_server_had_ended(systemctl: Systemctl) -> None:
    systemctl.says(CRASHED)
    assert restart().text == f"asked systemd to start {UNIT} (its last main process: signal, exit status 137)"


def test_a_unit_that_systemd_has_restarted_is_not_restarted_again(systemctl: Systemctl) -> None:
    """Its Restart= was quicker: the main process now is a fresh one, maybe loading its model."""
    fresh = ourselves()
    systemctl.says(RUNNING | {"MainPID": str(fresh.pid)})
    result = restart(ended=Identity(fresh.pid - 1, fresh.start_ticks - 1))
    assert result == Result(Done.DONE, f"systemd has restarted {UNIT} itself")
    assert systemctl.asked == []


def test_a_main_process_older_than_the_server_is_a_wrapper_and_no_fresh_one(systemctl: Systemctl) -> None:
    wrapper = ourselves()
    systemctl.says(RUNNING | {"MainPID": str(wrapper.pid)})
    restart(ended=Identity(wrapper.pid + 1, wrapper.start_ticks + 1))
    assert systemctl.asked == [RESTART]


def test_a_denied_reset_is_no_reason_not_to_start(systemctl: Systemctl) -> None:
    """A polkit rule may allow one verb and not the other."""
    systemctl.says(CRASHED, refuses="Failed to reset failed state: Access denied", verbs="reset-failed")
    assert restart().outcome is Done.DONE
    assert systemctl.asked == [RESET, START]


@pytest.mark.parametrize("message", ["Access denied", "Interactive authentication required."])
def test_denied_it_says_what_would_help(systemctl: Systemctl, message: str) -> None:
    systemctl.says(RUNNING, refuses=f"Failed to restart {UNIT}: {message}")
    for result in (restart(), signal_unit(signal.SIGKILL)):
        assert result.outcome is Done.UNSUPPORTED
        assert "polkit" in result.text


def test_an_admin_who_stops_it_at_this_very_moment_wins(systemctl: Systemctl) -> None:
    systemctl.says(RUNNING, refuses="Transaction for chat.service/restart is destructive")
    result = restart()
    assert result.outcome is Done.FAILED
    assert "destructive" in result.text


def test_without_systemctl_nothing_can_be_done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert restart().outcome is Done.UNSUPPORTED
    assert signal_unit(signal.SIGKILL).outcome is Done.UNSUPPORTED


@pytest.mark.parametrize(("sig", "whom"), [(signal.SIGTERM, "main"), (signal.SIGKILL, "all")])
def test_sigkill_is_for_the_whole_unit_and_sigterm_for_the_server(
    systemctl: Systemctl, sig: signal.Signals, whom: str
) -> None:
    server = ourselves()
    systemctl.says(RUNNING | {"MainPID": str(server.pid)})
    assert signal_unit(sig, server).outcome is Done.DONE
    assert systemctl.asked == [f"kill --kill-who={whom} --signal={sig.name} -- {UNIT}"]


def test_what_is_left_of_a_dead_server_is_killed(systemctl: Systemctl) -> None:
    """An aborted server's backtrace child holds the port; the unit has no main process any more."""
    systemctl.says(LINGERING)
    assert signal_unit(signal.SIGKILL, ourselves()).outcome is Done.DONE
    assert systemctl.asked == [f"kill --kill-who=all --signal=SIGKILL -- {UNIT}"]


@pytest.mark.parametrize(
    ("state", "sig", "said"),
    [
        (STOPPED, signal.SIGKILL, "nothing of"),
        (STOPPED, signal.SIGTERM, "nothing of"),
        (WAITING, signal.SIGKILL, "nothing of"),
        (LINGERING, signal.SIGTERM, "main process"),
    ],
)
def test_where_nobody_is_left_nothing_is_asked(
    systemctl: Systemctl, state: dict[str, str], sig: signal.Signals, said: str
) -> None:
    systemctl.says(state)
    result = signal_unit(sig)
    assert result.outcome is Done.DONE
    assert said in result.text
    assert systemctl.asked == []


def test_a_unit_that_does_not_exist_is_no_success(systemctl: Systemctl) -> None:
    systemctl.says(STOPPED | {"LoadState": "not-found"})
    assert signal_unit(signal.SIGKILL).outcome is Done.UNSUPPORTED


def test_a_masked_server_that_still_runs_can_be_signalled(systemctl: Systemctl) -> None:
    systemctl.says(RUNNING | {"LoadState": "masked", "MainPID": str(os.getpid())})
    assert signal_unit(signal.SIGTERM).outcome is Done.DONE
    assert len(systemctl.asked) == 1


def test_the_successor_of_the_wedged_server_is_never_signalled(systemctl: Systemctl) -> None:
    fresh = ourselves()
    systemctl.says(RUNNING | {"MainPID": str(fresh.pid)})
    result = signal_unit(signal.SIGKILL, Identity(fresh.pid - 1, fresh.start_ticks - 1))
    assert result == Result(Done.FAILED, f"{UNIT} has been restarted meanwhile: not signalled")
    assert systemctl.asked == []
