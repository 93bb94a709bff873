"""Watching real processes, from one incarnation to the next."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from llama_watchdog.core.action import Identity
from llama_watchdog.core.observation import Outcome, Process
from llama_watchdog.probes.process import ProcessFacts, ProcessProbe
from llama_watchdog.probes.procfs import ProcessFolder
from llama_watchdog.probes.reading import Reader
from tests.support.llama_process import NAME, python, server, state, wait_until

CLOSING = "signal.signal(signal.SIGUSR1, lambda *_: listener.close())"


def watch(url: str, *, timeout: float = 2.0) -> ProcessProbe:
    return ProcessProbe(url=url, process_name=NAME, timeout=timeout)


def look(probe: ProcessProbe) -> ProcessFacts:
    return asyncio.run(probe.look())


def test_the_facts_of_a_server() -> None:
    spin = "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    with server(then=spin) as child:
        facts = look(watch(child.url))
    process = facts.process
    assert process.outcome is Outcome.OK
    assert (process.pid, process.start_ticks) == (child.pid, facts.identity and facts.identity.start_ticks)
    assert process.state in ("S", "R")
    assert process.threads is not None
    assert process.threads[0].tid == child.pid
    assert len(process.threads) == 2
    assert process.threads[0].cpu > 0.001  # it has started an interpreter
    assert process.cpu is not None
    assert process.rss is not None
    assert process.rss > 1_000_000
    assert process.read_bytes is not None
    assert (process.tracer, process.frozen) == (0, False)
    assert facts.clients == 0
    assert facts.why == ""


def test_a_stopped_process_shows_its_state() -> None:
    with server() as child:
        probe = watch(child.url)
        child.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: state(child.pid) == "T")
        process = look(probe).process
        assert (process.outcome, process.state) == (Outcome.OK, "T")


def test_a_traced_process_names_its_debugger() -> None:
    """By PTRACE_SEIZE, which doesn't stop it: what a debugger that is attached looks like."""
    seize = (
        "import ctypes, sys, time; libc = ctypes.CDLL(None)\n"
        "assert libc.ptrace(0x4206, int(sys.argv[1]), None, None) == 0\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    with server() as child, python(seize, str(child.pid)) as debugger:
        assert look(watch(child.url)).process.tracer == debugger.pid


def test_an_ended_server_is_gone_and_its_zombie_is_told() -> None:
    with server() as child:
        probe = watch(child.url)
        identity = look(probe).identity
        assert identity is not None
        child.kill()
        facts = look(probe)
        gone = Process(Outcome.GONE, child.pid, identity.start_ticks, state="Z")
        assert facts.process == gone
        assert facts.identity is None
        child.reap()
        facts = look(probe)
        assert facts.process == Process(Outcome.GONE, child.pid, identity.start_ticks)
        assert "nothing listens" in facts.why


def test_a_reused_pid_is_another_process() -> None:
    with server() as child:
        identity = look(watch(child.url)).identity
        assert identity is not None
        assert Reader().read(identity).outcome is Outcome.OK
        earlier = Identity(child.pid, identity.start_ticks - 1)
        assert Reader().read(earlier) == Process(Outcome.GONE, child.pid, earlier.start_ticks)


def test_a_new_incarnation_replaces_the_ended_one_at_once() -> None:
    with server() as child:
        probe = watch(child.url)
        look(probe)
        child.kill()
        child.reap()
        assert look(probe).process.outcome is Outcome.GONE
        with server("--batch-size", "512", port=child.port) as heir:
            facts = look(probe)
    assert (facts.process.outcome, facts.process.pid) == (Outcome.OK, heir.pid)
    assert facts.identity is not None
    assert facts.identity.pid == heir.pid
    assert facts.traits is not None
    assert facts.traits.batch_size == 512


def test_a_new_incarnation_is_found_in_the_look_that_misses_the_old_one() -> None:
    with server() as child:
        probe = watch(child.url)
        look(probe)
        child.kill()
        child.reap()
        with server(port=child.port) as heir:
            assert look(probe).process.pid == heir.pid


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of SYS_exit is x86-64's")
def test_a_dead_main_thread_whose_others_live_is_not_gone() -> None:
    """As after SIGKILL with a thread stuck in a driver: memory and GPU are still held."""
    leaving = """
import ctypes
leave = ctypes.PyDLL(None).syscall
signal.signal(signal.SIGUSR1, lambda *_: leave(60, 0))  # SYS_exit: of this thread alone
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
"""
    with server(then=leaving) as child:
        probe = watch(child.url)
        look(probe)
        child.process.send_signal(signal.SIGUSR1)
        wait_until(lambda: state(child.pid) == "Z")
        facts = look(probe)
    assert (facts.process.outcome, facts.process.state) == (Outcome.OK, "Z")
    assert facts.identity is not None


def test_a_fork_that_outlives_its_server_is_no_new_one() -> None:
    """It holds the port, and its name is right; but the socket is the dead server's."""
    with server(then="if os.fork() == 0: time.sleep(60)\nprint(port, flush=True)") as child:
        probe = watch(child.url)
        assert look(probe).process.pid == child.pid
        fork = int(Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text())
        try:
            child.kill()
            child.reap()
            facts = look(probe)
            assert facts.process.outcome is Outcome.GONE
            assert f"(pid {fork}) is left of the server that has ended" in facts.why
        finally:
            os.kill(fork, signal.SIGKILL)


def test_a_server_that_listens_no_more_is_still_the_server() -> None:
    """Half dead: connections are refused, but the process and its memory are there."""
    with server(then=CLOSING) as child:
        probe = watch(child.url)
        look(probe)
        child.process.send_signal(signal.SIGUSR1)
        wait_until(lambda: not listens(child.port))
        assert look(probe).process.pid == child.pid


def test_another_process_on_the_port_is_never_taken_for_the_server() -> None:
    with server(then=CLOSING) as child:
        probe = watch(child.url)
        look(probe)
        child.process.send_signal(signal.SIGUSR1)
        wait_until(lambda: not listens(child.port))
        with server(name="nginx", port=child.port) as stranger:
            facts = look(probe)
    assert facts.process.outcome is Outcome.UNSUPPORTED
    assert facts.identity is None
    assert f"is served by nginx (pid {stranger.pid})" in facts.why


def test_clients_are_counted_without_ourselves() -> None:
    connect = (
        "import socket, sys, time; c = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    with server() as child:
        probe = watch(child.url)
        with socket.create_connection(("127.0.0.1", child.port)):
            assert look(probe).clients == 0
            with python(connect, str(child.port)):
                assert look(probe).clients == 1


def test_a_hanging_read_is_a_timeout_then_pending_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    read = Reader.read

    def hang(self: Reader, identity: object) -> Process:
        release.wait(10)
        return read(self, identity)  # type: ignore[arg-type]  # as it came

    async def until_ok(probe: ProcessProbe) -> ProcessFacts:
        while (facts := await probe.look()).process.outcome is not Outcome.OK:
            time.sleep(0.001)  # noqa: ASYNC251 - gives way to the thread, not to the loop
        return facts

    async def story(probe: ProcessProbe) -> list[ProcessFacts]:
        facts = [await until_ok(probe)]
        monkeypatch.setattr(Reader, "read", hang)
        facts += [await probe.look(), await probe.look()]
        release.set()
        return [*facts, await until_ok(probe)]

    with server() as child:
        facts = asyncio.run(story(watch(child.url, timeout=0.05)))
    outcomes = [look.process.outcome for look in facts]
    assert outcomes == [Outcome.OK, Outcome.TIMEOUT, Outcome.PENDING, Outcome.OK]
    assert facts[1].identity == facts[0].identity  # still known, so that it can still be signalled
    assert facts[1].process.pid == child.pid


def listens(port: int) -> bool:
    return f":{port:04X} 00000000:0000 0A" in Path("/proc/net/tcp").read_text()


def identity_of(pid: int) -> Identity:
    with ProcessFolder(pid) as folder:
        return Identity(pid, folder.stat().start_ticks)


def expecting(url: str, identity: Identity) -> ProcessProbe:
    probe = watch(url)
    probe.expect(identity)
    return probe


def test_one_that_ended_before_the_watch_began_is_gone_at_the_first_look() -> None:
    """The watchdog was away as well: without that its end would be no news, and nobody would start it."""
    with server() as child:
        identity = identity_of(child.pid)
        child.kill()
        probe = expecting(child.url, identity)
        assert look(probe).process == Process(Outcome.GONE, child.pid, identity.start_ticks, state="Z")
        child.reap()
        facts = look(probe)
        assert facts.process == Process(Outcome.GONE, child.pid, identity.start_ticks)
        assert facts.identity is None
        assert facts.left is not None


def test_one_that_lives_on_is_watched_with_its_traits() -> None:
    with server("--batch-size", "512") as child:
        facts = look(expecting(child.url, identity_of(child.pid)))
        assert (facts.process.outcome, facts.process.pid) == (Outcome.OK, child.pid)
        assert facts.traits is not None
        assert facts.traits.batch_size == 512


def test_one_that_lives_on_and_listens_no_more_is_watched() -> None:
    """Half dead, when the watchdog came back: by its port it could not be found any more."""
    with server(then=CLOSING) as child:
        child.process.send_signal(signal.SIGUSR1)
        wait_until(lambda: not listens(child.port))
        assert look(watch(child.url)).process.outcome is Outcome.UNSUPPORTED
        assert look(expecting(child.url, identity_of(child.pid))).process.pid == child.pid


def test_a_pid_that_was_reused_while_the_watchdog_was_away_is_gone() -> None:
    with server() as child, python("import time; print('ready', flush=True); time.sleep(60)") as stranger:
        earlier = Identity(stranger.pid, identity_of(stranger.pid).start_ticks - 1)
        child.kill()
        child.reap()
        facts = look(expecting(child.url, earlier))
        assert facts.process == Process(Outcome.GONE, stranger.pid, earlier.start_ticks)
        assert facts.identity is None


def test_its_successor_is_found_at_the_first_look() -> None:
    with server() as child:
        facts = look(expecting(child.url, Identity(child.pid, identity_of(child.pid).start_ticks - 1)))
        assert facts.process.outcome is Outcome.OK
        assert facts.identity == identity_of(child.pid)


def test_what_is_expected_outlives_a_look_that_took_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    read = Reader.read

    def hang(self: Reader, identity: Identity) -> Process:
        release.wait(10)
        return read(self, identity)

    async def story(probe: ProcessProbe) -> ProcessFacts:
        monkeypatch.setattr(Reader, "read", hang)
        assert (await probe.look()).process.outcome is Outcome.TIMEOUT
        release.set()
        while (facts := await probe.look()).process.outcome is Outcome.PENDING:
            time.sleep(0.001)  # noqa: ASYNC251 - gives way to the thread, not to the loop
        return facts

    with server() as child:
        identity = identity_of(child.pid)
        child.kill()
        child.reap()
        probe = watch(child.url, timeout=0.05)
        probe.expect(identity)
        assert asyncio.run(story(probe)).process.outcome is Outcome.GONE
