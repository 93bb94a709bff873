"""A container engine of the tests' own: Podman with a socket, all of it gone after `down`.

Belongs here: starting it, running commands of it, and simulated llama-servers in containers. It lives in a
mount and a cgroup namespace of its own, its storage and its /run below one folder; pids and network are this
machine's, so that a watchdog outside sees a container's server as any other here, as it does where containers
use the host's network.

Needs root, and Debian's packages `podman` and `crun`. Without CAP_SYS_RESOURCE crun 1.8.1 starts nothing that
has a cgroup (measured), so containers get none of their own here, and `podman pause` can't be tried.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.e2e.ground.package import CHECKOUT, VENV
from tests.e2e.ground.real_server import free_port
from tests.e2e.ground.waiting import wait_until

_PREFIX = "llama-watchdog-e2e."  # a cgroup of this name whose pid is gone is swept by the next testbed
# $0: the cgroup, $1: the folder of everything. Pid files and locks go to a /run that ends with the namespace.
_SERVE = """
set -e
echo 0 >"$0/cgroup.procs"
folder=$1; shift
exec setpriv --pdeathsig KILL unshare --mount --cgroup --propagation private -- sh -ec '
    umount --recursive /sys/fs/cgroup || true
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    mount -t tmpfs tmpfs /run
    mount -t tmpfs tmpfs "$0/roots"
    exec "$@"' "$folder" "$@"
"""
_JOIN = 'echo 0 >"$0/cgroup.procs" && exec "$@"'
# $1: the root's name; the rest of its layers are read-only.
_ROOT = """
mkdir -p "$0/$1/upper" "$0/$1/work" "$0/$1/root"
mount -t overlay overlay -o "lowerdir=$2,upperdir=$0/$1/upper,workdir=$0/$1/work" "$0/$1/root"
"""


class Podman:
    """`with Podman(layer, tree) as podman: podman.serve("chat")`."""

    def __init__(self, *layers: Path) -> None:
        """`layers`: the folders that make up a container's root, the uppermost first; only ever read."""
        self._state = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._layers = (self._state / "code", *layers)
        self.socket = self._state / "podman.sock"
        self._log = self._state / "service.log"
        self._cgroup = _cgroup2() / f"{_PREFIX}{os.getpid()}.{self._state.name.removeprefix(_PREFIX)}"
        self._service: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def up(self) -> None:
        """Start the service. RuntimeError with its log where it does not answer."""
        for name in ("roots", "storage", "code/opt/src"):
            (self._state / name).mkdir(parents=True)
        shutil.copytree(CHECKOUT / "src/llama_watchdog", self._state / "code/opt/src/llama_watchdog")
        (self._state / "containers.conf").write_text(_settings())
        self._cgroup.mkdir()
        command = self._podman("system", "service", "--time=0", f"unix://{self.socket}")
        with self._log.open("wb") as log:
            self._service = subprocess.Popen(
                ["sh", "-c", _SERVE, str(self._cgroup), str(self._state), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(),
            )
        service = self._service

        def ready() -> bool:
            return self.socket.is_socket() or service.poll() is not None

        wait_until(ready, 20.0, "Podman's socket")
        if service.poll() is not None:
            raise RuntimeError(f"Podman ended: {self._log.read_text(errors='replace')}")

    def down(self) -> None:
        """End it and all of its containers, by SIGKILL. Harmless when it is not up."""
        if self._cgroup.is_dir():
            (self._cgroup / "cgroup.kill").write_text("1")
            events = self._cgroup / "cgroup.events"
            wait_until(lambda: "populated 0" in events.read_text(), 10.0, f"{self._cgroup} to be empty")
            for folder, _, _ in os.walk(self._cgroup, topdown=False):
                Path(folder).rmdir()
        if self._service is not None:
            self._service.wait(timeout=10)
        shutil.rmtree(self._state, ignore_errors=True)

    def run(self, *command: str, timeout: float = 60.0, check: bool = True) -> str:
        """`podman COMMAND`, as a person here would; what it printed. RuntimeError where it fails."""
        return self._inside(*self._podman(*command), timeout=timeout, check=check)

    def inspect(self, name: str) -> dict[str, Any]:
        """The State of a container."""
        found: dict[str, Any] = json.loads(self.run("inspect", "--format", "{{json .State}}", name))
        return found

    def serve(self, name: str, *flags: str, restart: str = "no", port: int | None = None) -> Server:
        """Run a simulated llama-server in a container of that name, and wait until it serves.

        It is named so to /proc; `flags` are the simulator's, `restart` is the engine's policy.
        """
        port = port or free_port()
        roots = self._state / "roots"
        layers = ":".join(map(str, self._layers))
        self._inside("sh", "-ec", _ROOT, str(roots), name, layers)
        options = ["--name", name, "--restart", restart, "--env", "PYTHONPATH=/opt/src"]
        program = [f"{VENV}/bin/python", "-m", "llama_watchdog.simulator", "--port", str(port), *flags]
        self.run("run", "--detach", *options, "--rootfs", f"{roots}/{name}/root", *program)
        server = Server(self, name, port)
        try:
            wait_until(server.serves, 20.0, "the simulator to serve")
        except TimeoutError as error:
            raise RuntimeError(f"{error}: {self.run('logs', name, check=False)}") from None
        return server

    def remove(self, name: str) -> None:
        """End and forget a container."""
        self.run("rm", "--force", "--time", "0", name, check=False)

    def _podman(self, *command: str) -> list[str]:
        storage = ["--root", f"{self._state}/storage", "--runroot", "/run/storage", "--storage-driver", "vfs"]
        return ["podman", *storage, *command]

    def _inside(self, *command: str, timeout: float = 60.0, check: bool = True) -> str:
        assert self._service is not None, "Podman is not up"
        enter = ["nsenter", f"--target={self._service.pid}", "--mount", "--cgroup", "--", *command]
        result = subprocess.run(
            ["sh", "-c", _JOIN, str(self._cgroup), *enter],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env=self._environment(),
        )
        if check and result.returncode:
            raise RuntimeError(f"{command} ended with {result.returncode}:\n{result.stdout}{result.stderr}")
        return result.stdout

    def _environment(self) -> dict[str, str]:
        settings = str(self._state / "containers.conf")
        return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "CONTAINERS_CONF": settings}


@dataclass(frozen=True, slots=True)
class Server:
    """A simulated llama-server in a container."""

    podman: Podman
    name: str
    port: int

    @property
    def url(self) -> str:
        """Where it listens, also for those outside."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of the container's first process, which is the server; 0 while it does not run."""
        return int(self.podman.inspect(self.name)["Pid"])

    @property
    def started(self) -> str:
        """When the engine last started it: another value is another incarnation."""
        return str(self.podman.inspect(self.name)["StartedAt"])

    @property
    def status(self) -> str:
        """Such as running, exited."""
        return str(self.podman.inspect(self.name)["Status"])

    def serves(self) -> bool:
        """Whether its main loop answers."""
        try:
            with urllib.request.urlopen(f"{self.url}/slots", timeout=1.0) as answer:  # noqa: S310 - http
                return bool(answer.status == 200)
        except OSError:
            return False

    def strike(self, fault: str) -> None:
        """Make one of the simulator's faults begin."""
        body = json.dumps({"fault": fault}).encode()
        request = urllib.request.Request(  # noqa: S310 - an http url, of ours
            f"{self.url}/simulator/fault", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=5.0):  # noqa: S310 - as above
            pass


def _settings() -> str:
    files = min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1] % (1 << 63))
    return f"""
[containers]
cgroups = "disabled"
netns = "host"
log_driver = "k8s-file"
default_ulimits = ["nofile={files}:{files}", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "crun"
"""


def _cgroup2() -> Path:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(mount)
    raise RuntimeError("no cgroup2 is mounted on this machine: mount -t cgroup2 cgroup2 SOMEWHERE")
