"""What is named as left of an ended server: whatever is named may be killed, so never a stranger."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from llama_watchdog.core.action import Identity
from llama_watchdog.core.observation import Left, Outcome, Unit
from llama_watchdog.probes import finding, place, remains
from llama_watchdog.probes.finding import Found, Group
from llama_watchdog.probes.process import ProcessFacts, ProcessProbe
from llama_watchdog.probes.procfs import ProcessFolder
from llama_watchdog.supervisors.base import Supervised
from tests.support.llama_process import NAME, Child, python, server
from tests.support.supervisor import FakeSupervisor, own_cgroup

# The first line is the port, the second the fork's pid; the port comes again and is not read.
FORKS = "\nfork = os.fork()\nif fork == 0:\n    {then}\n    time.sleep(60)\nprint(port, fork, flush=True)"
LEADS = "os.setsid()"


def watch(url: str, supervisor: FakeSupervisor | None = None) -> ProcessProbe:
    return ProcessProbe(url=url, process_name=NAME, supervisor=supervisor)


def look(probe: ProcessProbe) -> ProcessFacts:
    return asyncio.run(probe.look())


def identity_of(pid: int) -> Identity:
    with ProcessFolder(pid) as folder:
        return Identity(pid, folder.stat().start_ticks)


@contextmanager
def ended_server(*, before: str = "", fork: str = "pass") -> Iterator[tuple[ProcessProbe, Child, Identity]]:
    """A server that was watched and has ended, and the identity of the fork that has outlived it."""
    with server(then=before + FORKS.format(then=fork)) as child:
        probe = watch(child.url)
        left = identity_of(int(child.said[1]))
        try:
            assert look(probe).process.pid == child.pid
            child.kill()
            child.reap()
            yield probe, child, left
        finally:
            os.kill(left.pid, signal.SIGKILL)


def test_a_fork_that_keeps_the_listening_socket_is_named_and_so_is_who_holds_the_port() -> None:
    with ended_server() as (probe, _, fork):
        left = look(probe).left
        assert left == Left((fork,), port=f"{NAME} (pid {fork.pid})")


def test_a_process_of_the_session_that_the_server_led_is_named() -> None:
    with ended_server(before=LEADS, fork="listener.close()") as (probe, _, fork):
        assert look(probe).left == Left((fork,))


def test_one_that_has_neither_socket_nor_session_is_no_remains() -> None:
    """Of our own session, as the ended server was: so are the tests, and whoever started them."""
    with ended_server(fork="listener.close()") as (probe, _, _fork):
        assert look(probe).left == Left()


def test_while_the_server_lives_nothing_is_left_of_it() -> None:
    with server(then=LEADS + FORKS.format(then="pass")) as child:
        try:
            assert look(watch(child.url)).left is None
        finally:
            os.kill(int(child.said[1]), signal.SIGKILL)


def test_a_zombie_is_no_remains() -> None:
    with server(then=LEADS) as child:
        probe = watch(child.url)
        look(probe)
        child.kill()
        facts = look(probe)
        assert facts.process.state == "Z"
        assert facts.left == Left()


def test_a_stranger_on_the_port_is_named_for_people_and_for_nothing_else() -> None:
    with server() as child:
        probe = watch(child.url)
        look(probe)
        child.kill()
        child.reap()
        with server(name="nginx", port=child.port) as stranger:
            assert look(probe).left == Left((), port=f"nginx (pid {stranger.pid})")


def test_we_ourselves_are_never_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container the server may have led our session, and a unit's cgroup may be ours."""
    here = place.parse("http://127.0.0.1:1")
    door = finding.look_at_door(here, place.always_here(here) or frozenset())
    leader = Identity(os.getsid(0), 0)
    cgroup = Group(own_cgroup(), None)
    monkeypatch.setattr(remains, "pids", lambda: iter([os.getpid()]))
    assert remains.of(Found(leader, frozenset()), cgroup, door) == Left()


def test_a_session_that_another_process_leads_by_the_same_pid_is_a_strangers() -> None:
    """A session's number is its leader's pid, and that is anybody's once the session has died out."""
    with python(f"import os, time; {LEADS}\nprint('ready', flush=True); time.sleep(60)") as stranger:
        leads = identity_of(stranger.pid)
        here = place.parse("http://127.0.0.1:1")
        door = finding.look_at_door(here, place.always_here(here) or frozenset())
        ended = Found(Identity(leads.pid, leads.start_ticks - 1), frozenset())
        assert remains.of(ended, None, door) == Left()


def test_whatever_is_in_the_cgroup_of_a_unit_without_a_main_process_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As systemd waits for what an aborted server has left, for 90 s."""
    with server() as child, server() as sibling:
        unit = FakeSupervisor()
        probe = watch(child.url, unit)
        look(probe)
        child.kill()
        child.reap()
        monkeypatch.setattr(remains, "pids", lambda: iter([sibling.pid, 1]))
        unit.state = Supervised(
            Unit(Outcome.OK, "loaded", "deactivating", "stop-sigterm"), control_group=own_cgroup()
        )
        facts = look(probe)
        assert facts.left is not None
        assert identity_of(sibling.pid) in facts.left.processes
        unit.state = Supervised(unit.state.unit, main_pid=os.getpid(), control_group=own_cgroup())
        facts = look(probe)
        assert facts.left is not None
        assert facts.left.processes == ()  # its main process may be the next server


def test_nothing_is_named_once_a_main_process_was_started_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the supervisor's answer and the look at the cgroup: then it is the new server that is in it."""
    with server() as child, server() as new:
        unit = FakeSupervisor()
        probe = watch(child.url, unit)
        look(probe)
        child.kill()
        child.reap()

        def start_and_look() -> Iterator[int]:
            unit.state = replace(unit.state, main_pid=new.pid)
            yield new.pid

        monkeypatch.setattr(remains, "pids", start_and_look)
        facts = look(probe)
        assert (facts.process.outcome, facts.left) == (Outcome.GONE, None)


def test_a_process_names_its_session() -> None:
    with ProcessFolder(os.getpid()) as folder:
        assert folder.stat().session == os.getsid(0)
    with python(f"import os, time; {LEADS}\nprint('ready', flush=True); time.sleep(60)") as leader:
        assert Path(f"/proc/{leader.pid}").exists()
        with ProcessFolder(leader.pid) as folder:
            assert folder.stat().session == leader.pid
