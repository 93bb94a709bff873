"""`doctor` with the shipped unit and rule: what works, that its remedies help, and that it harms nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.e2e.ground.house import CONFIG, SERVER, WATCHDOG, House
from tests.e2e.ground.package import COMMAND, SERVICE_FILES
from tests.e2e.ground.waiting import wait_until

RULE = SERVICE_FILES["llama-watchdog.rules"]
CONFIGURATION = """
[servers.chat]
unit = "llama-server.service"
"""
Checks = dict[str, dict[str, str]]


@pytest.fixture
def served(house: House) -> Iterator[House]:
    """The server runs and is to be found untouched; the watchdog does not run."""
    house.remove_dropins()
    house.start_server()
    house.testbed.write(CONFIG, CONFIGURATION)
    ask(house, "start")  # polkitd is started by the first question, and logs that
    properties = ("InvocationID", "MainPID", "NRestarts", "ActiveEnterTimestampMonotonic")
    before = [house.show(SERVER, name) for name in properties]
    house.mark()
    yield house
    assert [house.show(SERVER, name) for name in properties] == before
    wait_until(house.client.serves, 30.0, "the server to serve")
    said = [str(entry["MESSAGE"]) for entry in house.journal("_PID=1")]
    assert not [line for line in said if SERVER in line], said
    said = [str(entry["MESSAGE"]) for entry in house.journal(f"--unit={SERVER}")]
    assert not [line for line in said if re.search("signal|exit|load", line)], said


@pytest.fixture
def unruled(served: House) -> Iterator[House]:
    """Without the polkit rule."""
    rule = served.testbed.run("cat", RULE).stdout
    served.testbed.run("rm", RULE)
    wait_until(lambda: not ask(served, "start"), 10.0, "polkit to have forgotten the rule")
    yield served
    served.testbed.write(RULE, rule)
    wait_until(lambda: ask(served, "start"), 10.0, "polkit to have read the rule")


def ask(house: House, verb: str) -> bool:
    """Whether the service's user may do this to the server's unit: by a question that does nothing."""
    command = ["setpriv", "--reuid=llama-watchdog", "--regid=llama-watchdog", "--clear-groups"]
    command += ["systemctl", "--no-ask-password", verb, "--job-mode=triggering", SERVER]
    return "Access denied" not in house.testbed.run(*command, check=False).stderr


def doctor(house: House, *changed: str) -> tuple[int, Checks]:
    """As the service, in its sandbox and with its rights: the exit code, and each check.

    `changed`: lines of the unit to have in place of those of the same name; a name alone takes it out.
    """
    unit = house.testbed.run("systemctl", "cat", WATCHDOG).stdout
    settings = re.findall(
        r"(?m)^(?:User|StateDirectory|Ambient|Capability|NoNew|Protect|Private|Device|Lock|MemoryDeny|Restrict"
        r"|SystemCall)\w*=.*$",
        unit,
    )
    assert len(settings) > 15
    names = {line.partition("=")[0] for line in changed}
    settings = [line for line in settings if line.partition("=")[0] not in names]
    settings += [line for line in changed if "=" in line]
    run = ["systemd-run", "--wait", "--pipe", "--quiet", *(f"--property={line}" for line in settings)]
    done = house.testbed.run(*run, COMMAND, "doctor", "--config", CONFIG, "--json", check=False)
    checks = [json.loads(line) for line in done.stdout.splitlines()]
    assert checks, done.stderr
    return done.returncode, {check["check"]: check for check in checks}


def lacking(checks: Checks) -> set[str]:
    return {name for name, check in checks.items() if check["outcome"] != "ok"}


def test_as_it_is_installed_all_that_matters_works(served: House) -> None:
    """What it is not given on purpose, and its judgement can do without, is said and is no failure."""
    code, checks = doctor(served)
    assert code == 0, checks
    assert lacking(checks) == {"io", "fd", "metrics"}
    assert "CAP_SYS_PTRACE" in checks["io"]["remedy"]


def test_for_root_too(served: House) -> None:
    done = served.testbed.run(COMMAND, "doctor", "--config", CONFIG)
    lines = done.stdout.splitlines()
    assert "run as root" in lines[0]
    assert [line.split()[:2] for line in lines if " missing " in line] == [["metrics", "missing"]], (
        done.stdout
    )


def test_the_right_to_close_connections(served: House) -> None:
    """Its remedy is the very line of the unit."""
    code, checks = doctor(served, "AmbientCapabilities", "CapabilityBoundingSet")
    assert code == 1
    assert lacking(checks) == {"io", "fd", "metrics", "cancel"}
    where, _, line = checks["cancel"]["remedy"].partition(": ")
    assert where == f"{WATCHDOG}, [Service]"
    assert line == "AmbientCapabilities=CAP_NET_ADMIN"
    code, checks = doctor(served, "CapabilityBoundingSet", line)
    assert (code, checks["cancel"]["outcome"]) == (0, "ok")


def test_the_rule_for_systemd(unruled: House) -> None:
    """Its remedy is a line for a file; followed, all works."""
    code, checks = doctor(unruled)
    assert code == 1
    rungs = {"sigterm", "sigkill", "restart"}
    assert lacking(checks) == {"io", "fd", "metrics"} | rungs
    (remedy,) = {checks[rung]["remedy"] for rung in rungs}
    path, _, line = remedy.partition(": ")
    assert path == RULE
    unruled.testbed.write(path, line)
    wait_until(lambda: ask(unruled, "start"), 10.0, "polkit to have read the rule")
    code, checks = doctor(unruled)
    assert (code, lacking(checks)) == (0, {"io", "fd", "metrics"})
    assert all(ask(unruled, verb) for verb in ("start", "restart"))
    assert not ask(unruled, "stop")


def test_a_server_that_is_down_is_not_touched(house: House) -> None:
    """Nothing can be tried, so nothing is known; and what its admin has stopped stays stopped."""
    house.remove_dropins()
    house.testbed.write(CONFIG, CONFIGURATION)
    house.mark()
    code, checks = doctor(house)
    assert code == 3
    down = {"health", "slots", "props", "metrics", "process", "sigterm", "sigkill", "restart"}
    assert {name for name, check in checks.items() if check["outcome"] == "unknown"} == down
    assert house.show(SERVER, "ActiveState") == "inactive"
    assert house.starts() == 0
