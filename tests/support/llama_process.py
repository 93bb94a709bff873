"""Real processes that look like a llama-server to /proc, or nearly so."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

# No other server of this machine has this name; the kernel keeps 15 characters of it.
NAME = f"llama-{os.getpid()}"

# Arguments: the name of its main thread; the port to listen on, 0 for any, -1 for none. Says the port.
SERVER = """
import os, signal, socket, sys, threading, time
open("/proc/self/comm", "w").write(sys.argv[1])
port = int(sys.argv[2])
if port >= 0:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    port = listener.getsockname()[1]
{then}
print(port, flush=True)
time.sleep(60)
"""


class Child:
    """A child process that has said what it had to say in its first line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid
        assert process.stdout is not None
        self.said = process.stdout.readline().split()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.said[0])

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def kill(self) -> None:
        """End it; it is a zombie until `reap`."""
        self.process.kill()
        wait_until(lambda: state(self.pid) == "Z")

    def reap(self) -> None:
        """Let it go for good."""
        self.process.wait()


@contextmanager
def run(*argv: str) -> Iterator[Child]:
    """A program that prints one line when it is ready; killed in the end."""
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        yield Child(process)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def python(code: str, *arguments: str) -> AbstractContextManager[Child]:
    """A Python program, without what makes its start slow."""
    return run(sys.executable, "-IS", "-c", code, *arguments)


def server(*arguments: str, name: str = NAME, port: int = 0, then: str = "") -> AbstractContextManager[Child]:
    """A process of that name, listening on `port`, with `arguments` as its own; `then`: more code."""
    return python(SERVER.format(then=then), name, str(port), *arguments)


def state(pid: int) -> str:
    """The state letter of its main thread, "" once it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def wait_until(true: Callable[[], bool]) -> None:
    """Until the kernel has done what it was asked for: a matter of microseconds."""
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end, "waited for 10 s"
        time.sleep(0.001)
