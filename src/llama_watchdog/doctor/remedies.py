"""The exact lines that give a right or a piece of evidence, each with where it belongs: `WHERE: LINE`.

Who is to get it is whoever runs this: as the service's user, the service.
"""

from __future__ import annotations

import json
import os
import pwd
import re
from collections.abc import Sequence
from pathlib import Path

from llama_watchdog.privileges import CAPABILITIES

RULES = "/etc/polkit-1/rules.d/50-llama-watchdog.rules"
POLKIT = Path("/usr/share/dbus-1/system-services/org.freedesktop.PolicyKit1.service")
VERBS = ("start", "restart", "kill", "reset-failed")  # all that systemd is ever asked for, as in systemd/
_CAP_SETS = re.compile(r"^(Cap\w+):\s*([0-9a-f]+)$", re.MULTILINE)


def user() -> str:
    """The name of the user that this runs as; its number where it has none."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def polkit(unit: str) -> str:
    """A rule by which this user may have systemd start, restart and signal one unit."""
    rule = (
        "polkit.addRule(function(action, subject) { "
        'if (action.id == "org.freedesktop.systemd1.manage-units" '
        f"&& subject.user == {json.dumps(user())} "
        f'&& action.lookup("unit") == {json.dumps(unit)} '
        f'&& {json.dumps(VERBS)}.indexOf(action.lookup("verb")) >= 0) return polkit.Result.YES; }});'
    )
    before = "" if POLKIT.exists() else "apt install polkitd; then "
    return f"{before}{RULES}: {rule}"


def capability(*names: str) -> str:
    """A line for our own unit, or for whoever starts our container. `names` as in CAPABILITIES."""
    upper = [f"CAP_{name.upper()}" for name in names]
    numbers = [1 << CAPABILITIES[name] for name in names]
    sets = _capability_sets()
    if all(sets.get("CapEff", 0) & number for number in numbers):
        return "not in a user namespace: PrivateUsers=no, or a container that is not rootless"
    if of_users_manager():
        return f"no user's manager can give {' '.join(upper)}: a unit of the system's, with User={user()}"
    if os.geteuid() == 0:
        return " ".join(["docker run", *(f"--cap-add={name}" for name in upper)])
    lines = [f"AmbientCapabilities={' '.join(upper)}"]
    if not all(sets.get("CapBnd", -1) & number for number in numbers):
        lines.append(f"CapabilityBoundingSet={' '.join(upper)}")
    return own_unit(*lines)


def own_unit(*lines: str) -> str:
    """Lines for the unit that runs us."""
    return f"{_own_unit()}, [Service]: {', '.join(lines)}"


def of_users_manager() -> bool:
    """Whether we are a unit of a user's own manager (`systemctl --user`).

    It has no capability to give: one that asks for any does not start (218/CAPABILITIES, systemd 262).
    """
    return os.geteuid() != 0 and "/user@" in _own_cgroup()


def key(server: str, *lines: str) -> str:
    """Lines for the configuration."""
    return f"config.toml, [servers.{server}]: {', '.join(lines)}"


def ladder(server: str, rungs: Sequence[str]) -> str:
    """The ladder in the configuration."""
    return f"config.toml, [servers.{server}.escalation]: ladder = {json.dumps(list(rungs))}"


def _own_unit() -> str:
    name = _own_cgroup().rpartition("/")[2]
    # What systemd-run makes is gone with this process, and a login's unit is not the daemon's.
    ours = name.endswith(".service") and not name.startswith(("run-", "user@"))
    return name if ours else "llama-watchdog.service"


def _own_cgroup() -> str:
    try:
        return Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _capability_sets() -> dict[str, int]:
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return {name: int(value, 16) for name, value in _CAP_SETS.findall(status)}
