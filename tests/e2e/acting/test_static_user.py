"""The rights of llama-watchdog as installed: a user of its own, one capability, one polkit rule, no root.

That a wedged server serves again by these rights is test_main_job.py's; here is what they do not reach, and
that the files which grant them are sound.
"""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from tests.e2e.ground.house import CONFIG as CONFIG_FILE
from tests.e2e.ground.house import SERVER, WATCHDOG, House
from tests.e2e.ground.package import CHECKOUT, COMMAND, VENV
from tests.e2e.ground.waiting import wait_until

USER = "llama-watchdog"
CONFIG = """
[servers.chat]
unit = "llama-server.service"
[servers.chat.probe]
interval = "1s"
[servers.chat.stall]
blocked = "6s"
"""
CAP_NET_ADMIN = 1 << 12


def as_the_user(house: House, *arguments: str) -> subprocess.CompletedProcess[str]:
    """systemctl, asked by the service's user as the service asks."""
    run = [
        "setpriv",
        f"--reuid={USER}",
        f"--regid={USER}",
        "--clear-groups",
        "systemctl",
        "--no-ask-password",
    ]
    return house.testbed.run(*run, *arguments, check=False, timeout=60)


@pytest.fixture
def served(house: House) -> House:
    """The server runs."""
    house.start_server()
    return house


@pytest.mark.parametrize(
    "arguments",
    [
        ("restart", "--no-block", "--job-mode=fail", SERVER),
        ("start", "--no-block", "--job-mode=fail", SERVER),
        ("reset-failed", SERVER),
        ("kill", "--kill-who=main", "--signal=SIGCONT", SERVER),
        ("kill", "--kill-who=all", "--signal=SIGCONT", SERVER),
    ],
    ids=" ".join,
)
def test_what_the_rule_allows(served: House, arguments: tuple[str, ...]) -> None:
    allowed = as_the_user(served, *arguments)
    assert allowed.returncode == 0, allowed.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        *((verb, SERVER) for verb in ("stop", "reload", "try-restart", "mask", "disable", "freeze", "clean")),
        ("set-property", SERVER, "MemoryMax=1G"),
        ("restart", "dbus.service"),
        ("start", "systemd-tmpfiles-clean.service"),
        ("kill", "dbus.service"),
        ("daemon-reload",),
    ],
    ids=" ".join,
)
def test_what_it_does_not_allow(served: House, arguments: tuple[str, ...]) -> None:
    """Another verb on the server's unit, any verb on another unit, and what concerns the whole manager."""
    before = served.main_pid()
    denied = as_the_user(served, *arguments)
    assert denied.returncode != 0
    assert "Access denied" in denied.stderr
    assert served.main_pid() == before


def test_another_user_may_nothing(served: House) -> None:
    """Not even the server's own."""
    run = ["setpriv", "--reuid=_llama-server", "--regid=_llama-server", "--clear-groups"]
    denied = served.testbed.run(*run, "systemctl", "--no-ask-password", "restart", SERVER, check=False)
    assert "Access denied" in denied.stderr


def test_it_has_one_capability_and_no_more(house: House) -> None:
    house.fresh(CONFIG)
    house.wait_for(10, verdict="idle")
    status = house.testbed.run("cat", f"/proc/{house.main_pid(WATCHDOG)}/status").stdout
    assert house.show(WATCHDOG, "User") == USER
    assert re.search(r"(?m)^Uid:.*\b0\b", status) is None
    sets = {name: int(bits, 16) for name, bits in re.findall(r"(?m)^(Cap\w+):\s*(\w+)$", status)}
    assert sets["CapPrm"] == sets["CapEff"] == sets["CapBnd"] == CAP_NET_ADMIN
    assert sets["CapAmb"] == 0, "whatever it starts would inherit it"


def test_at_defaults_a_blocked_server_is_back_within_a_minute(house: House) -> None:
    """What it can't see of another user's process costs no time here: blocked (30 s), not unknown (2 min)."""
    house.fresh(f'[servers.chat]\nunit = "{SERVER}"\n')
    house.wait_for(10, verdict="idle")
    before = house.main_pid()
    house.wedge("block")
    wait_until(lambda: house.main_pid() not in (0, before), 60.0, "the server to be started again")
    wait_until(house.client.serves, 30.0, "the server to serve again")
    assert house.wait_for(1, verdict="wedged")["evidence"] == "blocked", house.story()


def test_a_command_of_the_admins_gets_none_of_its_rights(house: House) -> None:
    """What restart.command is given, that command says itself."""
    says = "grep CapEff /proc/self/status >&2; exit 1"
    house.fresh(f'{CONFIG}[servers.chat.restart]\nvia = "command"\ncommand = ["sh", "-c", "{says}"]\n')
    house.wait_for(10, verdict="idle")
    house.wedge("block")
    ran = house.wait_for(40, action="restart", outcome="failed")
    assert re.search(r"CapEff:0{16}$", ran["text"]), ran["text"]


def test_without_the_rule_it_says_what_is_missing(house: House) -> None:
    """An installation without polkit, or with another unit in the rule: seen, said, and nothing restarted."""
    rule = "/etc/polkit-1/rules.d/50-llama-watchdog.rules"
    text = house.testbed.run("cat", rule).stdout
    assert f'["{SERVER}"]' in text
    house.testbed.write(rule, text.replace(f'["{SERVER}"]', '["other.service"]'))
    try:
        wait_until(
            lambda: as_the_user(house, "reset-failed", SERVER).returncode, 10.0, "polkit to have read it"
        )
        house.fresh(CONFIG)
        house.wait_for(10, verdict="idle")
        before = house.main_pid()
        house.wedge("block")
        house.wait_for(20, verdict="wedged")
        tried = house.wait_for(20, outcome="unsupported", action="restart")
        assert "polkit rule" in tried["text"], house.story()
        assert house.main_pid() == before
    finally:
        house.testbed.write(rule, text)
        wait_until(
            lambda: not as_the_user(house, "reset-failed", SERVER).returncode, 10.0, "polkit to have read it"
        )


DROPINS = sorted(path.stem for path in (CHECKOUT / "systemd").glob("*.service.d/*.conf"))


@pytest.mark.parametrize("name", DROPINS)
def test_every_dropin_is_sound(house: House, name: str) -> None:
    """systemd understands every line of it."""
    house.install_dropin(name)
    try:
        verify = house.testbed.run("systemd-analyze", "verify", SERVER, WATCHDOG, check=False)
        assert verify.stdout + verify.stderr == ""
    finally:
        house.remove_dropins()


def test_the_users_unit_is_sound(house: House) -> None:
    """That for a user's own manager, with its program where the unit says."""
    folder = "/root/.config/systemd/user"
    house.testbed.copy(CHECKOUT / "systemd/user" / WATCHDOG, f"{folder}/{WATCHDOG}")
    house.testbed.run("mkdir", "-p", "/root/.local/share")
    house.testbed.run("ln", "-sfn", VENV, "/root/.local/share/llama-watchdog")
    users = ["env", "HOME=/root", "XDG_RUNTIME_DIR=/run", "systemd-analyze", "--user"]
    verify = house.testbed.run(*users, "verify", f"{folder}/{WATCHDOG}", check=False)
    assert verify.stdout + verify.stderr == ""


@pytest.mark.parametrize(("dropin", "limit"), [("", 2.5), ("stacks", 3.0)])
def test_the_sandbox_is_tight(house: House, dropin: str, limit: float) -> None:
    """No setting was lost unnoticed, as by a misspelling."""
    if dropin:
        house.install_dropin(dropin)
    try:
        security = house.testbed.run("systemd-analyze", "security", "--no-pager", WATCHDOG).stdout
        exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", security)
        assert exposure is not None
        assert float(exposure[1]) <= limit, security
    finally:
        if dropin:
            house.remove_dropins()


@pytest.mark.parametrize(("dropin", "seen"), [("", "missing"), ("stacks", "ok")])
def test_what_the_dropin_for_stacks_shows_of_the_server(house: House, dropin: str, seen: str) -> None:
    """Its reads, and its open files: as doctor says, with the rights that the drop-in gives."""
    house.testbed.write(CONFIG_FILE, CONFIG)
    house.start_server()
    rights = ["CAP_NET_ADMIN"]
    if dropin:
        text = (CHECKOUT / f"systemd/llama-watchdog.service.d/{dropin}.conf").read_text()
        rights += re.findall(r"(?m)^AmbientCapabilities=(.*)$", text)
    run = ["systemd-run", "--wait", "--pipe", "--quiet", f"--property=User={USER}"]
    run += [f"--property=AmbientCapabilities={' '.join(rights)}", COMMAND, "doctor", "--json"]
    said = house.testbed.run(*run, check=False, timeout=60).stdout.splitlines()
    found = {finding["check"]: finding["outcome"] for finding in map(json.loads, said)}
    assert (found["io"], found["fd"]) == (seen, seen), said
