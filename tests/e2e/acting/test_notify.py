"""Within the server's own unit: Debian's llama-server.service with notify.conf, and nothing beside it.

All that is done to the server is done by systemd; the watch has the rights of the server's own user.
"""

from __future__ import annotations

import time

import pytest

from tests.e2e.ground.events import Event, actions, events_of
from tests.e2e.ground.house import CONFIG, SERVER, SERVER_NAME, WATCHDOG, House
from tests.e2e.ground.testbed import Testbed
from tests.e2e.ground.waiting import stays_true, wait_until
from tests.e2e.ground.wedge import DECODE

# Neither url nor unit: it stands near enough to see both.
SETTINGS = """
[servers.chat.probe]
interval = "1s"
[servers.chat.stall]
blocked = "4s"
spinning = "5s"
"""
LOAD = 60.0  # seconds; the small model takes a third of one, and ten on a machine that is busy otherwise
AGAIN = 2.0  # RestartSec= of the drop-in


class Within(House):
    """The one unit, with the watch in it."""

    def begin(self, more: str = "") -> None:
        """The unit started anew, with nothing remembered; returns once the watch has seen it idle."""
        self._stop()
        self.testbed.run("rm", "-rf", f"/var/lib/llama-watchdog-{SERVER_NAME}")
        self.testbed.write(CONFIG, SETTINGS + more)
        self.mark()
        self.systemctl("start", SERVER)
        self.wait_for(LOAD, verdict="idle")
        self.mark()

    def events(self) -> list[Event]:
        said = self.journal(f"--unit={SERVER}", "SYSLOG_IDENTIFIER=llama-watchdog")
        return events_of(str(entry["MESSAGE"]) for entry in said)

    def story(self) -> str:
        entries = [e for e in self.journal() if e.get("SYSLOG_IDENTIFIER") != "llama-server"]
        return "\n".join(f"{entry.get('SYSLOG_IDENTIFIER')}: {entry['MESSAGE']}" for entry in entries[-80:])

    def watch_pid(self) -> int:
        """The pid inside of the watch; 0 where there is none."""
        return int(self.testbed.run("pgrep", "--full", "llama-watchdog notify", check=False).stdout or 0)


@pytest.fixture(scope="module")
def within(testbed: Testbed) -> Within:
    house = Within(testbed)
    house.install_dropin("notify")
    return house


@pytest.mark.parametrize(
    ("mode", "decoding", "evidence", "budget"),
    [("block", False, "blocked", 4.0), ("block", True, "blocked", 4.0), ("spin", True, "spinning", 5.0)],
)
def test_a_wedged_server_serves_again(
    within: Within, mode: str, decoding: bool, evidence: str, budget: float
) -> None:
    """One restart, by systemd, in time; the watch after it knows whose work it goes on with."""
    within.begin()
    if decoding:
        generation = within.client.start_decoding()
        within.wait_for(10, verdict="busy")
        generation.flow()
    before = within.main_pid()

    within.wedge(mode, DECODE if decoding else "")
    wedged_at = time.monotonic()
    wait_until(lambda: within.main_pid() not in (0, before), budget + 20.0 + AGAIN, "another server")
    wait_until(within.client.serves, LOAD, "the server to serve again")
    took = time.monotonic() - wedged_at

    assert within.wait_for(1, verdict="wedged")["evidence"] == evidence, within.story()
    within.wait_for(20, action="restart", outcome="healed")
    assert actions(within.events()) == ["restart"], within.story()
    said = [str(entry["MESSAGE"]) for entry in within.journal("_PID=1", f"UNIT={SERVER}")]
    assert any("Watchdog request" in line for line in said)
    stays_true(lambda: within.starts() == 1, 4.0, "exactly one start of the server")
    assert within.show(WATCHDOG, "ActiveState") == "inactive"
    print(f"{mode}, {'decoding' if decoding else 'idle'}: served again after {took:.1f} s")  # noqa: T201  a figure


def test_a_killed_server_is_started_by_systemd_alone(within: Within) -> None:
    within.begin()
    before, watch = within.main_pid(), within.watch_pid()
    within.testbed.run("kill", "-KILL", str(before))
    wait_until(lambda: within.main_pid() not in (0, before), AGAIN + 20.0, "another server")
    wait_until(within.client.serves, LOAD, "the server to serve again")
    wait_until(lambda: within.watch_pid() not in (0, watch), 20.0, "another watch")
    stays_true(lambda: within.starts() == 1, 8.0, "exactly one start of the server")
    assert actions(within.events()) == [], within.story()


def test_a_stop_is_a_stop(within: Within) -> None:
    """Also for the watch: it must not hold up the unit's end."""
    within.begin()
    began = time.monotonic()
    within.systemctl("stop", SERVER)
    assert time.monotonic() - began < 20.0  # and not the 90 of TimeoutStopSec=
    assert within.watch_pid() == 0
    stays_true(lambda: within.show(SERVER, "ActiveState") == "inactive", 5.0, "the server to stay stopped")
    assert actions(within.events()) == [], within.story()


def test_the_end_of_the_watch_leaves_the_server_alone(within: Within) -> None:
    within.begin()
    before = within.main_pid()
    within.testbed.run("kill", "-KILL", str(within.watch_pid()))
    assert within.watch_pid() == 0
    stays_true(lambda: within.main_pid() == before, 5.0, "the server to live on")
    wait_until(within.client.serves, LOAD, "the server to serve")
    assert within.main_pid() == before
    assert within.show(SERVER, "ActiveState") == "active"
    assert within.starts() == 0


def test_its_limit_outlives_it(within: Within) -> None:
    """Each watch is killed along with the server, and the one after it counts on; at the limit it lets go."""
    within.begin("[servers.chat.restart]\nmax_restarts = 1\nbackoff = '1s'\n")
    within.wedge("block")
    within.wait_for(LOAD, action="restart", outcome="healed")
    within.wait_for(10, verdict="idle")  # and no tokens delivered, by which it would be forgiven
    before = within.main_pid()
    within.wedge("block")
    within.wait_for(30, action="hold")
    stays_true(lambda: within.main_pid() == before, 5.0, "the server to be left as it is")
    assert within.starts() == 1
    assert within.watch_pid() != 0
