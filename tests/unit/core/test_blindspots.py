"""What can't be seen of a server is said with its consequence and its remedy."""

from __future__ import annotations

from dataclasses import replace

from llama_watchdog.core.blindspots import blind_spots
from llama_watchdog.core.observation import Outcome, Process, Slots
from tests.support.facts import CPU_SERVER, process, seen, slot

SEEN = seen(0.0, slot())


def test_a_server_that_is_seen_whole_hides_nothing() -> None:
    assert blind_spots(SEEN, CPU_SERVER, "") == []


def test_without_a_process_the_reason_is_said() -> None:
    blind = replace(SEEN, process=Process(Outcome.UNSUPPORTED))
    (line,) = blind_spots(blind, CPU_SERVER, "port 8080 is served by nginx")
    assert "port 8080 is served by nginx" in line
    assert "no signals" in line


def test_without_rights_the_rights_are_named() -> None:
    narrow = replace(SEEN, process=process(read_bytes=None))
    (line,) = blind_spots(narrow, replace(CPU_SERVER, uses_gpu=None), "")
    assert "CAP_SYS_PTRACE" in line


def test_a_server_that_is_down_is_not_complained_about() -> None:
    down = replace(SEEN, slots=Slots(Outcome.REFUSED), process=Process(Outcome.UNSUPPORTED))
    assert blind_spots(down, CPU_SERVER, "nobody listens") == []
