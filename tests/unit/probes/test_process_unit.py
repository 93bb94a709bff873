"""Watching a process with the help of its supervisor, and with few rights."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable

import pytest

from llama_watchdog.core.observation import Outcome, Unit
from llama_watchdog.probes import sockets, traits
from llama_watchdog.probes.process import ProcessFacts, ProcessProbe
from llama_watchdog.probes.procfs import ProcessFolder
from llama_watchdog.supervisors.base import Supervised
from tests.support.llama_process import NAME, server
from tests.support.supervisor import RUNNING, FakeSupervisor


def watch(
    url: str, supervisor: FakeSupervisor | None = None, *, clock: Callable[[], float] = time.monotonic
) -> ProcessProbe:
    return ProcessProbe(url=url, process_name=NAME, supervisor=supervisor, clock=clock)


def look(probe: ProcessProbe) -> ProcessFacts:
    return asyncio.run(probe.look())


def test_what_we_may_not_read_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an ordinary user sees another user's process: no io, no open files, no environment."""
    hide_what_takes_rights(monkeypatch)
    with server("--port", "PORT") as child:
        process = look(watch(child.url, FakeSupervisor())).process
    assert process.outcome is Outcome.OK
    assert (process.read_bytes, process.write_bytes) == (None, None)
    assert process.threads


def test_a_url_of_another_machine_has_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = look(watch("http://192.0.2.1:8080"))  # TEST-NET-1: nobody's
    assert facts.process.outcome is Outcome.UNSUPPORTED
    assert facts.why == "192.0.2.1 is not this machine"

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert look(watch("http://gpu-box:8080")).why == "gpu-box can't be looked up"


def test_a_gpu_that_is_opened_while_loading_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    answers = [False, None, True]
    monkeypatch.setattr(traits, "uses_gpu", lambda _: answers.pop(0))
    with server() as child:
        probe = watch(child.url, clock=lambda: now[0])
        seen = []
        for _ in range(8):
            facts = look(probe)
            assert facts.traits is not None
            seen.append(facts.traits.uses_gpu)
            now[0] += 6.0
    assert seen == [False, False, None, None, True, True, True, True]  # and then it is looked for no more


def test_the_supervisors_environment_stands_in_for_one_that_we_may_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with Debian's unit, all of whose settings are variables, seen by an ordinary user."""
    hide_what_takes_rights(monkeypatch)
    unit = FakeSupervisor(variables={"LLAMA_ARG_BATCH": "4096", "LLAMA_ARG_RPC": "10.0.0.2:50052"})
    with server() as child:
        probe = watch(child.url, unit)
        for _ in range(2):
            known = look(probe).traits
            assert known is not None
            assert (known.batch_size, known.rpc) == (4096, True)
    (asked,) = (names for what, *names in unit.asked if what == "environment")
    assert "LLAMA_API_KEY" not in asked


@pytest.mark.parametrize("dials", [True, False])
def test_where_nobody_tells_of_peers_its_connections_do(
    monkeypatch: pytest.MonkeyPatch, *, dials: bool
) -> None:
    """Else a server that waits for its --rpc peers, said so in a file with its key, would look wedged."""
    hide_what_takes_rights(monkeypatch)
    monkeypatch.setattr(sockets, "dials", lambda users: dials and os.getuid() in users)
    now = [100.0]
    with server("--port", "PORT") as child:
        probe = watch(child.url, FakeSupervisor(variables=None), clock=lambda: now[0])
        seen = []
        for now[0] in (100.0, 105.0, 111.0, 122.0):
            known = look(probe).traits
            assert known is not None
            seen.append(known.rpc)
    assert seen == [False, False, dials, dials]


def test_the_supervisor_is_asked_only_while_no_server_is_known() -> None:
    unit = FakeSupervisor()
    with server() as child:
        probe = watch(child.url, unit)
        for _ in range(3):
            assert look(probe).process.outcome is Outcome.OK
    assert unit.asked == [("show",)]


def test_a_supervisor_that_knows_of_no_cgroup_tells_the_server_by_its_child() -> None:
    with server() as child, server() as other:
        mine = Supervised(RUNNING, main_pid=child.pid)
        assert look(watch(child.url, FakeSupervisor(state=mine))).process.pid == child.pid
        facts = look(watch(other.url, FakeSupervisor(state=mine)))
        assert facts.process.outcome is Outcome.UNSUPPORTED
        assert f"(pid {other.pid}), not by" in facts.why


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            Supervised(Unit(Outcome.UNSUPPORTED), why="there is no systemctl here"),
            "llama-server.service: there is no systemctl here",
        ),
        (
            Supervised(Unit(Outcome.OK, load="not-found")),
            "llama-server.service is not known on this machine",
        ),
        (
            Supervised(Unit(Outcome.OK, load="loaded", active="inactive")),
            f"there is no {NAME} of llama-server.service",
        ),
    ],
)
def test_why_there_is_no_process_of_the_supervisor(answer: Supervised, why: str) -> None:
    facts = look(watch("http://127.0.0.1:1", FakeSupervisor(state=answer)))
    assert (facts.process.outcome, facts.why) == (Outcome.UNSUPPORTED, why)


def test_what_is_private_on_the_command_line_stays_there() -> None:
    with server("--api-key", "sesame", "-m", "/models/tiny.gguf") as child:
        facts = look(watch(child.url))
    assert "tiny.gguf" in repr(facts)
    assert "sesame" not in repr(facts)


def test_a_url_that_is_none() -> None:
    with pytest.raises(ValueError, match="no http, https or unix url"):
        watch("ftp://127.0.0.1")


def hide_what_takes_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    read = ProcessFolder.read

    def hidden(self: ProcessFolder, name: str, limit: int = 16384) -> bytes | None:
        return None if name in ("io", "environ") else read(self, name, limit)

    monkeypatch.setattr(ProcessFolder, "read", hidden)
    monkeypatch.setattr(ProcessFolder, "open_files", lambda _: None)
    monkeypatch.setattr(ProcessFolder, "program", lambda _: None)
