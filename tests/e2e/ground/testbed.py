"""A real systemd, PID 1 of its own namespaces, on a machine whose own PID 1 need not be systemd.

Belongs here: booting it, running commands in it, ending it. Its root is an overlay of the cached tree and a
tmpfs, its network has a loopback interface only, and its cgroup is a cgroup2 folder made for it, the
root of its cgroup namespace: it can neither see nor change anything of this machine, and whatever is
installed, written or deleted inside is gone after `down`. Nothing is ever shared with it.

Needs root (and not that of a chroot), and cgroup2 and overlay in the kernel. Where the machine's controllers
are bound to cgroup v1 (hybrid), the inside has cgroup2 without controllers: MemoryMax= does nothing there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.e2e.ground import boot
from tests.e2e.ground.waiting import wait_until

_PREFIX = "llama-watchdog-e2e."
# What nsenter is given, from /proc/PID of PID 1. The root too: nobody may land in another one.
_ENTER = {
    "mount": "ns/mnt",
    "uts": "ns/uts",
    "ipc": "ns/ipc",
    "net": "ns/net",
    "pid": "ns/pid",
    "cgroup": "ns/cgroup",
    "root": "root",
}


class Testbed:
    """`with Testbed(layer, tree) as testbed: testbed.run("systemctl", "status")`. One boot a life."""

    __test__ = False  # no test class, though its name begins like one

    def __init__(self, *layers: Path) -> None:
        """`layers`: the folders that make up the root, the uppermost first. They are only ever read."""
        self._layers = layers
        self._state = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._log = self._state / "boot.log"
        self._hierarchy = _cgroup2()
        self.cgroup = self._hierarchy / f"{_PREFIX}{os.getpid()}.{self._state.name.removeprefix(_PREFIX)}"
        self._outer: subprocess.Popen[bytes] | None = None
        self._namespaces: dict[str, int] = {}

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def up(self, timeout: float = 30.0) -> None:
        """Boot, and wait until systemd is running. RuntimeError with the log where it does not come up."""
        _sweep(self._hierarchy)
        self.cgroup.mkdir()
        mount = self._state / "mount"
        mount.mkdir()
        spec = boot.Spec(layers=tuple(map(str, self._layers)), cgroup=str(self.cgroup), mount=str(mount))
        # pdeathsig: when the tests die, whatever the reason, `unshare` dies, its child is killed with it,
        # and the kernel ends the whole PID namespace.
        command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private"]
        command += ["--pid", "--fork", "--kill-child=KILL", "--uts", "--ipc", "--net", "--"]
        command += [sys.executable, boot.__file__, spec.to_json()]
        with self._log.open("wb") as log:
            self._outer = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        try:
            pid = wait_until(self._booted, timeout, "PID 1 to become systemd")
            # Held open, they cannot be mistaken later for those of another process with the same pid.
            for option, path in _ENTER.items():
                self._namespaces[option] = os.open(f"/proc/{pid}/{path}", os.O_RDONLY)
            # Still the same child: so what was opened belongs to it, and not to a successor of its pid.
            wait_until(lambda: self._booted() == pid, 0.0, "PID 1 to be there still")
            wait_until(self._running, timeout, "systemd to finish its boot")
        except BaseException as error:
            said = self._log.read_text(errors="replace")
            self.down()
            raise RuntimeError(f"the testbed did not come up: {error}\n{said}") from error

    def down(self) -> None:
        """End it and everything in it, by SIGKILL; well under a second. Harmless when it is not up."""
        for descriptor in self._namespaces.values():
            os.close(descriptor)
        self._namespaces.clear()
        if self._outer is not None:
            self._outer.kill()
            self._outer.wait(timeout=10)
        _end_cgroup(self.cgroup)
        shutil.rmtree(self._state, ignore_errors=True)

    @property
    def network(self) -> int:
        """A file descriptor of its network namespace."""
        return self._namespaces["net"]

    @property
    def namespaces(self) -> tuple[int, ...]:
        """The file descriptors that a process started by `command` must be given (`pass_fds`)."""
        return tuple(self._namespaces.values())

    def run(
        self, *command: str, stdin: str | None = None, timeout: float = 30.0, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside as root, in /. CalledProcessError, with what it said, where it fails."""
        result = subprocess.run(
            self.command(*command),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            pass_fds=self.namespaces,
            env={"PATH": "/usr/sbin:/usr/bin", "LANG": "C.UTF-8", "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0"},
        )
        if check and result.returncode:
            raise RuntimeError(f"{command} ended with {result.returncode}:\n{result.stdout}{result.stderr}")
        return result

    def command(self, *command: str) -> list[str]:
        """What to start, with `namespaces` passed on, to run `command` inside, in the testbed's cgroup."""
        if not self._namespaces:
            raise RuntimeError(
                "the testbed is not up"
            )  # and nsenter without any would run it on this machine
        cgroup = self.cgroup / "commands"
        cgroup.mkdir(exist_ok=True)
        enter = [f"--{option}=/proc/self/fd/{fd}" for option, fd in self._namespaces.items()]
        # env -C after nsenter, not --wd: that one is opened before it enters, and would be a folder outside.
        join = ["sh", "-c", 'echo 0 >"$0" && exec "$@"', str(cgroup / "cgroup.procs")]
        return [*join, "nsenter", *enter, "--", "env", "-C", "/", *command]

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Write a file inside, its folder with it."""
        script = 'mkdir -p "$(dirname "$1")" && cat >"$1" && chmod "$2" "$1"'
        self.run("sh", "-c", script, "sh", path, f"{mode:o}", stdin=text)

    def copy(self, source: Path, path: str) -> None:
        """Copy a file of this machine inside."""
        target = ["sh", "-c", 'mkdir -p "$(dirname "$1")" && cat >"$1"', "sh", path]
        with source.open("rb") as file:
            subprocess.run(
                self.command(*target),
                stdin=file,
                check=True,
                timeout=60,
                pass_fds=self.namespaces,
            )

    def _booted(self) -> int | None:
        assert self._outer is not None
        if self._outer.poll() is not None:
            raise RuntimeError(f"it ended with {self._outer.returncode}")
        outer = self._outer.pid
        with suppress(OSError):
            children = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
            if children and Path(f"/proc/{children[0]}/comm").read_text() == "systemd\n":
                return int(children[0])
        return None

    def _running(self) -> bool:
        state = self.run("systemctl", "is-system-running", check=False).stdout.strip()
        if state == "degraded":
            raise RuntimeError(
                "failed: " + self.run("systemctl", "--failed", "--plain", "--no-legend").stdout
            )
        return state == "running"


def _cgroup2() -> Path:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(mount)
    raise RuntimeError("no cgroup2 is mounted on this machine: mount -t cgroup2 cgroup2 SOMEWHERE")


def _sweep(hierarchy: Path) -> None:
    """End what test runs left that are no longer there: their pid is the first part of the name."""
    for cgroup in hierarchy.glob(f"{_PREFIX}*"):
        if not Path("/proc", cgroup.name.removeprefix(_PREFIX).split(".")[0]).exists():
            _end_cgroup(cgroup)


def _end_cgroup(cgroup: Path) -> None:
    if not cgroup.is_dir():
        return
    (cgroup / "cgroup.kill").write_text("1")
    events = cgroup / "cgroup.events"
    wait_until(lambda: "populated 0" in events.read_text(), 10.0, f"{cgroup} to be empty")
    for folder, _, _ in os.walk(cgroup, topdown=False):
        Path(folder).rmdir()
