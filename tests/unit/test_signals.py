"""Signals to real child processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from llama_watchdog import signals
from llama_watchdog.core.action import Done, Identity, Result

SLEEP = "import time; time.sleep(60)"
READY = f"print('ready', flush=True); {SLEEP}"
PARENT = (
    "import subprocess, sys\n"
    f"child = subprocess.Popen([sys.executable, '-c', {SLEEP!r}])\n"
    f"print(child.pid, flush=True); {SLEEP}"
)


class Child:
    """A Python process that says "ready" and what else it prints before it goes to sleep."""

    def __init__(self, script: str, *, session: bool = False) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=session
        )
        assert self.process.stdout is not None
        self.output = self.process.stdout
        self.said = self.output.readline().split()
        self.identity = identity_of(self.process.pid)


Start = Callable[..., Child]


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as stack:

        def starting(script: str, *, session: bool = False) -> Child:
            child = Child(script, session=session)
            stack.callback(child.output.close)
            stack.callback(child.process.wait)
            stack.callback(child.process.kill)
            return child

        yield starting


def identity_of(pid: int) -> Identity:
    """As /proc/PID/stat tells it: the test's own reading, to check the module's by."""
    return Identity(
        pid, int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
    )


def send(identity: Identity, sig: signal.Signals) -> Result:
    return asyncio.run(signals.signal_tree(identity, sig))


def ended(identity: Identity) -> bool:
    return asyncio.run(signals.ended(identity))


def wait_ended(identity: Identity, seconds: float = 5.0) -> bool:
    return asyncio.run(signals.wait_ended(identity, seconds))


@contextmanager
def killed_at_the_end(*identities: Identity) -> Iterator[None]:
    """Nothing that a test started outlives it, also where the code under test failed to end it."""
    try:
        yield
    finally:
        for identity in identities:
            if not ended(identity):
                os.kill(identity.pid, signal.SIGKILL)


def test_sigterm_reaches_the_process(start: Start) -> None:
    child = start(READY)
    result = send(child.identity, signal.SIGTERM)
    assert result == Result(Done.DONE, f"sent SIGTERM to pid {child.process.pid}")
    assert child.process.wait() == -signal.SIGTERM


def test_sigterm_is_for_the_main_process_alone(start: Start) -> None:
    """A server ends its children itself; only SIGKILL gives it no chance to."""
    parent = start(f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{PARENT}")
    child = identity_of(int(parent.said[0]))
    with killed_at_the_end(child):
        assert send(parent.identity, signal.SIGTERM).text == f"sent SIGTERM to pid {parent.identity.pid}"
        assert not wait_ended(child, 0.02)


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGKILL])
def test_a_reused_pid_is_never_signalled(start: Start, sig: signal.Signals) -> None:
    """The pid is another process's: that one lives on, and so do its children."""
    child = start(PARENT, session=True)
    before = Identity(child.identity.pid, child.identity.start_ticks - 1)
    result = send(before, sig)
    assert result == Result(Done.FAILED, f"pid {before.pid} is another process now: not signalled")
    assert ended(before)
    assert signals.descendants(before) == []
    (grandchild,) = signals.descendants(child.identity)
    with killed_at_the_end(grandchild):
        assert not wait_ended(child.identity, 0.02)
        assert not ended(grandchild)


def test_a_process_that_is_gone_needs_no_signal(start: Start) -> None:
    child = start("print('ready', flush=True)")
    child.process.wait()
    assert send(child.identity, signal.SIGKILL) == Result(
        Done.DONE, f"pid {child.identity.pid} is already gone"
    )
    assert ended(child.identity)


def test_a_zombie_has_ended(start: Start) -> None:
    """Dead, but not reaped: its parent may never do so, and it holds neither port nor memory."""
    child = start("print('ready', flush=True)")
    assert wait_ended(child.identity)
    assert (
        Path(f"/proc/{child.identity.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        == "Z"
    )
    assert ended(child.identity)
    assert "already gone" in send(child.identity, signal.SIGTERM).text


def test_a_dead_main_thread_is_no_dead_process(start: Start) -> None:
    """State Z too, but another thread lives on, as one stuck in a driver does: it holds port and memory."""
    child = start(
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=[60]).start()\n"
        "print('ready', flush=True)\n"
        "ctypes.CDLL(None).syscall(60 if __import__('platform').machine() == 'x86_64' else 93, 0)"
    )
    stat = Path(f"/proc/{child.identity.pid}/stat")
    while stat.read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z":
        os.sched_yield()
    assert not ended(child.identity)
    assert not wait_ended(child.identity, 0.02)
    send(child.identity, signal.SIGKILL)
    assert wait_ended(child.identity)


def test_waiting_ends_with_the_process_and_not_with_the_timeout(start: Start) -> None:
    child = start("import sys; print('ready', flush=True); sys.stdin.read()")

    async def waiting() -> bool:
        task = asyncio.create_task(signals.wait_ended(child.identity, 60.0))
        await asyncio.sleep(0)
        child.process.terminate()
        return await asyncio.wait_for(task, 10.0)

    assert asyncio.run(waiting())


def test_waiting_gives_up(start: Start) -> None:
    child = start(READY)
    assert not wait_ended(child.identity, 0.01)


def test_sigkill_ends_children_and_grandchildren(start: Start) -> None:
    """The parent leads no session, as one started by hand from a script: kinship is by parents alone."""
    inner = f"import os, sys; p = os.fork(); p and print(os.getpid(), p, flush=True); {SLEEP}"
    parent = start(f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {inner!r}]); {SLEEP}")
    tree = [identity_of(int(pid)) for pid in parent.said]
    with killed_at_the_end(*tree):
        assert set(signals.descendants(parent.identity)) == set(tree)
        result = send(parent.identity, signal.SIGKILL)
        assert result == Result(Done.DONE, f"sent SIGKILL to pid {parent.identity.pid} and 2 descendants")
        assert parent.process.wait() == -signal.SIGKILL
        assert [wait_ended(identity) for identity in tree] == [True, True]


def test_sigkill_ends_orphans_too(start: Start) -> None:
    """A grandchild whose parent died belongs to init by now; the session still tells whose it is."""
    double_fork = (
        "import os, time\n"
        "read, write = os.pipe()\n"
        "if middle := os.fork():\n"
        "    os.waitpid(middle, 0)\n"
        "    print(os.read(read, 9).decode(), flush=True)\n"
        "elif orphan := os.fork():\n"
        "    os.write(write, str(orphan).encode())\n"
        "    os._exit(0)\n"
        "time.sleep(60)"
    )
    parent = start(double_fork, session=True)
    orphan = identity_of(int(parent.said[0]))
    with killed_at_the_end(orphan):
        assert signals.descendants(parent.identity) == [orphan]
        send(parent.identity, signal.SIGKILL)
        assert wait_ended(orphan)


def test_other_users_processes_that_may_not_be_looked_at_are_no_hindrance(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with hidepid=1, where their folders are listed and nothing in them can be read."""
    read = Path.read_text

    def hidden(path: Path, **how: Any) -> str:
        if path == Path("/proc/1/stat"):
            raise PermissionError(1, "Operation not permitted")
        return read(path, **how)

    parent = start(PARENT)
    child = identity_of(int(parent.said[0]))
    with killed_at_the_end(child):
        monkeypatch.setattr(Path, "read_text", hidden)
        assert send(parent.identity, signal.SIGKILL).text.endswith(" and 1 descendant")
        monkeypatch.undo()
        assert wait_ended(child)


def test_siblings_are_no_descendants(start: Start) -> None:
    """Same parent, same session, same process group: not its tree."""
    first = start(READY)
    second = start(READY)
    send(first.identity, signal.SIGKILL)
    assert wait_ended(first.identity)
    assert not wait_ended(second.identity, 0.02)


def test_we_never_kill_ourselves() -> None:
    """In a container the server may be our own parent: its tree is killed, we live on to start it again."""
    script = (
        "import asyncio, os, signal, subprocess, sys\n"
        "from llama_watchdog import signals\n"
        "from llama_watchdog.core.action import Identity\n"
        "pid = os.getppid()\n"
        "ticks = int(open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()[19])\n"
        "print(asyncio.run(signals.signal_tree(Identity(pid, ticks), signal.SIGKILL)).text, flush=True)\n"
    )
    server = f"import os, sys, time\nif os.fork(): time.sleep(60)\nelse: exec({script!r})"
    with subprocess.Popen(
        [sys.executable, "-c", server], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        said = process.stdout.read()
    assert said == f"sent SIGKILL to pid {process.pid}\n"
    assert process.returncode == -signal.SIGKILL


def test_without_the_right_it_says_what_would_help(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    child = start(READY)
    monkeypatch.setattr(signal, "pidfd_send_signal", denied)
    result = send(child.identity, signal.SIGKILL)
    assert result.outcome is Done.UNSUPPORTED
    assert "CAP_KILL" in result.text


def test_a_descendant_that_may_not_be_killed_is_named(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The main process is dead then, the tree is not: a restart beside it would find the port taken."""
    parent = start(PARENT)
    grandchild = identity_of(int(parent.said[0]))
    really = signal.pidfd_send_signal

    def denied_below(pidfd: int, sig: signal.Signals) -> None:
        if f"Pid:\t{grandchild.pid}\n" in Path(f"/proc/self/fdinfo/{pidfd}").read_text(encoding="utf-8"):
            raise PermissionError(1, "Operation not permitted")
        really(pidfd, sig)

    with killed_at_the_end(grandchild):
        monkeypatch.setattr(signal, "pidfd_send_signal", denied_below)
        result = send(parent.identity, signal.SIGKILL)
        assert result.outcome is Done.FAILED
        assert f"not to pid {grandchild.pid}" in result.text


def test_a_kernel_without_pidfds_is_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", missing)
    result = send(identity_of(os.getpid()), signal.SIGTERM)
    assert result.outcome is Done.UNSUPPORTED
    assert "5.3" in result.text


def test_a_name_full_of_brackets_is_read_right(start: Start) -> None:
    """The name in /proc/PID/stat is the process's to choose."""
    child = start(f"open('/proc/self/comm', 'w').write(') R 1 (x) '); {READY}")
    assert "sent SIGTERM" in send(child.identity, signal.SIGTERM).text
    assert child.process.wait() == -signal.SIGTERM


def kill_each(*members: Identity) -> Result:
    return asyncio.run(signals.kill_each(members))


@contextmanager
def orphan_of(start: Start, then: str = "") -> Iterator[Identity]:
    """What a server that has ended left behind: a fork in a session of its own, whose parent is dead."""
    parent = start(
        "import os, time\n"
        "if fork := os.fork():\n"
        "    print(fork, flush=True)\n"
        "else:\n"
        "    os.setsid()\n"
        f"    {then or 'pass'}\n"
        "    time.sleep(60)"
    )
    orphan = identity_of(int(parent.said[0]))
    with killed_at_the_end(orphan):
        assert parent.process.wait() == 0
        yield orphan


def test_what_a_dead_server_has_left_is_killed_each(start: Start) -> None:
    with orphan_of(start) as one, orphan_of(start) as two:
        result = kill_each(one, two)
        assert result == Result(Done.DONE, "sent SIGKILL to 2 processes that the server has left")
        assert [wait_ended(one), wait_ended(two)] == [True, True]


def test_and_so_is_what_that_has_forked_itself(start: Start, tmp_path: Path) -> None:
    """By parentage, before the one that is named has gone and its children are nobody's."""
    told = tmp_path / "pid"
    forking = f"child = os.fork(); child and open({str(told)!r}, 'w').write(f'{{child}}.')"
    with orphan_of(start, forking) as orphan:
        while not (told.exists() and told.read_text().endswith(".")):
            os.sched_yield()
        child = identity_of(int(told.read_text()[:-1]))
        with killed_at_the_end(child):
            assert "to 2 processes" in kill_each(orphan).text
            assert wait_ended(child)


def test_a_stranger_with_the_pid_of_what_was_left_lives_on(start: Start) -> None:
    """Also one that leads a session, whose number is that very pid."""
    for session in (False, True):
        stranger = start(PARENT, session=session)
        child = identity_of(int(stranger.said[0]))
        with killed_at_the_end(child):
            before = Identity(stranger.identity.pid, stranger.identity.start_ticks - 1)
            assert kill_each(before) == Result(
                Done.DONE, "sent SIGKILL to 0 processes that the server has left"
            )
            assert not wait_ended(stranger.identity, 0.02)
            assert not ended(child)


def test_what_was_left_and_has_gone_meanwhile_is_no_failure(start: Start) -> None:
    child = start("print('ready', flush=True)")
    child.process.wait()
    assert kill_each(child.identity).outcome is Done.DONE


def test_what_was_left_and_may_not_be_killed_is_named(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    with orphan_of(start) as orphan:
        monkeypatch.setattr(signal, "pidfd_send_signal", denied)
        result = kill_each(orphan)
        monkeypatch.undo()
        assert result.outcome is Done.UNSUPPORTED
        assert f"not to pid {orphan.pid}: needs root or CAP_KILL" in result.text
