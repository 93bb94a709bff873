"""Beside a llama-server that is a unit of the user's own (`systemctl --user`), by systemd/user's unit.

It needs no right beyond the user's, and sees all of the server. The admin has units of the same names: they
are not meant, and not touched.
"""

from __future__ import annotations

import re
import time

import pytest

from tests.e2e.ground.events import actions
from tests.e2e.ground.house import SERVER, WATCHDOG
from tests.e2e.ground.testbed import Testbed
from tests.e2e.ground.users import MANAGER, UID, UsersHouse
from tests.e2e.ground.waiting import stays_true, wait_until
from tests.e2e.ground.wedge import DECODE

BLOCKED = 4.0
CONFIG = f"""
[servers.chat]
unit = "llama-server.service"
[servers.chat.probe]
interval = "1s"
[servers.chat.stall]
blocked = "{BLOCKED:g}s"
"""
LOAD = 60.0  # seconds; the small model takes a third of one, and ten on a machine that is busy otherwise
NEVER = "0"  # a unit's times, where it has not been started since the boot


@pytest.fixture(scope="module")
def users(testbed: Testbed) -> UsersHouse:
    return UsersHouse(testbed)


@pytest.mark.parametrize("decoding", [False, True])
def test_a_wedged_server_serves_again(users: UsersHouse, decoding: bool) -> None:
    """One restart of the user's unit, by the user's manager, on full evidence; the admin's is left alone."""
    users.fresh(CONFIG)
    users.wait_for(10, verdict="idle")
    if decoding:
        generation = users.client.start_decoding()
        users.wait_for(10, verdict="busy")
        generation.flow()
    before = users.show(SERVER, "InvocationID")

    users.wedge("block", DECODE if decoding else "")
    wedged_at = time.monotonic()
    wait_until(lambda: users.show(SERVER, "InvocationID") not in ("", before), 25.0, "another server")
    after = users.show(SERVER, "InvocationID")
    wait_until(users.client.serves, LOAD, "the server to serve again")
    took = time.monotonic() - wedged_at

    wedged = users.wait_for(1, verdict="wedged")
    assert wedged["evidence"] == "blocked", users.story()
    assert wedged["stalled_for"] >= BLOCKED
    # SIGTERM by its own right, the start by the manager's: no other of the user's means could start a unit.
    assert users.wait_for(1, action="sigterm")["outcome"] == "done", users.story()
    started = users.wait_for(1, action="restart", outcome="started")
    assert f"asked systemd to start {SERVER}" in started["text"], users.story()
    users.wait_for(LOAD, action="restart", outcome="healed")
    if decoding:
        assert users.wait_for(1, action="cancel")["outcome"] == "unsupported", users.story()
    stays_true(lambda: users.starts() == 1, 4.0, "exactly one start of the server")
    assert actions(users.events()).count("restart") == 1, users.story()
    assert users.show(SERVER, "InvocationID") == after
    assert _of_the_admins(users, "InactiveExitTimestampMonotonic") == NEVER
    print(f"{'decoding' if decoding else 'idle'}: served again after {took:.1f} s")  # noqa: T201  a figure


def test_a_stop_is_a_stop(users: UsersHouse) -> None:
    users.fresh(CONFIG)
    users.wait_for(10, verdict="idle")
    users.systemctl("stop", SERVER)
    left = users.wait_for(10, action="hold")
    assert left["text"].startswith("left alone: its unit ")  # was stopped, or has a stop job
    stays_true(lambda: users.show(SERVER, "ActiveState") == "inactive", 8.0, "the server to stay stopped")
    assert set(actions(users.events())) == {"hold"}, users.story()
    assert users.starts() == 0
    assert users.show(WATCHDOG, "ActiveState") == "active"


def test_it_has_the_users_rights_and_no_more(users: UsersHouse) -> None:
    users.fresh(CONFIG)
    users.wait_for(10, verdict="idle")
    status = users.testbed.run("cat", f"/proc/{users.main_pid(WATCHDOG)}/status").stdout
    assert re.findall(r"(?m)^Uid:\s*(.*)$", status) == ["\t".join([str(UID)] * 4)]
    sets = {name: int(bits, 16) for name, bits in re.findall(r"(?m)^(Cap\w+):\s*(\w+)$", status)}
    # Not CapInh: user managers pass CAP_WAKE_ALARM on in it, and it gives no right by itself.
    assert sets["CapPrm"] == sets["CapEff"] == sets["CapAmb"] == 0
    assert f"/{MANAGER}/" in users.show(WATCHDOG, "ControlGroup")
    assert _of_the_admins(users, "MainPID", WATCHDOG) == "0"


def test_it_sees_all_of_the_server(users: UsersHouse) -> None:
    """Reads, open files and GPU too, says doctor in the unit's own sandbox; and each rung but one works.

    /metrics is switched off at the server. No user's manager can give what closing connections takes.
    """
    users.fresh(CONFIG)
    users.wait_for(10, verdict="idle")
    before = users.show(SERVER, "InvocationID")
    found = users.doctor()
    assert {"io", "fd", "gpu", "supervisor", "sigterm", "sigkill", "restart"} <= found.keys(), found
    assert {check for check, outcome in found.items() if outcome != "ok"} == {"cancel", "metrics"}, found
    assert users.show(SERVER, "InvocationID") == before


def _of_the_admins(users: UsersHouse, name: str, unit: str = SERVER) -> str:
    """A property of the system's unit of that name."""
    return users.testbed.run("systemctl", "show", unit, f"--property={name}", "--value").stdout.strip()
