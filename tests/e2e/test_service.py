"""llama-watchdog as systemd sees it: ready, readable, reloadable, alive, and locked in."""

from __future__ import annotations

import json
import re

from tests.e2e.ground.house import CONFIG, WATCHDOG, House
from tests.e2e.ground.package import COMMAND
from tests.e2e.ground.waiting import stays_true, wait_until

GOOD = """
[servers.chat]
unit = "llama-server.service"
[servers.chat.probe]
interval = "1s"
[servers.chat.stall]
blocked = "1h"
"""


def test_status_is_one_readable_line(house: House) -> None:
    """`systemctl status llama-watchdog` names the server and how it is."""
    house.fresh(GOOD)
    status = wait_until(lambda: house.show(WATCHDOG, "StatusText"), 5.0, "a status")
    wait_until(lambda: "idle" in house.show(WATCHDOG, "StatusText"), 5.0, "the status to say idle")
    assert "chat" in status
    assert "\n" not in status


def test_reload_applies_a_new_configuration_and_refuses_a_bad_one(house: House) -> None:
    """A wedge that would be waited for an hour is dealt with after a reload; a bad file changes nothing."""
    house.fresh(GOOD)
    house.wait_for(10, verdict="idle")
    pid = house.main_pid(WATCHDOG)

    house.testbed.write(CONFIG, GOOD.replace("blocked", "bloked"))
    house.systemctl("reload", WATCHDOG)
    wait_until(lambda: "bloked" in house.story(), 5.0, "the journal to name the misspelt key")
    assert house.show(WATCHDOG, "ActiveState") == "active"

    house.wedge("block")
    stays_true(lambda: "wedged" not in house.story(), 9.0, "the old configuration is in force")

    house.testbed.write(CONFIG, GOOD.replace('"1h"', '"6s"'))
    house.systemctl("reload", WATCHDOG)
    wedged = house.wait_for(15, verdict="wedged")
    assert wedged["stalled_for"] > 8.0, "the reload forgot what was known of the server"
    wait_until(house.client.serves, 30.0, "the server to serve again")
    assert house.main_pid(WATCHDOG) == pid


def test_systemd_finds_it_alive(house: House) -> None:
    """WatchdogSec=30 is kept: an idle watch and one of a wedge both go on pinging."""
    house.fresh(GOOD)
    house.wait_for(10, verdict="idle")
    assert house.show(WATCHDOG, "WatchdogUSec") == "30s"
    pid = house.main_pid(WATCHDOG)
    house.wedge("block")

    def pinged() -> bool:
        return house.main_pid(WATCHDOG) == pid and house.show(WATCHDOG, "NRestarts") == "0"

    stays_true(pinged, 33.0, "llama-watchdog runs")


def test_it_stops_at_once_and_well(house: House) -> None:
    """Also in the middle of watching a wedge: no timeout, no failure."""
    house.fresh(GOOD)
    house.wait_for(10, verdict="idle")
    house.wedge("block")
    house.wait_for(10, verdict="busy")  # what an unanswered /slots is at first
    house.systemctl("stop", WATCHDOG, timeout=10)
    assert house.show(WATCHDOG, "Result") == "success"
    assert house.show(WATCHDOG, "ActiveState") == "inactive"


def test_a_bad_configuration_ends_it_for_good(house: House) -> None:
    """Exit status 2 is not restarted: the file does not mend itself. One line names the key."""
    house.fresh(GOOD)
    house.systemctl("stop", WATCHDOG)
    house.mark()
    house.testbed.write(CONFIG, GOOD.replace("blocked", "bloked"))
    house.testbed.run("systemctl", "start", WATCHDOG, check=False)
    assert house.show(WATCHDOG, "ActiveState") == "failed"
    assert house.show(WATCHDOG, "ExecMainStatus") == "2"
    assert house.show(WATCHDOG, "NRestarts") == "0"
    said = [entry["MESSAGE"] for entry in house.journal(f"--unit={WATCHDOG}", "_COMM=llama-watchdog")]
    assert len(said) == 1, said
    assert "bloked" in said[0]


def test_it_sees_the_server_from_within_the_sandbox(house: House) -> None:
    """The sandbox leaves as much to see of the process as another user may."""
    house.fresh(GOOD)
    unit = house.testbed.run("systemctl", "cat", WATCHDOG).stdout
    keys = "User Ambient Capability NoNew Protect Private Device Lock MemoryDeny Restrict SystemCall"
    sandboxed = re.findall(rf"(?m)^(?:{'|'.join(keys.split())})\w*=.*$", unit)
    assert len(sandboxed) > 15
    run = ["systemd-run", "--wait", "--pipe", "--quiet", "--property=RuntimeDirectory=test"]
    run += ["--property=RuntimeDirectoryPreserve=yes", *(f"--property={setting}" for setting in sandboxed)]
    record = [COMMAND, "record", "--config", CONFIG, "--for", "3s", "-o", "/run/test/trace"]
    house.testbed.run(*run, *record)
    trace = [json.loads(line) for line in house.testbed.run("cat", "/run/test/trace").stdout.splitlines()]
    watch = [line for line in trace if "trace" in line][-1]
    assert watch["uses_gpu"] is False, "the machine of these tests has none"
    process = trace[-1]["process"]
    assert process["outcome"] == "ok"
    assert process["pid"] == house.server_pid()
    assert len(process["threads"]) > 2
    assert "read_bytes" not in process, "what stacks.conf is for"
