"""Making the real server slow from outside: by control groups, of version 1 or 2, whichever is there."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from tests.e2e.ground.waiting import wait_until

GROUPS = Path("/sys/fs/cgroup")
FOLDERS = Path("/var/tmp")  # noqa: S108 - private folders in there; /tmp is often in memory, and can't be made slow
_PERIOD = 100_000  # microseconds; the kernel's default
_OF_VERSION_1 = {"cpu": "cpu", "disk": "blkio"}
_OF_VERSION_2 = {"cpu": "cpu", "disk": "io"}


def share_of_a_core(share: float) -> AbstractContextManager[Path]:
    """A group whose processes together get that share of one core."""
    quota = int(share * _PERIOD)
    if _first_version("cpu"):
        return _group("cpu", {"cpu.cfs_period_us": f"{_PERIOD}", "cpu.cfs_quota_us": f"{quota}"})
    return _group("", {"cpu.max": f"{quota} {_PERIOD}"})


def slow_disk(rate: int) -> AbstractContextManager[Path]:
    """A group whose processes read `rate` bytes a second from the disk of `FOLDERS`."""
    disk = disk_of(FOLDERS)
    if _first_version("disk"):
        return _group("blkio", {"blkio.throttle.read_bps_device": f"{disk} {rate}"})
    return _group("", {"io.max": f"{disk} rbps={rate}"})


@contextmanager
def _group(hierarchy: str, settings: dict[str, str]) -> Iterator[Path]:
    """A group of our own, to join by its `cgroup.procs`; removed in the end, and who is in it let go."""
    parent = GROUPS / hierarchy
    group = parent / f"llama-watchdog-peers.{os.getpid()}.{time.monotonic_ns()}"
    group.mkdir()
    try:
        for name, value in settings.items():
            (group / name).write_text(value)
        yield group
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (parent / "cgroup.procs").write_text(pid)
        wait_until(lambda: not (group / "cgroup.procs").read_text(), 10.0, "the group to be empty")
        group.rmdir()


def has_controller(name: str) -> bool:
    """Whether groups can limit the `cpu` or the `disk` here. Version 2 lends it to groups below the root."""
    if _first_version(name):
        return True
    try:
        lent = (GROUPS / "cgroup.subtree_control").read_text().split()
    except OSError:
        return False
    return _OF_VERSION_2[name] in lent


def disk_of(folder: Path) -> str | None:
    """The whole disk that a folder is on, as `major:minor`: a partition can't be throttled."""
    number = folder.stat().st_dev
    device = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not device.exists():
        return None
    disk = device.resolve()
    return ((disk.parent if (disk / "partition").exists() else disk) / "dev").read_text().strip()


def _first_version(name: str) -> bool:
    return (GROUPS / _OF_VERSION_1[name]).is_dir()
