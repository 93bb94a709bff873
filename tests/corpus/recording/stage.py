"""What a recording is played on: a real llama-server, and `llama-watchdog record` beside it.

Belongs here: starting and ending these, and when by the trace's own clock something happened. Needs root and
the tree of the end-to-end tests.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.e2e.ground.llama_client import LlamaClient
from tests.e2e.ground.llama_root import MODEL, llama_root
from tests.e2e.ground.real_server import RealServer, free_port
from tests.e2e.ground.waiting import wait_until
from tests.e2e.ground.watchdog import COMMAND, environment

ON_DISK = Path("/var/tmp")  # noqa: S108 - /tmp is often in memory, and can't be made slow
# $0: the tree, $1: a folder for /mnt. As the end-to-end tests enter it, but for the files of that folder.
_ENTER = """
set -e
mount --bind "$0" "$0"
mount -o remount,bind,ro "$0"
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
mount -t tmpfs tmpfs "$0/tmp"
mount --bind "$1" "$0/mnt"
shift
exec chroot "$0" "$@"
"""
_JOIN = 'for procs in $GROUPS_TO_JOIN; do echo $$ > "$procs"; done; exec "$@"'


class Recording:
    """A running `llama-watchdog record`, and its trace so far."""

    def __init__(self, process: subprocess.Popen[bytes], trace: Path) -> None:
        self.process = process
        self.trace = trace
        self.polls = 0
        self.last: dict[str, object] = {}
        self._zero: float | None = None
        self._ended = threading.Event()
        self._tail = threading.Thread(target=self._follow, daemon=True)
        self._tail.start()

    @property
    def now(self) -> float:
        """Seconds since the trace began: a line appears at its `at`, or later by what the answers took."""
        wait_until(lambda: self._zero is not None, 30.0, "the trace to begin")
        assert self._zero is not None
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self._zero

    def starve(self, seconds: float) -> None:
        """The watchdog does not get to run for so long."""
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=20)
        self._ended.set()
        self._tail.join(timeout=10)

    def _follow(self) -> None:
        while not self.trace.exists():
            if self.process.poll() is not None:
                return
            time.sleep(0.005)
        with self.trace.open() as file:
            line = ""
            while not self._ended.is_set():
                line += file.readline()
                if not line.endswith("\n"):
                    time.sleep(0.005)
                    continue
                fact, line = json.loads(line), ""
                if "at" in fact:
                    self.polls += 1
                    self.last = fact
                    zero = time.clock_gettime(time.CLOCK_BOOTTIME) - float(fact["at"])
                    self._zero = min(zero, zero if self._zero is None else self._zero)


class Stage:
    """One scene's server and recording. `marks`: when by the trace's clock what happened."""

    def __init__(
        self, name: str, folder: Path, *, interval: str, config: str = "", rights: bool = True
    ) -> None:
        self.name = name
        self.folder = folder
        self.port = free_port()
        self.marks: dict[str, float] = {}
        self.servers: list[RealServer] = []
        self._interval, self._config, self._rights = interval, config, rights
        self._recording: Recording | None = None

    @property
    def server(self) -> RealServer:
        """The latest."""
        return self.servers[-1]

    @property
    def client(self) -> LlamaClient:
        """A user of it."""
        return LlamaClient(self.port)

    @property
    def recording(self) -> Recording:
        """The watch."""
        assert self._recording is not None
        return self._recording

    def mark(self, what: str) -> None:
        """It happens now."""
        self.marks[what] = round(self.recording.now, 2)

    def launch(
        self,
        *options: str,
        groups: tuple[Path, ...] = (),
        model: str = MODEL,
        threads: int = 1,
        port: int | None = None,
    ) -> RealServer:
        """Start a server within these control groups, without waiting for its model."""
        port, mnt = port or self.port, self.folder / "mnt"
        mnt.mkdir(exist_ok=True)
        llama = ["llama-server", "--host", "127.0.0.1", "--port", str(port)]
        llama += ["--threads", str(threads), "--ctx-size", "4096", *options]
        llama += ["--model", model] if model else []
        command = ["sh", "-c", _JOIN, "sh", "setpriv", "--pdeathsig", "KILL"]
        command += ["unshare", "--mount", "--propagation", "private", "--"]
        command += ["sh", "-c", _ENTER, str(llama_root()), str(mnt), *llama]
        log = self.folder / "llama-server.log"
        joined = " ".join(str(group / "cgroup.procs") for group in groups)
        with log.open("ab") as sink:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env={**os.environ, "GROUPS_TO_JOIN": joined},
            )
        self.servers.append(RealServer(process, port, llama_root(), log))
        return self.server

    def start(self, *options: str, **more: object) -> RealServer:
        """Start a server, and wait until its model is loaded."""
        server = self.launch(*options, **more)  # type: ignore[arg-type]  # the same keywords
        wait_until(server.client.healthy, 120.0, f"{self.name}: the model to be loaded")
        return server

    def watch(self, polls: int = 2, port: int | None = None) -> None:
        """Begin to record, and wait for so many polls."""
        config, trace = self.folder / "config.toml", self.folder / "trace"
        config.write_text(
            f'[servers.default]\nurl = "http://127.0.0.1:{port or self.port}"\n'
            f'[servers.default.probe]\ninterval = "{self._interval}"\n{self._config}'
        )
        for name in ("state", "run", "config"):
            (self.folder / name).mkdir(exist_ok=True)
        command = [str(COMMAND), "record", "--config", str(config), "-o", str(trace)]
        if not self._rights:  # as an ordinary user: threads can be seen, reads and files of another can't
            command = ["setpriv", "--inh-caps=-all", "--bounding-set=-all", *command]
        with (self.folder / "record.log").open("wb") as sink:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env={**environment(self.folder), "HOME": str(self.folder)},
            )
        self._recording = Recording(process, trace)
        self.polls(polls)

    def polls(self, number: int) -> None:
        """Wait for so many more polls."""
        recording = self.recording
        enough = recording.polls + number

        def seen() -> bool:
            assert recording.process.poll() is None, (self.folder / "record.log").read_text()
            return recording.polls >= enough

        wait_until(seen, 600.0, f"{self.name}: {number} polls")

    def rest(self, seconds: float) -> None:
        """Let the watch go on for so long."""
        time.sleep(seconds)

    def end(self) -> None:
        """End all of it."""
        if self._recording is not None and self._recording.process.poll() is None:
            self._recording.end()
        for server in self.servers:
            with suppress(subprocess.TimeoutExpired):
                server.stop()

    def keep(self, target: Path) -> None:
        """Store the trace, compressed without the time of doing so."""
        with gzip.GzipFile(target, "wb", compresslevel=9, mtime=0) as file:
            file.write((self.folder / "trace").read_bytes())


@contextmanager
def stage(name: str, *, interval: str, config: str = "", rights: bool = True) -> Iterator[Stage]:
    """A stage in a folder of its own, cleared in the end whatever happened."""
    with tempfile.TemporaryDirectory(prefix=f"corpus-{name}-", dir=ON_DISK) as folder:
        played = Stage(name, Path(folder), interval=interval, config=config, rights=rights)
        try:
            yield played
        finally:
            played.end()
