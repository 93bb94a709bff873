"""Control groups, of both versions and the two side by side: who is in one, and whether it is frozen.

What belongs here is reading /proc/PID/cgroup and the mounted hierarchies.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_LIMIT = 1024 * 1024
_FROZEN = re.compile(r"^(frozen 1|FROZEN)$", re.MULTILINE)
_ESCAPED = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """One mounted hierarchy: `root` is the group that is seen at `point`. No controllers: version 2."""

    point: Path
    root: str
    controllers: frozenset[str]


def mounts(mountinfo: Path = Path("/proc/self/mountinfo")) -> list[Mount]:
    """Every cgroup hierarchy that is mounted here."""
    found = []
    with mountinfo.open(encoding="utf-8", errors="surrogateescape") as table:
        for line in table.read(_LIMIT).splitlines():
            before, _, after = line.partition(" - ")
            fields, kind = before.split(), after.split()
            if kind and kind[0] in ("cgroup", "cgroup2"):
                options = frozenset(kind[2].split(",")) if kind[0] == "cgroup" else frozenset()
                found.append(Mount(Path(_plain(fields[4])), _plain(fields[3]), options))
    return found


def memberships(text: bytes) -> dict[str, str]:
    """/proc/PID/cgroup: the group's path by controller, as ours sees it; "" is version 2."""
    groups = {}
    for line in text.decode(errors="surrogateescape").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            groups[controller] = path
    return groups


def inside(text: bytes, control_group: str) -> bool:
    """Whether a process with this /proc/PID/cgroup is in systemd's `control_group` or below it."""
    groups = memberships(text)
    paths = [groups[name] for name in ("", "name=systemd") if name in groups]
    return any(path == control_group or path.startswith(control_group.rstrip("/") + "/") for path in paths)


def frozen(text: bytes, hierarchies: list[Mount]) -> bool:
    """Whether a process with this /proc/PID/cgroup can't run since its group, or one above, is frozen."""
    groups = memberships(text)
    for mount in hierarchies:
        if not mount.controllers and "" in groups:
            state = _file(mount, groups[""], "cgroup.events")
        elif "freezer" in mount.controllers and "freezer" in groups:
            state = _file(mount, groups["freezer"], "freezer.state")
        else:
            continue
        if _FROZEN.search(state):
            return True
    return False


def _file(mount: Mount, group: str, name: str) -> str:
    """A file of a group, "" where it isn't seen through this mount."""
    root = mount.root.rstrip("/")
    if group != root and not group.startswith(root + "/"):
        return ""
    try:
        with (mount.point / group.removeprefix(root).lstrip("/") / name).open(encoding="utf-8") as file:
            return file.read(4096)
    except OSError:
        return ""


def _plain(path: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), path)
