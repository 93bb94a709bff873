"""What happens to the watchdog itself, or to what it stands on, in the middle of its work.

Restarts, rivals, an admin's wishes, a broken disk, a server that can't start, one that can't end, and the
several ways in which systemd may have been told to bring a server back by itself.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.ground import forked
from tests.e2e.ground.accidents import Accidents
from tests.e2e.ground.disk import Disk
from tests.e2e.ground.events import actions, events_of
from tests.e2e.ground.house import SERVER, SERVER_DEFAULTS, WATCHDOG, House
from tests.e2e.ground.package import COMMAND
from tests.e2e.ground.real_server import StartServer
from tests.e2e.ground.waiting import stays_true, wait_until
from tests.e2e.ground.watchdog import running
from tests.e2e.ground.wedge import DECODE

STATE = "/var/lib/llama-watchdog"
CONFIG = """
[servers.chat]
url = "http://127.0.0.1:8080"
unit = "llama-server.service"
[servers.chat.probe]
interval = "0.5s"
[servers.chat.stall]
blocked = "3s"
[servers.chat.escalation]
cancel_grace = "1s"
sigterm_grace = "2s"
sigkill_grace = "2s"
"""
BACK = 40.0  # seconds from the wedge to the served completion; a third of it on an idle machine


def begin(house: House, config: str = CONFIG) -> None:
    """Both services, started anew, and all is well."""
    house.fresh(config)
    house.wait_for(15, verdict="idle")
    house.mark()


def comes_back(house: House, starts: int = 1) -> None:
    """It serves again, by so many starts, and nothing more is done."""
    try:
        wait_until(lambda: house.starts() >= starts and house.client.serves(), BACK, "the server to serve")
        calm = lambda: "chat: idle" in house.show(WATCHDOG, "StatusText")
        wait_until(calm, 15.0, "the watchdog to be calm")
    except TimeoutError as error:
        pytest.fail(f"{error}\n{house.story()}")
    pid = house.main_pid()
    still = lambda: house.starts() == starts and house.main_pid() == pid
    stays_true(still, 2.0, f"{starts} starts of the server:\n{house.story()}")


@contextmanager
def dropin(house: House, unit: str, text: str) -> Iterator[None]:
    """A drop-in of the unit's for a while."""
    path = f"/run/systemd/system/{unit}.d/test.conf"
    house.testbed.write(path, text)
    house.systemctl("daemon-reload")
    try:
        yield
    finally:
        house.testbed.run("rm", path)
        house.systemctl("daemon-reload")


@pytest.fixture
def accidents(house: House) -> Iterator[Accidents]:
    """The watchdog is run by `crash.py` while the test lasts."""
    accidents = Accidents(house)
    yield accidents
    accidents.end()


# The watchdog is restarted


# When it is restarted, by the action that was just told; and what makes the server's own start take a while.
SLOW_TO_PREPARE = "[Service]\nExecStartPre=/bin/sleep 2\n"
SLOW_TO_APPEAR = "[Service]\nExecStart=\nExecStart=/bin/sh -c 'sleep 2; exec /usr/bin/llama-server'\n"


@pytest.mark.parametrize(
    ("action", "server"),
    [
        ("cancel", ""),
        ("sigterm", ""),
        ("sigkill", ""),
        ("restart", SLOW_TO_PREPARE),
        ("restart", SLOW_TO_APPEAR),
    ],
    ids=["cancel", "sigterm", "sigkill", "preparing", "starting"],
)
def test_restarted_in_the_middle_of_an_incident(house: House, action: str, server: str) -> None:
    """`systemctl restart llama-watchdog` after any rung: the incident goes on, and ends once."""
    surely = CONFIG + 'ladder = ["cancel", "sigterm", "sigkill"]\n'  # of the second SIGTERM it may end
    with dropin(house, SERVER, server):
        begin(house, surely)
        house.client.start_decoding()
        house.wait_for(10, verdict="busy")
        house.wedge("block", DECODE)
        house.wait_for(BACK, action=action)
        house.systemctl("restart", WATCHDOG)
        comes_back(house)
        told = [event for event in house.events() if event["event"] == "action"]
        assert {event["incident"] for event in told} == {"1"}, house.story()
        assert Counter(actions(told)) <= Counter(cancel=1, sigterm=1, sigkill=2, restart=1), house.story()
        assert [event["outcome"] for event in told].count("healed") == 1, house.story()


# Another watchdog


def test_of_two_watchdogs_one_acts(house: House) -> None:
    """The second says who is at it, and does nothing; once the first has gone, it takes over."""
    begin(house)
    second = "second.service"
    house.testbed.write("/etc/second.toml", CONFIG)
    unit = [f"--unit={second}", "--property=StateDirectory=second", "--property=RuntimeDirectory=second"]
    house.testbed.run("systemd-run", *unit, COMMAND, "run", "--config", "/etc/second.toml")

    def said() -> list[str]:
        return [str(entry["MESSAGE"]) for entry in house.journal(f"--unit={second}")]

    try:
        holder = f"llama-watchdog (pid {house.main_pid(WATCHDOG)}, uid "
        wait_until(lambda: any(holder in line for line in said()), 10.0, "the second to say who is at it")
        house.wedge("block")
        comes_back(house)
        assert actions(events_of(said())) == []

        house.systemctl("stop", WATCHDOG)
        wait_until(lambda: any("hands on again" in line for line in said()), 10.0, "it to take over")
        house.mark()
        house.wedge("block")
        wait_until(lambda: house.starts() and house.client.serves(), BACK, "the server to serve again")
        wait_until(lambda: "healed" in "".join(said()), 10.0, "the second to see it")
        assert actions(events_of(said()))[-1] == "restart"
        stays_true(lambda: house.starts() == 1, 2.0, "one start")
    finally:
        house.systemctl("stop", second)


# An admin's wishes


def test_a_pause_is_kept(house: House) -> None:
    """A wedge is left alone while its admin says so, and healed when he says so."""
    begin(house)
    assert "hands off" in house.watchdog("pause", "chat")
    wait_until(lambda: "paused by its admin" in house.show(WATCHDOG, "StatusText"), 5.0, "it to be heard")
    pid = house.main_pid()
    house.wedge("block")
    house.wait_for(BACK, verdict="wedged")
    stays_true(lambda: house.main_pid() == pid and not actions(house.events()), 6.0, "hands off")
    assert "hands on again" in house.watchdog("resume", "chat")
    comes_back(house)


def test_a_server_that_cannot_start_is_held_until_released(house: House) -> None:
    """After as many restarts as are allowed it is left alone, and said why; a release brings it back."""
    limits = '[servers.chat.restart]\nmax_restarts = 2\nbackoff = "1s"\n'
    begin(house, CONFIG + limits)
    defaults = "/etc/default/llama-server"
    kept = house.testbed.run("cat", defaults).stdout
    assert SERVER_DEFAULTS["LLAMA_ARG_MODEL"] in kept
    house.testbed.write(defaults, kept.replace(SERVER_DEFAULTS["LLAMA_ARG_MODEL"], "/no/such.gguf"))
    try:
        house.systemctl("kill", "--signal=KILL", SERVER)
        hold = house.wait_for(BACK, action="hold")
        assert "exit status 1" in hold["text"]
        stays_true(lambda: house.starts() == 2, 10.0, f"two starts and no more:\n{house.story()}")
        assert "held" in house.testbed.run("systemctl", "status", WATCHDOG, check=False).stdout
    finally:
        house.testbed.write(defaults, kept)
    assert "released" in house.watchdog("release", "chat")
    comes_back(house, starts=3)


# The disk


@pytest.mark.parametrize(
    ("trouble", "at_work", "says"),
    [
        (Disk.fill, False, "the disk is full"),
        (Disk.fill, True, "the disk is full"),
        (Disk.make_read_only, False, "may not be written"),
        (Disk.spoil, False, "is damaged"),
        (Disk.spoil, True, "is damaged"),
    ],
    ids=["full", "fills-up", "read-only", "spoilt", "gets-spoilt"],
)
def test_without_its_state(house: House, trouble: Callable[[Disk], None], at_work: bool, says: str) -> None:
    """It is said once, and a wedged server serves again all the same."""
    begin(house)
    house.systemctl("stop", WATCHDOG)
    with Disk(house.testbed, STATE) as disk:
        try:
            if not at_work:
                trouble(disk)
            house.mark()
            house.systemctl("start", WATCHDOG)
            house.wait_for(15, verdict="idle")
            if at_work:
                trouble(disk)
            house.wedge("block")
            comes_back(house)
            lines = [str(entry["MESSAGE"]) for entry in house.journal(f"--unit={WATCHDOG}")]
            said = [line for line in lines if f"{STATE}/state.db " in line]
            assert len(said) == 1, said
            assert says in said[0]
            assert len([line for line in lines if f"{STATE}/wishes.db " in line]) <= 1, lines
        finally:
            house.systemctl("stop", WATCHDOG)


# What a server leaves behind, and one that can't be ended


def test_a_fork_with_the_listening_socket(house: House) -> None:
    """It would keep its unit from starting for TimeoutStopSec= (90 s), and hold the port: it is ended."""
    begin(house)
    assert house.show(SERVER, "TimeoutStopUSec") == "1min 30s"
    outside = forked.seen_outside(house.testbed, SERVER, house.main_pid())
    child = forked.fork(outside)
    wait_until(house.client.serves, 15.0, "the server to go on as if nothing had been")
    house.testbed.run("kill", "-9", str(house.main_pid()))
    began = time.monotonic()
    comes_back(house)
    assert time.monotonic() - began < BACK
    assert not house.testbed.run("sh", "-c", f"test ! -e /proc/{child}", check=False).returncode


def test_a_fork_where_nobody_supervises(server_factory: StartServer, tmp_path: Path) -> None:
    """Likewise without systemd, where a command starts the server: run once, when the port is free."""
    server = server_factory()
    child = os.pidfd_open(forked.fork(server.pid))
    asked, config = tmp_path / "asked", tmp_path / "config.toml"
    restart = f'[servers.chat.restart]\ncommand = ["sh", "-c", "echo >>{asked}"]\n'
    plain = CONFIG.replace("http://127.0.0.1:8080", server.url).replace('unit = "llama-server.service"\n', "")
    config.write_text(plain + restart)
    try:
        with running(tmp_path, "run", "--config", config) as watchdog:
            watchdog.wait_for(15, verdict="idle")
            server.stop()
            wait_until(asked.exists, BACK, "a restart to be asked for")
            again = server_factory(port=server.port)  # which fails where the port is still taken
            watchdog.wait_for(20, action="restart", outcome="healed")
            stays_true(again.alive, 2.0, "the new server runs")
            assert asked.read_text() == "\n"
            with pytest.raises(ProcessLookupError):
                signal.pidfd_send_signal(child, signal.SIGKILL)
    finally:
        os.close(child)


def test_a_process_that_sigkill_cannot_end(house: House, accidents: Accidents) -> None:
    """As one that is stuck in a driver: nothing is started beside it; once it has ended, it is, once."""
    accidents.plan(deaf=True)
    ladder = '[servers.chat.escalation]\nladder = ["sigterm", "sigkill"]\n'
    begin(house, CONFIG.replace("[servers.chat.escalation]\n", ladder))
    pid = house.main_pid()
    house.wedge("block")
    house.wait_for(BACK, verdict="unkillable")
    stays_true(lambda: house.main_pid() == pid and not house.starts(), 5.0, "nothing is started beside it")
    assert "unkillable" in house.show(WATCHDOG, "StatusText")
    house.testbed.run("kill", "-9", str(pid))
    comes_back(house)


# Whoever else starts it


@pytest.mark.parametrize("restart", ["no", "on-failure", "always"])
def test_one_start_whatever_systemd_does(house: House, restart: str) -> None:
    """After a wedge, and after an end of its own: one start, by whichever of the two comes first."""
    with dropin(house, SERVER, f"[Service]\nRestart={restart}\n"):
        begin(house)
        house.wedge("block")
        comes_back(house)
        house.mark()
        house.testbed.run("kill", "-9", str(house.main_pid()))
        comes_back(house)


@pytest.mark.parametrize("restart", ["no", "always"])
def test_a_unit_at_its_start_limit(house: House, restart: str) -> None:
    """systemd gives it up after its first start: it is brought back all the same."""
    limit = f"[Unit]\nStartLimitIntervalSec=1h\nStartLimitBurst=1\n[Service]\nRestart={restart}\n"
    with dropin(house, SERVER, limit):
        begin(house)
        house.testbed.run("kill", "-9", str(house.main_pid()))
        comes_back(house)
