"""llama-watchdog as a process on this machine, from the checkout that is being tested.

Belongs here: starting its commands, ending them, and reading what they print. Its state goes into a folder of
the test's, never to where a real installation keeps it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.ground.events import Event, events_of
from tests.e2e.ground.waiting import wait_until

COMMAND = Path(sys.executable).with_name("llama-watchdog")


def environment(folder: Path) -> dict[str, str]:
    """For a test's llama-watchdog: JSON lines, state and sockets in `folder`, no settings of the user's."""
    ours = {k: v for k, v in os.environ.items() if not k.startswith("LLAMA_WATCHDOG_")}
    return ours | {
        "LLAMA_WATCHDOG_LOG_FORMAT": "json",
        "STATE_DIRECTORY": str(folder / "state"),
        "RUNTIME_DIRECTORY": str(folder / "run"),
        "XDG_CONFIG_HOME": str(folder / "config"),
    }


def command(folder: Path, *arguments: str | Path, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Run one command of llama-watchdog to its end."""
    return subprocess.run(
        [COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=environment(folder),
    )


class Watchdog:
    """A running `llama-watchdog COMMAND`: its events so far, and everything it printed."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self._output = output

    @property
    def text(self) -> str:
        """What it printed so far, to both standard output and standard error."""
        return self._output.read_text(errors="replace")

    def events(self) -> list[Event]:
        """The events so far."""
        return events_of(self.text.splitlines())

    def wait_for(self, timeout: float, what: str = "", **wanted: object) -> Event:
        """The first event that has all of these values, once it comes."""

        def find() -> Event | None:
            assert self.process.poll() is None, f"llama-watchdog ended:\n{self.text[-3000:]}"
            return next((e for e in self.events() if wanted.items() <= e.items()), None)

        try:
            return wait_until(find, timeout, what or f"the event {wanted}")
        except TimeoutError as error:
            raise AssertionError(f"{error}; it said:\n{self.text[-3000:]}") from None


@contextmanager
def running(folder: Path, *arguments: str | Path, end: signal.Signals = signal.SIGTERM) -> Iterator[Watchdog]:
    """`llama-watchdog ARGUMENTS` in the background; ended by that signal, which must end it well."""
    for name in ("state", "run", "config"):
        (folder / name).mkdir(exist_ok=True)
    output = folder / f"{arguments[0]}-{len(list(folder.iterdir()))}.log"
    with output.open("wb") as sink:
        process = subprocess.Popen(
            [COMMAND, *arguments], stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env=environment(folder)
        )
    watchdog = Watchdog(process, output)
    try:
        yield watchdog
        assert process.poll() is None, f"llama-watchdog ended early:\n{watchdog.text[-3000:]}"
        process.send_signal(end)
        assert process.wait(timeout=10) == 0, watchdog.text[-3000:]
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(timeout=10)
