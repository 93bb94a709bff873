"""What is said of what can be seen of a server, and of what can't."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import replace
from pathlib import Path

import pytest

from llama_watchdog.core.observation import (
    Gpu,
    Health,
    Metrics,
    Observation,
    Outcome,
    Process,
    Props,
    Slots,
    Thread,
    Unit,
)
from llama_watchdog.doctor import evidence, remedies
from llama_watchdog.doctor.finding import Finding, Works
from llama_watchdog.doctor.look import Look
from llama_watchdog.settings import ServerSettings
from llama_watchdog.supervisors.base import Supervised
from llama_watchdog.supervisors.systemctl import UnitState
from llama_watchdog.supervisors.systemd import SystemdUnit

UNIT = "llama-server.service"
SERVER = ServerSettings(name="chat")
PROCESS = Process(Outcome.OK, 42, 1000, threads=(Thread(42, "S", 0.0),), read_bytes=1, write_bytes=1)
SEEN = Observation(
    at=0.0,
    suspended=0.0,
    health=Health(Outcome.OK, 0.002),
    slots=Slots(Outcome.OK, 0.003),
    props=Props(Outcome.OK),
    metrics=Metrics(Outcome.OK),
    process=PROCESS,
)
LOOK = Look(SEEN, uses_gpu=False, files=True)


def by_check(found: list[Finding]) -> dict[str, Finding]:
    return {finding.check: finding for finding in found}


def slots(outcome: Outcome, server: ServerSettings = SERVER) -> Finding:
    return by_check(evidence.answers(server, replace(SEEN, slots=Slots(outcome))))["slots"]


def test_all_of_a_server_that_shows_all() -> None:
    found = [*evidence.answers(SERVER, SEEN), *evidence.process(SERVER, LOOK, None, None)]
    assert [finding.check for finding in found] == [
        *("health", "slots", "props", "metrics"),
        *("process", "io", "fd", "gpu"),
    ]
    assert {finding.outcome for finding in found} == {Works.OK}
    assert found[1].text == "answered in 3 ms"


@pytest.mark.parametrize(
    ("outcome", "remedy"),
    [
        (Outcome.UNAUTHORIZED, 'config.toml, [servers.chat]: api_key_file = "FILE"'),
        (Outcome.UNSUPPORTED, "llama-server: without --no-slots (LLAMA_ARG_ENDPOINT_SLOTS=1)"),
        (
            Outcome.MALFORMED,
            'config.toml, [servers.chat]: url = "http://HOST:PORT", where llama-server itself listens',
        ),
    ],
)
def test_slots_that_cannot_be_had(outcome: Outcome, remedy: str) -> None:
    """The running watch says it as well: it is blind."""
    finding = slots(outcome)
    assert (finding.outcome, finding.remedy) == (Works.MISSING, remedy)
    assert finding.matters
    assert finding.watch_says


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (Outcome.REFUSED, "the server is down"),
        (Outcome.PENDING, "busy with a long step, or wedged"),
        (Outcome.TIMEOUT, "busy with a long step, or wedged"),
        (Outcome.LOADING, "it loads its model"),
        (Outcome.SKIPPED, "would wake it"),
        (Outcome.ERROR, "/slots fails"),
    ],
)
def test_slots_of_which_nothing_is_known(outcome: Outcome, text: str) -> None:
    finding = slots(outcome)
    assert finding.outcome is Works.UNKNOWN
    assert text in finding.text


def test_a_key_that_is_refused_is_not_shown() -> None:
    finding = slots(
        Outcome.UNAUTHORIZED, ServerSettings.model_validate({"name": "chat", "api_key": "sk-secret"})
    )
    assert finding.text == "/slots refuses the key"
    assert "sk-secret" not in repr(finding)


@pytest.mark.parametrize(
    ("wanted", "said", "matters"), [("auto", 1, False), ("on", 1, True), ("off", 0, False)]
)
def test_metrics_matter_where_they_are_wanted(wanted: str, said: int, matters: bool) -> None:
    server = ServerSettings.model_validate({"name": "chat", "probe": {"metrics": wanted}})
    found = evidence.answers(server, replace(SEEN, metrics=Metrics(Outcome.UNSUPPORTED)))
    metrics = [finding for finding in found if finding.check == "metrics"]
    assert len(metrics) == said
    assert all((finding.outcome, finding.matters) == (Works.MISSING, matters) for finding in metrics)


def test_another_users_process_shows_less_and_is_judged_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(remedies, "_capability_sets", dict)
    process = replace(PROCESS, read_bytes=None, write_bytes=None)
    look = replace(LOOK, seen=replace(SEEN, process=process), files=False)
    found = by_check(evidence.process(SERVER, look, None, None))
    for check in ("io", "fd"):
        assert found[check].outcome is Works.MISSING
        assert not found[check].matters
        assert found[check].remedy.endswith(": AmbientCapabilities=CAP_SYS_PTRACE CAP_DAC_READ_SEARCH")
    assert found["process"].outcome is found["gpu"].outcome is Works.OK


@pytest.mark.parametrize(
    ("uses", "gpu", "outcome", "watch_says"),
    [
        (True, Gpu(Outcome.OK, busy=0.5), Works.OK, False),
        (True, Gpu(Outcome.TIMEOUT), Works.UNKNOWN, False),
        (True, Gpu(Outcome.UNSUPPORTED), Works.MISSING, False),
        (None, None, Works.MISSING, True),
    ],
)
def test_a_gpu(uses: bool | None, gpu: Gpu | None, outcome: Works, watch_says: bool) -> None:
    look = replace(LOOK, seen=replace(SEEN, gpu=gpu), uses_gpu=uses)
    finding = by_check(evidence.process(SERVER, look, None, None))["gpu"]
    assert (finding.outcome, finding.watch_says) == (outcome, watch_says)
    assert finding.matters


def test_nvidias_load_takes_a_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(evidence, "_NVIDIA", (tmp_path,))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    look = replace(LOOK, seen=replace(SEEN, gpu=Gpu(Outcome.UNSUPPORTED)), uses_gpu=True)
    finding = by_check(evidence.process(SERVER, look, None, None))["gpu"]
    assert finding.remedy == "pip install 'llama-watchdog[nvidia]'"


@pytest.mark.parametrize(
    ("why", "remedy"),
    [
        ("port 8080 is served by nginx (pid 7), not by llama-server", "unit = "),
        ("example.org is not this machine", "run llama-watchdog on the machine of the server"),
    ],
)
def test_a_process_that_cannot_be_told(why: str, remedy: str) -> None:
    look = Look(replace(SEEN, process=Process(Outcome.UNSUPPORTED)), why)
    (finding,) = evidence.process(SERVER, look, None, None)
    assert finding.outcome is Works.MISSING
    assert why in finding.text
    assert remedy in finding.remedy


def test_a_server_that_is_down_is_no_process_that_is_missing() -> None:
    gone = replace(SEEN, health=Health(Outcome.REFUSED), process=Process(Outcome.UNSUPPORTED))
    (finding,) = evidence.process(SERVER, Look(gone, "nothing listens on port 8080"), None, None)
    assert finding.outcome is Works.UNKNOWN
    assert finding.text == "the server is down: nothing listens on port 8080"


# Who runs it


@pytest.mark.parametrize(
    ("unit", "outcome", "text", "remedy"),
    [
        (Unit(Outcome.OK, "loaded", "active"), Works.OK, "is active, with Restart=on-failure", ""),
        (Unit(Outcome.OK, "loaded", "inactive"), Works.OK, "is inactive, with Restart=on-failure", ""),
        (Unit(Outcome.OK, "masked"), Works.MISSING, "is masked", f"systemctl unmask {UNIT}"),
        (Unit(Outcome.OK, "not-found"), Works.MISSING, "is not-found", 'unit = "chat.service"'),
        (
            Unit(Outcome.ERROR),
            Works.MISSING,
            "can't be asked for: no bus",
            "User=llama-watchdog, DynamicUser=no",
        ),
        (Unit(Outcome.TIMEOUT), Works.UNKNOWN, "can't be asked for: no bus", ""),
    ],
)
def test_a_unit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, unit: Unit, outcome: Works, text: str, remedy: str
) -> None:
    """`chat.service` is what the process was found in."""
    monkeypatch.setattr(evidence, "_BOOTED", tmp_path)
    state = UnitState(unit, why="no bus", restart="on-failure")
    look = replace(LOOK, unit="chat.service")
    finding = evidence.supervisor(SERVER, SystemdUnit(UNIT), state, look)
    assert (finding.outcome, finding.text) == (outcome, f"{UNIT} {text}")
    assert finding.remedy.endswith(remedy)
    if unit.outcome is Outcome.ERROR:
        unseen = Look(replace(SEEN, process=Process(Outcome.UNSUPPORTED)), "no bus")
        (process,) = evidence.process(SERVER, unseen, SystemdUnit(UNIT), state)
        assert process.remedy == finding.remedy


def test_a_unit_without_systemd(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(evidence, "_BOOTED", tmp_path / "none")
    state = Supervised(Unit(Outcome.UNSUPPORTED), why="there is no systemctl here")
    finding = evidence.supervisor(SERVER, SystemdUnit(UNIT), state, None)
    assert finding.outcome is Works.MISSING
    assert finding.remedy.startswith("no systemd runs this machine")
