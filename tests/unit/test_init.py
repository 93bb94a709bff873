"""The init of a container, in a forked process to which orphans come as they do to process 1."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llama_watchdog.init import FORWARDED

PR_SET_CHILD_SUBREAPER = 36  # prctl(2)

# Says the init's pid, splits, and lets the child do what is given; the init exits as `main` has it exit.
INIT = f"""
import ctypes, os, signal, sys, time
from llama_watchdog import init
ctypes.CDLL(None).prctl({PR_SET_CHILD_SUBREAPER}, 1)
{{before}}
print(os.getpid(), flush=True)
status = init.split()
if status is not None:
    os._exit(status)
{{child}}
"""

# The child says "ready" once it is, and then each signal it gets; it ends when its input does.
LISTENS = """
import select
heard, tell = os.pipe()
os.set_blocking(tell, False)
signal.set_wakeup_fd(tell)
for number in init.FORWARDED:
    signal.signal(number, lambda *_: None)
print("ready", os.getpid(), flush=True)
while heard in select.select([heard, 0], [], [])[0]:
    for number in os.read(heard, 64):
        print(signal.Signals(number).name, flush=True)
os._exit(7)
"""


class Init:
    """A running init; `said` is the child's next line."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.pid = int(self.said())  # in its own namespace

    def said(self) -> str:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], 10)
        assert ready, "nothing was said for 10 s"
        return self.process.stdout.readline().decode().strip()

    def ends(self) -> int:
        """Its exit status, once the child's input has ended."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(10)


@contextmanager
def init(child: str, before: str = "", *prefix: str) -> Iterator[Init]:
    source = str(Path(__file__).parents[2] / "src")
    process = subprocess.Popen(
        [*prefix, sys.executable, "-c", INIT.format(child=child, before=before)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        env={**os.environ, "PYTHONPATH": source},
        start_new_session=True,
    )
    try:
        yield Init(process)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()


@pytest.mark.parametrize(
    ("child", "status"),
    [
        ("os._exit(0)", 0),
        ("os._exit(3)", 3),
        ("os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL),
        ("os.kill(os.getpid(), signal.SIGTERM)", 128 + signal.SIGTERM),
    ],
)
def test_the_status_is_passed_on(child: str, status: int) -> None:
    with init(child) as running:
        assert running.ends() == status


def test_an_inherited_ignored_sigchld_takes_no_status_away() -> None:
    with init("os._exit(3)", before="signal.signal(signal.SIGCHLD, signal.SIG_IGN)") as running:
        assert running.ends() == 3


@pytest.mark.parametrize("sig", sorted(FORWARDED))
def test_signals_reach_the_child(sig: signal.Signals) -> None:
    with init(LISTENS) as running:
        assert running.said().startswith("ready")
        os.kill(running.pid, sig)
        assert running.said() == sig.name
        assert running.ends() == 7


def test_a_ctrl_c_at_its_terminal_arrives_once() -> None:
    """The terminal sends it to the whole foreground group, the init among it, which passes it on."""
    with init(LISTENS) as running:
        child = int(running.said().removeprefix("ready "))
        assert os.getpgid(child) != os.getpgid(running.pid)
        os.killpg(running.pid, signal.SIGINT)
        assert running.said() == "SIGINT"
        os.kill(running.pid, signal.SIGTERM)
        assert running.said() == "SIGTERM"


def test_a_signal_from_before_the_fork_is_not_lost() -> None:
    """As a `docker stop` in the first moment: blocked, it waits until the child can hear it."""
    slow = (
        "fork = os.fork\ndef late():\n os.kill(os.getpid(), signal.SIGTERM)\n return fork()\nos.fork = late"
    )
    with init("time.sleep(60)", before=slow) as running:
        assert running.ends() == 128 + signal.SIGTERM


def test_the_child_has_its_signals_unblocked() -> None:
    with init("print(signal.pthread_sigmask(signal.SIG_BLOCK, ()), flush=True)") as running:
        assert running.said() == "set()"


ORPHANS = """
for _ in range(20):
    if os.fork() == 0:
        if os.fork() == 0:
            os._exit(0)  # an orphan by now, or in a moment
        os._exit(0)
    os.wait()
print("orphaned", flush=True)
sys.stdin.readline()
import subprocess
print("own:", subprocess.run(["sh", "-c", "exit 5"]).returncode, flush=True)
print("left:", *os.popen(f"ps -o stat= --ppid {os.getppid()}").read().split(), flush=True)
"""


def test_orphans_are_reaped_and_the_childs_own_statuses_are_its_own() -> None:
    with init(ORPHANS) as running:
        assert running.said() == "orphaned"
        assert running.process.stdin is not None
        running.process.stdin.write(b"\n")
        assert running.said() == "own: 5"
        assert "Z" not in running.said()
        assert running.ends() == 0


NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child=KILL", "--mount-proc")


def no_namespace() -> str:
    """Why no pid namespace can be had here, as in a container or a chroot; "": it can."""
    if os.geteuid() != 0:
        return "a pid namespace needs root"
    tried = subprocess.run([*NAMESPACE, "true"], capture_output=True, text=True, check=False)
    return tried.stderr.strip()


@pytest.mark.skipif(bool(no_namespace()), reason=no_namespace())
@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_as_process_1_it_gets_signals_and_passes_the_status_on(sig: signal.Signals) -> None:
    """In a real pid namespace, where the kernel drops what its process 1 has no handler for."""
    with init(f"assert os.getppid() == 1\n{LISTENS}", "", *NAMESPACE) as running:
        assert running.pid == 1
        assert running.said().startswith("ready")
        unshare = running.process.pid
        (outside,) = Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split()
        os.kill(int(outside), sig)
        assert running.said() == sig.name
        assert running.ends() == 7
