"""What this benchmark needs of the machine, and what of it is missing."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator

from tests.benchmarks.peers.limits import FOLDERS, disk_of, has_controller

# Of each tool the Debian package that has it.
TOOLS = {
    "monit": "monit",
    "curl": "curl",
    "setpriv": "util-linux",
    "unshare": "util-linux",
    "ss": "iproute2",
    "mmdebstrap": "mmdebstrap",
}


def missing() -> Iterator[str]:
    """One line for each thing that is missing, with the remedy where there is one."""
    if platform.machine() != "x86_64" or sys.platform != "linux":
        yield "Linux on x86-64 is missing: the wedge is written in its machine code"
        return
    if os.geteuid() != 0:
        yield "root is missing: ptrace, mounts and control groups need it"
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            yield f"{tool} is missing: apt-get install --no-install-recommends {package}"
    for controller in ("cpu", "disk"):
        if not has_controller(controller):
            yield f"no control groups for the {controller}: mount them at /sys/fs/cgroup, of version 1 or 2"
    if disk_of(FOLDERS) is None:
        yield f"the file system of {FOLDERS} is on no disk of its own: its reads can't be slowed down"
