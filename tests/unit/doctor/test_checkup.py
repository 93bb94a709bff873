"""All checks together: within their time, whatever hangs, and what of them the daemon says at its start."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from llama_watchdog.core.action import Done, Result
from llama_watchdog.core.asking import Ask
from llama_watchdog.doctor import checkup, machine
from llama_watchdog.doctor.finding import Finding, Works, ok
from llama_watchdog.doctor.look import Look
from llama_watchdog.lock import TargetLock
from llama_watchdog.probes.llama_http import HttpFacts, LlamaHttp
from llama_watchdog.settings import ConfigError, ServerSettings, Settings, load
from llama_watchdog.settings.targets import listens_at
from llama_watchdog.simulator.launch import Simulated
from llama_watchdog.supervisors.base import Supervisor
from tests.support.supervisor import FakeSupervisor

NOBODY = "http://127.0.0.1:9"  # nobody listens there


@pytest.fixture(scope="module")
def server() -> Iterator[Simulated]:
    """An idle server of ours, so that everything of it can be seen."""
    with Simulated("--threads", "0") as simulated:
        yield simulated


@pytest.fixture(autouse=True)
def trials(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How often closing a connection was tried; what comes of that, and of tools, is test_machine.py's."""
    tried: list[str] = []

    async def done() -> Result:
        tried.append("cancel")
        return Result(Done.DONE, "closed 1 connection")

    monkeypatch.setattr(machine, "try_cancel", done)
    monkeypatch.setattr(machine, "tools", lambda _servers: [])
    return tried


def settings(folder: Path, *servers: str, more: str = "") -> Settings:
    """Those of servers with these urls."""
    path = folder / "config.toml"
    text = "".join(f'[servers.s{number}]\nurl = "{url}"\n' for number, url in enumerate(servers))
    path.write_text(f'state_dir = "{folder}"\n{more}\n{text}')
    return load(path)


def examine(settings: Settings, supervisor: Supervisor | None = None) -> dict[tuple[str, str], Finding]:
    found = asyncio.run(checkup.examine(settings, supervisor))
    assert len({(finding.server, finding.check) for finding in found}) == len(found)
    return {(finding.server, finding.check): finding for finding in found}


def said_at_start(settings: Settings, supervisor: Supervisor | None = None) -> list[tuple[str, str]]:
    said: list[tuple[str, str]] = []
    asyncio.run(checkup.self_test(settings, supervisor, lambda *line: said.append(line)))
    return said


def test_each_server_of_its_own_and_the_machine_once(
    server: Simulated, tmp_path: Path, trials: list[str]
) -> None:
    found = examine(settings(tmp_path, server.url, NOBODY))
    seen = ["health", "slots", "props", "metrics", "process", "io", "fd", "gpu"]
    rungs = ["lock", "cancel", "sigterm", "sigkill", "restart"]
    assert [check for name, check in found if name == "s0"] == [*seen, *rungs]
    assert [check for name, check in found if name == "s1"] == [*seen[:5], *rungs]
    assert ("", "state") in found
    assert found["s0", "process"].outcome is Works.OK
    assert found["s0", "sigkill"].text == f"pid {server.pid} can be signalled"
    assert server.process.poll() is None
    assert found["s1", "process"].outcome is Works.UNKNOWN
    assert trials == ["cancel"]


def test_a_dry_run_tries_nothing(server: Simulated, tmp_path: Path, trials: list[str]) -> None:
    found = examine(settings(tmp_path, server.url, more="dry_run = true"))
    for rung in ("cancel", "sigterm", "sigkill"):
        assert found["s0", rung].text == "not tried in a dry run"
    assert trials == []


def test_rungs_that_are_not_in_the_ladder_are_not_missed(server: Simulated, tmp_path: Path) -> None:
    text = '[defaults.escalation]\nladder = ["sigkill"]'
    found = examine(settings(tmp_path, server.url, more=text))
    assert {check for _, check in found} & {"cancel", "sigterm", "sigkill"} == {"sigkill"}


def test_who_has_the_lock(server: Simulated, tmp_path: Path) -> None:
    """It is not taken away from the daemon, nor kept from it."""
    lock = TargetLock(listens_at(server.url))
    assert examine(settings(tmp_path, server.url))["s0", "lock"].text == "no other watchdog has it"
    assert lock.take() == ""
    assert "watches it" in examine(settings(tmp_path, server.url))["s0", "lock"].text
    lock.release()


def test_what_hangs_is_said_and_holds_up_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(_server: ServerSettings, _supervisor: Supervisor | None, *, metrics: bool) -> Look:  # noqa: ARG001 - as the real one
        await asyncio.Event().wait()
        raise AssertionError

    async def hang_too() -> Result:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(checkup, "look_at", hang)
    monkeypatch.setattr(machine, "try_cancel", hang_too)
    monkeypatch.setattr(checkup, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(checkup, "_TRY_SECONDS", 0.01)
    found = examine(settings(tmp_path, NOBODY))
    for check in ("process", "cancel", "sigterm", "sigkill"):
        assert found["s0", check].outcome is Works.UNKNOWN, found["s0", check]
    assert "no answer within" in found["s0", "process"].text
    assert "tried in vain" in found["s0", "cancel"].text


def test_a_key_that_cannot_be_read(tmp_path: Path) -> None:
    more = f'[defaults]\napi_key_file = "{tmp_path}/none"'
    with pytest.raises(ConfigError, match="api_key_file"):
        examine(settings(tmp_path, NOBODY, more=more))


def test_a_sleeping_server_sleeps_on(tmp_path: Path) -> None:
    with Simulated("--threads", "0", "--metrics", "--sleep-idle-seconds", "50ms") as sleeper:
        httpx.post(f"{sleeper.url}/completion", json={"prompt": "a", "n_predict": 1})
        while not httpx.get(f"{sleeper.url}/props").json()["is_sleeping"]:
            pass
        found = examine(settings(tmp_path, sleeper.url))
        assert "would wake it" in found["s0", "slots"].text
        assert httpx.get(f"{sleeper.url}/props").json()["is_sleeping"]
        assert found["s0", "metrics"].outcome is Works.UNKNOWN


def test_cut_short_it_leaves_nothing_behind(
    server: Simulated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by the daemon's end, while all wait for the trial: it ends what it has started, and all is over."""
    reaped: list[bool] = []
    looked = asyncio.Event()

    async def hang() -> Result:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # as whoever has to reap a program first
            reaped.append(True)
        raise AssertionError

    def lock(server: ServerSettings) -> Finding:
        looked.set()
        return ok("lock", server.name, "")

    async def cut() -> set[str]:
        task = asyncio.create_task(checkup.examine(settings(tmp_path, server.url), FakeSupervisor()))
        await looked.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return {left.get_name() for left in asyncio.all_tasks() - {asyncio.current_task()}}

    monkeypatch.setattr(machine, "try_cancel", hang)
    monkeypatch.setattr(checkup, "_lock", lock)
    assert asyncio.run(cut()) == set()
    assert reaped == [True]


# The daemon's start


def test_at_the_start_only_what_is_missing_is_said(server: Simulated, tmp_path: Path) -> None:
    ((name, line),) = said_at_start(settings(tmp_path, server.url))
    assert name == "s0"
    assert line.startswith(
        "restart is missing: left to whoever started it; config.toml, [servers.s0]: unit = "
    )


def test_at_the_start_nothing_is_said_where_all_is_well(server: Simulated, tmp_path: Path) -> None:
    """Nor of a server that is down: nothing is known of it."""
    supervisor = FakeSupervisor()
    for url in (server.url, NOBODY):
        assert said_at_start(settings(tmp_path, url), supervisor) == []
    assert {asked[0] for asked in supervisor.asked} <= {"show", "environment"}


def test_at_the_start_nothing_is_said_that_the_watch_says(tmp_path: Path) -> None:
    with Simulated("--threads", "0", "--no-slots") as blind:
        wanted = settings(tmp_path, blind.url)
        assert examine(wanted, FakeSupervisor())["s0", "slots"].outcome is Works.MISSING
        assert said_at_start(wanted, FakeSupervisor()) == []


def test_at_the_start_nothing_is_said_of_what_was_chosen(server: Simulated, tmp_path: Path) -> None:
    chosen = '[defaults.restart]\nvia = "none"'
    assert said_at_start(settings(tmp_path, server.url, more=chosen)) == []


@pytest.mark.parametrize(("metrics", "scrapes"), [("auto", 0), ("on", 1)])
def test_at_the_start_metrics_are_scraped_where_that_is_wanted(
    server: Simulated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metrics: str, scrapes: int
) -> None:
    """Each scrape resets what the user's own monitoring reads. Here they are switched off."""
    asked: list[Ask] = []
    look = LlamaHttp.look

    async def noted(http: LlamaHttp, ask: Ask) -> HttpFacts:
        asked.append(ask)
        return await look(http, ask)

    monkeypatch.setattr(LlamaHttp, "look", noted)
    more = f'[defaults.probe]\nmetrics = "{metrics}"'
    said = said_at_start(settings(tmp_path, server.url, more=more), FakeSupervisor())
    assert sum(ask.metrics for ask in asked) == scrapes
    assert ["--metrics" in line for _, line in said] == [True] * scrapes
