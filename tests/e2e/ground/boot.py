"""The inside of the testbed until systemd takes over: `boot.py SPEC`, as PID 1 of new namespaces.

Belongs here: what the booting systemd finds as its world, and the refusal to boot where anything of this
machine could be written from there. `testbed.py` is the outside. All mounts happen in a mount namespace of
its own that was made private before this starts.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import stat
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

SYSTEMD = "/usr/lib/systemd/systemd"
TARGET = "testbed.target"
# Units of the tree that belong to a real machine: hardware, clocks, consoles, the cleaning of folders.
MASKED = """
systemd-binfmt.service systemd-firstboot.service systemd-hwdb-update.service systemd-logind.service
systemd-machine-id-commit.service systemd-modules-load.service systemd-networkd.service systemd-pstore.service
systemd-random-seed.service systemd-repart.service systemd-resolved.service systemd-sysctl.service
systemd-sysusers.service systemd-timesyncd.service systemd-tmpfiles-clean.service systemd-tmpfiles-clean.timer
systemd-tmpfiles-setup.service systemd-tmpfiles-setup-dev.service systemd-tmpfiles-setup-dev-early.service
systemd-udevd.service systemd-udev-trigger.service systemd-update-utmp.service systemd-journald-audit.socket
ldconfig.service console-getty.service getty.target tmp.mount dev-hugepages.mount dev-mqueue.mount
proc-sys-fs-binfmt_misc.automount sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount
sys-fs-fuse-connections.mount
"""
# The journal is in memory and not rate-limited: tests read it with journalctl.
JOURNALD = """[Journal]
Storage=volatile
RateLimitIntervalSec=0
ForwardToConsole=no
ForwardToWall=no
ForwardToKMsg=no
ReadKMsg=no
Audit=no
"""
# No disks, no /dev/kmsg, no terminal: nothing gets to this machine's console.
DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
# File systems that exist for the testbed alone, or show only what its namespaces show.
OWN = {"overlay", "tmpfs", "proc", "sysfs", "cgroup2", "devpts", "mqueue"}
# Capabilities by which the inside could change this machine: CAP_SYS_MODULE, CAP_SYS_RAWIO, CAP_SYS_TIME.
DROPPED = (16, 17, 25)

_CLONE_NEWNS, _CLONE_NEWCGROUP, _MNT_DETACH, _PR_CAPBSET_DROP = 0x00020000, 0x02000000, 2, 24
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Spec:
    """What the outside tells: layers for the root, the testbed's cgroup, an empty folder to mount on."""

    layers: tuple[str, ...]
    cgroup: str
    mount: str

    def to_json(self) -> str:
        """For the command line of `boot.py`."""
        return json.dumps(asdict(self))


def boot(spec: Spec) -> None:
    """Build the root, change into it, check it, and become systemd. Does not return."""
    if os.getpid() != 1:
        raise SystemExit("only for PID 1 of a new PID namespace")
    # PID 1 joins the cgroup itself, so that the waiting `unshare` stays outside of it.
    Path(spec.cgroup, "cgroup.procs").write_text("0")
    _check(_libc.unshare(_CLONE_NEWCGROUP))
    root = _overlay(spec)
    _api_file_systems(root)
    _devices(root)
    _units(root)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    os.chdir(root)
    subprocess.run(["pivot_root", ".", "run/oldroot"], check=True)
    os.chdir("/")
    _check(_libc.umount2(b"/run/oldroot", _MNT_DETACH))
    # Started within a chroot, only that one was changed: the root of the mount namespace is then still this
    # machine's, and whoever enters the namespace gets there. Entering it anew shows its true root.
    with Path("/proc/self/ns/mnt").open() as namespace:
        _check(_libc.setns(namespace.fileno(), _CLONE_NEWNS))
    refuse_shared(Path("/proc/self/mountinfo").read_text())
    for capability in DROPPED:
        _check(_libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0))
    _become_systemd()


def refuse_shared(mountinfo: str) -> None:
    """The last check before anything runs: / is the overlay, and nothing of this machine can be written."""
    root = None
    for line in mountinfo.splitlines():
        fields, _, tail = line.partition(" - ")
        mount, options, kind = fields.split()[4], fields.split()[5].split(","), tail.split()[0]
        if mount == "/":
            root = kind
        if kind not in OWN and "rw" in options:
            raise SystemExit(f"refusing to boot: {mount} ({kind}) is writable from inside")
    if root != "overlay":
        raise SystemExit(f"refusing to boot: / is {root}, not the overlay")


def _overlay(spec: Spec) -> Path:
    top = Path(spec.mount)
    _mount("tmpfs", top, "mode=755,size=50%")
    upper, work, root = top / "upper", top / "work", top / "root"
    for folder in (upper, work, root):
        folder.mkdir()
    _mount("overlay", root, f"lowerdir={':'.join(spec.layers)},upperdir={upper},workdir={work}")
    return root


def _api_file_systems(root: Path) -> None:
    """As a container manager sets them up. /sys and /proc/sys read-only: by that systemd leaves udev,
    sysctl and kernel modules alone."""
    _mount("proc", root / "proc", "nosuid,nodev,noexec")
    sysctl = str(root / "proc/sys")
    subprocess.run(["mount", "--bind", sysctl, sysctl], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", sysctl], check=True)
    _mount("sysfs", root / "sys", "ro,nosuid,nodev,noexec")
    _mount("cgroup2", root / "sys/fs/cgroup", "rw,nosuid,nodev,noexec")
    _mount("tmpfs", root / "run", "mode=755,nosuid,nodev")
    for folder in ("run/lock", "run/systemd", "run/testbed-generators", "run/oldroot"):
        (root / folder).mkdir()


def _devices(root: Path) -> None:
    """Nodes of its own, so that a chmod or chown inside stays inside."""
    dev = root / "dev"
    _mount("tmpfs", dev, "mode=755,nosuid,strictatime")
    for name, (major, minor) in DEVICES.items():
        os.mknod(dev / name, stat.S_IFCHR | 0o666, os.makedev(major, minor))
        (dev / name).chmod(0o666)  # whatever the umask
    os.mknod(dev / "console", stat.S_IFCHR | 0o600, os.makedev(*DEVICES["null"]))
    for name in ("sysrq-trigger", "kcore"):
        if (root / "proc" / name).exists():
            subprocess.run(["mount", "--bind", str(dev / "null"), str(root / "proc" / name)], check=True)
    for folder in ("pts", "shm", "mqueue"):
        (dev / folder).mkdir()
    _mount("devpts", dev / "pts", "newinstance,ptmxmode=0666,mode=620,gid=5")
    _mount("tmpfs", dev / "shm", "mode=1777,nosuid,nodev")
    _mount("mqueue", dev / "mqueue", "rw")
    links = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
    for name, target in links.items():
        (dev / name).symlink_to(target)


def _units(root: Path) -> None:
    """An empty folder of units hides what the tree's packages enabled; only D-Bus is started."""
    folder = root / "etc/systemd/system"
    _mount("tmpfs", folder, "mode=755")
    for name in MASKED.split():
        (folder / name).symlink_to("/dev/null")
    wants = folder / f"{TARGET}.wants"
    wants.mkdir()
    (wants / "dbus.service").symlink_to("/usr/lib/systemd/system/dbus.service")
    (folder / TARGET).write_text("[Unit]\nRequires=basic.target\nAfter=basic.target\nAllowIsolate=yes\n")
    config = root / "run/systemd/journald.conf.d"
    config.mkdir()
    (config / "testbed.conf").write_text(JOURNALD)


def _become_systemd() -> None:
    quiet = os.open("/dev/null", os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(quiet, standard)
    environment = {
        "container": "llama-watchdog-testbed",  # tells systemd that it runs in a container
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin",
        "LANG": "C.UTF-8",
        "SYSTEMD_GENERATOR_PATH": "/run/testbed-generators",
    }
    options = ["--system", f"--unit={TARGET}", "--log-target=journal", "--show-status=no"]
    os.execve(SYSTEMD, [SYSTEMD, *options], environment)  # noqa: S606  no shell is wanted here


def _mount(kind: str, where: Path, options: str) -> None:
    subprocess.run(["mount", "-t", kind, "-o", options, kind, str(where)], check=True)


def _check(result: int) -> None:
    if result == -1:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


if __name__ == "__main__":
    for tool in ("mount", "pivot_root", "ip"):
        if shutil.which(tool) is None:
            raise SystemExit(f"{tool} is missing: apt-get install util-linux iproute2")
    boot(Spec(**json.loads(sys.argv[1])))
