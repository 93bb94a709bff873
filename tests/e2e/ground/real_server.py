"""The real llama-server on this machine, from the cached tree, without a trace left behind.

Belongs here: starting and ending it. It runs in a mount namespace of its own, its root the tree, read-only;
pids and network are this machine's, so that a watchdog outside sees it as any other server here.
"""

from __future__ import annotations

import os
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.e2e.ground import wedge
from tests.e2e.ground.llama_client import LlamaClient
from tests.e2e.ground.llama_root import MODEL
from tests.e2e.ground.waiting import wait_until

# $0: the tree. Mounted read-only, with what a program expects of /proc, /dev and /tmp.
_ENTER = """
set -e
mount --bind "$0" "$0"
mount -o remount,bind,ro "$0"
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
mount -t tmpfs tmpfs "$0/tmp"
exec chroot "$0" "$@"
"""


@dataclass
class RealServer:
    """A running llama-server. `pid` is its own, as this machine sees it."""

    process: subprocess.Popen[bytes]
    port: int
    root: Path
    log: Path

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The server's pid: `unshare` and the shell have become it by exec."""
        return self.process.pid

    @property
    def client(self) -> LlamaClient:
        """A user of it."""
        return LlamaClient(self.port)

    @property
    def start_ticks(self) -> int:
        """Field 22 of /proc/PID/stat: with the pid, the identity of this incarnation."""
        return int(Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[19])

    def alive(self) -> bool:
        """Whether it has not ended. Reaps it where it has."""
        return self.process.poll() is None

    def wedge(self, mode: str, within: str = "") -> None:
        """Wedge its main loop for real: `block` or `spin`; a decoding one is best wedged within `DECODE`."""
        wedge.wedge(self.pid, mode, within)

    def stop(self) -> None:
        """End it, by SIGKILL: it may be wedged."""
        self.process.kill()
        self.process.wait(timeout=10)


class StartServer(Protocol):
    """What the fixture `server_factory` yields: `start_server` with the tree and the log given."""

    def __call__(
        self, *options: str, port: int | None = None, env: dict[str, str] | None = None
    ) -> RealServer:
        """Start one more, with these options of llama-server's."""


def start_server(
    tree: Path, log: Path, *options: str, port: int | None = None, env: dict[str, str] | None = None
) -> RealServer:
    """Start it with the small model on a free port of loopback, and wait until the model is loaded.

    RuntimeError with the end of its log where it does not come up.
    """
    port = port or free_port()
    llama = ["llama-server", "--model", MODEL, "--host", "127.0.0.1", "--port", str(port)]
    llama += ["--threads", "1", "--ctx-size", "4096", *options]
    # pdeathsig: when the tests die, so does the server.
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private", "--"]
    command += ["sh", "-c", _ENTER, str(tree), *llama]
    with log.open("ab") as sink:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env={**os.environ, **(env or {})}
        )
    server = RealServer(process, port, tree, log)
    try:
        wait_until(lambda: not server.alive() or server.client.healthy(), 60.0, "the model to be loaded")
    except TimeoutError:
        server.stop()
    if not server.alive():
        raise RuntimeError(f"llama-server did not start:\n{log.read_text(errors='replace')[-2000:]}")
    return server


def free_port() -> int:
    """A port of loopback that nothing listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
