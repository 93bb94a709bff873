"""Starting and steering a simulated llama-server from another process: for `demo` and for tests."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Self

import httpx

from llama_watchdog.simulator.faults import Fault

_LISTENING = re.compile(r"server is listening on (\S+)")
_LOOK = 0.01  # seconds between two looks
_TIMEOUT = 15.0


class Simulated:
    """A running simulator, with the flags of its command line; a context manager that ends it.

    It listens on a free port unless told otherwise: `url` is where, as a configuration would name it.
    Raises RuntimeError, with what it said, where it does not listen in time. Its model may still be loading.
    """

    def __init__(self, *flags: str) -> None:
        self._log = tempfile.NamedTemporaryFile()  # noqa: SIM115 - closed by stop()
        port = () if "--port" in flags else ("--port", "0")
        self.process = subprocess.Popen(  # noqa: S603 - this very package, by this very interpreter
            [sys.executable, "-m", "llama_watchdog.simulator", *port, *flags],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
        )
        deadline = monotonic() + _TIMEOUT
        while not (match := _LISTENING.search(self.log)):
            if self.process.poll() is not None or monotonic() > deadline:
                said = self.log
                self.stop()
                raise RuntimeError(f"the simulator does not listen: {said}")
            sleep(_LOOK)
        self.url = match[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Its process id, which is its main loop's thread id, too."""
        return self.process.pid

    @property
    def log(self) -> str:
        """What it wrote on standard error so far."""
        return Path(self._log.name).read_text(errors="replace")

    def strike(self, fault: Fault) -> None:
        """Make a fault begin now; Fault.NONE lifts it. Raises httpx.HTTPError where it cannot be told."""
        socket = self.url.removeprefix("unix://") if self.url.startswith("unix://") else None
        base = "http://localhost" if socket else self.url
        with httpx.Client(transport=httpx.HTTPTransport(uds=socket), timeout=5.0) as client:
            try:
                client.post(f"{base}/simulator/fault", json={"fault": fault.value}).raise_for_status()
            except (httpx.RemoteProtocolError, httpx.ReadError):
                if fault is not Fault.CRASH:  # which may come before its answer
                    raise

    def stop(self) -> None:
        """End it at once, whatever state it is in."""
        self.process.kill()
        self.process.wait()
        self._log.close()
