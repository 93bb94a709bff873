"""Control groups in every layout that systems mount."""

from __future__ import annotations

from pathlib import Path

import pytest

from llama_watchdog.probes import cgroups
from llama_watchdog.probes.cgroups import Mount

UNIFIED = b"0::/system.slice/llama-server.service\n"
HYBRID = b"5:freezer:/\n1:name=systemd:/system.slice/llama-server.service\n0::/\n"


@pytest.mark.parametrize("text", [UNIFIED, HYBRID])
@pytest.mark.parametrize(
    ("group", "inside"),
    [
        ("/system.slice/llama-server.service", True),
        ("/system.slice", True),
        ("/system.slice/llama-server.service/child", False),
        ("/system.slice/llama-server.serv", False),
        ("/system.slice/other.service", False),
    ],
)
def test_who_is_inside(text: bytes, group: str, inside: bool) -> None:
    assert cgroups.inside(text, group) is inside


def test_a_group_below_the_units_is_inside() -> None:
    text = b"0::/user.slice/user@1000.service/app.slice/llama.service/workers\n"
    assert cgroups.inside(text, "/user.slice/user@1000.service/app.slice/llama.service")


def group(point: Path, path: str, name: str, content: str) -> None:
    folder = point / path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(content)


@pytest.mark.parametrize(("state", "frozen"), [("1", True), ("0", False)])
def test_version_2(state: str, frozen: bool, tmp_path: Path) -> None:
    group(tmp_path, "system.slice/llama-server.service", "cgroup.events", f"populated 1\nfrozen {state}\n")
    assert cgroups.frozen(UNIFIED, [Mount(tmp_path, "/", frozenset())]) is frozen


@pytest.mark.parametrize(("state", "frozen"), [("FROZEN", True), ("THAWED", False), ("FREEZING", False)])
def test_version_1(state: str, frozen: bool, tmp_path: Path) -> None:
    group(tmp_path, "docker/abc", "freezer.state", f"{state}\n")
    mounts = [
        Mount(tmp_path / "no", "/", frozenset({"cpu"})),
        Mount(tmp_path, "/", frozenset({"rw", "freezer"})),
    ]
    assert cgroups.frozen(b"7:freezer:/docker/abc\n6:cpu,cpuacct:/docker/abc\n0::/\n", mounts) is frozen


def test_a_mount_that_shows_only_a_part_of_the_tree(tmp_path: Path) -> None:
    """As in a container: its own group is what it sees at the mount point."""
    group(tmp_path, "llama", "cgroup.events", "frozen 1\n")
    mounts = [Mount(tmp_path, "/docker/abc", frozenset())]
    assert cgroups.frozen(b"0::/docker/abc/llama\n", mounts)
    assert not cgroups.frozen(b"0::/docker/other/llama\n", mounts)


def test_where_nothing_is_mounted_nothing_is_frozen() -> None:
    assert not cgroups.frozen(UNIFIED, [])


def test_the_mounts(tmp_path: Path) -> None:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(
        "22 28 0:21 / /proc rw,relatime shared:12 - proc proc rw\n"
        "35 28 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
        "36 28 0:31 /docker/abc /my\\040cgroup ro shared:10 - cgroup cgroup rw,freezer\n"
    )
    assert cgroups.mounts(mountinfo) == [
        Mount(Path("/sys/fs/cgroup"), "/", frozenset()),
        Mount(Path("/my cgroup"), "/docker/abc", frozenset({"rw", "freezer"})),
    ]
