"""`check`: what one look says, and its exit code."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from llama_watchdog.cli import main
from llama_watchdog.simulator.faults import Fault
from llama_watchdog.simulator.launch import Simulated

NOBODY = "http://127.0.0.1:9"  # nobody listens there
KEY = "sk-not-for-your-eyes"


@pytest.fixture(scope="module")
def server() -> Iterator[Simulated]:
    """An idle server, that is left as it was found."""
    with Simulated("--threads", "0", "--slots", "2") as simulated:
        yield simulated


@pytest.fixture(scope="module")
def locked() -> Iterator[Simulated]:
    """One without /slots, and with a key."""
    with Simulated("--threads", "0", "--no-slots", "--api-key", KEY) as simulated:
        yield simulated


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_WATCHDOG_DEFAULTS__PROBE__SLOTS_TIMEOUT", "200ms")
    monkeypatch.setenv("LLAMA_WATCHDOG_DEFAULTS__PROBE__INTERVAL", "250ms")


def check(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    code = main(["check", *argv])
    told = capsys.readouterr()
    assert told.err == ""
    assert KEY not in told.out
    return code, told.out


def as_json(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, dict[str, Any]]:
    code, out = check(capsys, "--json", *argv)
    (line,) = out.splitlines()
    value: dict[str, Any] = json.loads(line)
    assert (value["v"], value["event"]) == (1, "check")
    return code, value


def test_an_idle_server_is_fine(server: Simulated, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = check(capsys, "--url", server.url)
    assert code == 0
    first, *below = out.splitlines()
    assert first == "default  idle  every slot is idle"
    assert any(line.startswith("health   ok in ") for line in below)
    assert f"process  pid {server.pid}, state " in out
    assert "at work  0 of 2 slots" in out
    assert all(line == line.rstrip() for line in out.splitlines())


def test_the_same_as_json(server: Simulated, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = as_json(capsys, "--url", server.url)
    assert code == 0
    assert (told["verdict"], told["url"], told["text"]) == ("idle", server.url, "every slot is idle")
    assert told["probes"]["slots"].startswith("ok in ")


def test_a_server_at_work_is_fine(server: Simulated, capsys: pytest.CaptureFixture[str]) -> None:
    """And what it works on is nobody's business."""
    body = {"prompt": "a private matter", "n_predict": -1, "stream": True}
    with httpx.stream("POST", f"{server.url}/completion", json=body, timeout=10) as stream:
        lines = stream.iter_lines()  # closes the connection once it is forgotten
        next(lines)
        code, out = check(capsys, "--url", server.url)
    assert code == 0
    assert out.startswith("default  busy  ")
    assert "at work  1 of 2 slots" in out
    assert "private" not in out


def test_one_look_at_a_hang_proves_nothing_and_a_longer_one_does(
    server: Simulated, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.strike(Fault.HANG_SLOTS)
    try:
        code, out = check(capsys, "--url", server.url)
        assert code == 3
        first = out.splitlines()[0]
        assert first.startswith("default  suspect  /slots did not answer in time: ")
        assert first.endswith("try --watch 1m")
        monkeypatch.setenv("LLAMA_WATCHDOG_DEFAULTS__STALL__BLOCKED", "250ms")
        code, told = as_json(capsys, "--url", server.url, "--watch", "1.3s")
        assert (code, told["verdict"], told["reason"]) == (1, "wedged", "slots-hang")
    finally:
        server.strike(Fault.NONE)


def test_a_server_that_loads_does_not_serve_yet(capsys: pytest.CaptureFixture[str]) -> None:
    with Simulated("--threads", "0", "--load-seconds", "30") as loading:
        code, told = as_json(capsys, "--url", loading.url)
    assert (code, told["verdict"]) == (1, "loading")


def test_a_refused_connection_is_down(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = check(capsys, "--url", NOBODY)
    assert code == 1
    assert out.splitlines()[0].startswith("default  down  connections have been refused")
    assert "process  nothing listens on port 9" in out


def test_without_slots_it_is_blind_and_says_what_would_help(
    locked: Simulated, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out = check(capsys, "--url", locked.url)
    assert code == 3
    assert "blind  nothing can be seen of its slots: /slots wants an API key; set api_key_file" in out
    key = tmp_path / "key"
    key.write_text(KEY)
    config = tmp_path / "config.toml"
    config.write_text(f'[servers.chat]\nurl = "{locked.url}"\napi_key_file = "{key}"\n')
    code, out = check(capsys, "--config", str(config))
    assert code == 3
    assert "/slots is switched off; start llama-server without --no-slots" in out


def test_a_sleeping_server_is_fine_and_sleeps_on(capsys: pytest.CaptureFixture[str]) -> None:
    """GET /slots would load its model again."""
    with Simulated("--threads", "0", "--sleep-idle-seconds", "50ms") as sleeper:
        httpx.post(f"{sleeper.url}/completion", json={"prompt": "a", "n_predict": 1})
        while not httpx.get(f"{sleeper.url}/props").json()["is_sleeping"]:
            pass
        code, told = as_json(capsys, "--url", sleeper.url)
        assert (code, told["verdict"]) == (0, "sleeping")
        assert httpx.get(f"{sleeper.url}/props").json()["is_sleeping"]


# Which server


@pytest.fixture
def several(server: Simulated, tmp_path: Path) -> str:
    """A configuration of one server that runs and one that doesn't."""
    config = tmp_path / "config.toml"
    config.write_text(
        f'[servers.chat]\nurl = "{server.url}"\n[servers.code]\nurl = "{NOBODY}"\napi_key = "{KEY}"\n'
    )
    return str(config)


def test_every_configured_server_is_looked_at_and_the_worst_counts(
    several: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = check(capsys, "--json", "--config", several)
    assert code == 1
    assert [json.loads(line)["server"] for line in out.splitlines()] == ["chat", "code"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_url_picks_the_server_that_is_configured_with_it(
    server: Simulated, several: str, capsys: pytest.CaptureFixture[str], host: str
) -> None:
    code, told = as_json(capsys, "--config", several, "--url", server.url.replace("127.0.0.1", host))
    assert (code, told["server"]) == (0, "chat")


@pytest.mark.parametrize("which", ["several", "one"])
def test_a_url_that_is_not_configured_is_a_server_of_its_own(
    several: str, capsys: pytest.CaptureFixture[str], which: str
) -> None:
    """With no other server's key."""
    if which == "one":
        Path(several).write_text(f'[servers.code]\nurl = "{NOBODY}"\napi_key = "{KEY}"\n')
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        stranger.settimeout(2)
        url = f"http://127.0.0.1:{stranger.getsockname()[1]}"
        code, told = as_json(capsys, "--config", several, "--url", url)
        asked = b""
        for _ in range(3):
            connection, _ = stranger.accept()
            with connection:
                asked += connection.recv(4096)
    assert (code, told["server"], told["url"]) == (3, "default", url)
    assert b"GET /slots" in asked
    assert KEY.encode() not in asked
