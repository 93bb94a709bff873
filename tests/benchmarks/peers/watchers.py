"""The peers, each as people set it up: every 5 s, a timeout of 5 s, three failures in a row.

Belongs here: starting each beside the others on one server, and what it would have done. An action of monit
or of the shell script writes the time to a file; llama-watchdog runs with `--dry-run`, at its full defaults.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.e2e.ground.watchdog import Watchdog, running

OURS = "llama-watchdog"
NAMES = (OURS, "monit /slots", "monit /health", "curl /slots", "curl /health")

# In the foreground, everything it writes in a folder of its own.
_MONIT = """
set daemon 5
set pidfile {folder}/pid
set idfile {folder}/id
set statefile {folder}/state
set logfile {folder}/log
check host health with address 127.0.0.1
  if failed port {port} protocol http request "/health" with timeout 5 seconds for 3 cycles
  then exec "/bin/sh -c 'date +%s >>{folder}/health'"
check host slots with address 127.0.0.1
  if failed port {port} protocol http request "/slots" with timeout 5 seconds for 3 cycles
  then exec "/bin/sh -c 'date +%s >>{folder}/slots'"
"""

# $0: what to ask, $1: where to write the time.
_CURL_LOOP = """
failed=0
while sleep 5; do
    if curl -sf -m 5 -o /dev/null "$0"; then failed=0; else failed=$((failed + 1)); fi
    if [ "$failed" -eq 3 ]; then date +%s >>"$1"; failed=0; fi
done
"""


class Watcher(Protocol):
    """One of those that watch: what it is called, and what it did first, if anything."""

    name: str

    def did(self) -> str | None:
        """Its first action in words; `None` as long as there was none."""


@dataclass
class Ours:
    """llama-watchdog, by its own events."""

    watchdog: Watchdog
    name: str = OURS

    def did(self) -> str | None:
        """The first rung, and what it was taken for."""
        events = self.watchdog.events()
        action = next((event for event in events if event["event"] == "action"), None)
        if action is None:
            return None
        verdicts = [event["text"] for event in events if event["event"] == "verdict"]
        return f"{action['action']}: {verdicts[-1]}"


@dataclass
class Peer:
    """A peer, by the file that its action writes."""

    name: str
    stamp: Path

    def did(self) -> str | None:
        """It knows one action: what was configured."""
        return "restart" if self.stamp.exists() and self.stamp.stat().st_size else None


@contextmanager
def watching(folder: Path, url: str, port: int) -> Iterator[list[Watcher]]:
    """All of them, side by side, on the server at `url`; ended in the end."""
    with ExitStack() as stack:
        watchdog = stack.enter_context(running(_subfolder(folder, "ours"), "run", "--dry-run", "--url", url))
        monit = _subfolder(folder, "monit")
        control = monit / "monitrc"
        control.write_text(_MONIT.format(folder=monit, port=port))
        control.chmod(0o600)  # monit refuses one that others may read
        stack.enter_context(_background(monit, "monit", "-I", "-c", str(control)))
        watchers: list[Watcher] = [Ours(watchdog)]
        watchers += [Peer(f"monit /{what}", monit / what) for what in ("slots", "health")]
        for what in ("slots", "health"):
            curl = _subfolder(folder, f"curl-{what}")
            loop = _background(curl, "sh", "-c", _CURL_LOOP, f"{url}/{what}", str(curl / "stamp"))
            stack.enter_context(loop)
            watchers.append(Peer(f"curl /{what}", curl / "stamp"))
        yield watchers


@contextmanager
def _background(folder: Path, *command: str) -> Iterator[None]:
    if shutil.which(command[0]) is None:
        raise RuntimeError(f"{command[0]} is missing")
    # pdeathsig: when the benchmark dies, so do they.
    command = ("setpriv", "--pdeathsig", "KILL", *command)
    with (folder / "output").open("wb") as sink:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)
    try:
        yield
        if process.poll() is not None:
            raise RuntimeError(f"{command[3]} ended early:\n{(folder / 'output').read_text()[-2000:]}")
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=10)


def _subfolder(folder: Path, name: str) -> Path:
    path = folder / name
    path.mkdir()
    return path
