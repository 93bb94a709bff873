"""How a container engine is found, asked and understood: over a real unix socket, and by recorded answers."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from llama_watchdog.core.observation import Outcome
from llama_watchdog.supervisors import engine_api
from llama_watchdog.supervisors.engine_answers import Inspected
from llama_watchdog.supervisors.engine_api import EngineApi, EngineError

DATA = Path(__file__).parents[1] / "data/containers"
DOCKER = json.loads((DATA / "docker-20.10.json").read_text())
PODMAN = json.loads((DATA / "podman-4.3.json").read_text())
PODMAN_5 = json.loads((DATA / "podman-5.4.json").read_text())
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def answering(status: int, body: str | bytes = "", **headers: str) -> EngineApi:
    def answer(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, content=body, headers=headers)

    return EngineApi(Path("/run/engine.sock"), transport=httpx.MockTransport(answer))


def inspected(body: dict[str, Any]) -> Inspected:
    found = asyncio.run(answering(200, json.dumps(body)).inspect("chat", timeout=5.0))
    assert found is not None
    return found


def served(path: Path, serve: Serve, ask: Callable[[EngineApi], Awaitable[object]]) -> object:
    """What `ask` gets from an engine on a real socket, which answers a connection with `serve`."""

    async def both() -> object:
        async with await asyncio.start_unix_server(serve, path):
            return await ask(EngineApi(path))

    return asyncio.run(both())


@pytest.fixture
def listening(tmp_path: Path) -> Path:
    path = tmp_path / "engine.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    return path


def test_a_question_goes_over_the_socket_without_a_version(tmp_path: Path) -> None:
    """A fixed version would be refused by engines that are older, or much newer."""
    asked = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0])
        body = json.dumps(DOCKER["scenes"]["killed-outside"]["inspect"]["body"]).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    found = served(tmp_path / "s", serve, lambda api: api.inspect("a/b?c", timeout=5.0))
    assert asked == [b"GET /containers/a%2Fb%3Fc/json HTTP/1.1"]
    assert isinstance(found, Inspected)
    assert (found.status, found.exit_code, found.policy, found.podman) == ("exited", 137, "no", False)
    assert 0.0 < found.finished - found.started < 2.0


@pytest.mark.parametrize(
    ("engine", "exchange", "said"),
    [
        (DOCKER, "kill exited", "is not running"),
        (PODMAN, "kill exited", "can only kill running containers"),
        (PODMAN_5, "kill exited", "can only kill running containers"),
        (DOCKER, "kill missing", "No such container: nobody"),
        (PODMAN, "kill missing", 'no container with name or ID "nobody" found'),
        (DOCKER, "bad signal", "Invalid signal: SIGNONE"),
        (PODMAN, "bad signal", "invalid signal: SIGNONE"),
        (DOCKER, "too new", "client version 9.99 is too new"),
    ],
)
def test_a_refusal_is_told_in_the_engines_words(engine: dict[str, Any], exchange: str, said: str) -> None:
    recorded = engine["exchanges"][exchange]
    api = answering(recorded["status"], recorded["body"])
    with pytest.raises(EngineError) as caught:
        asyncio.run(api.kill("nobody", signal.SIGTERM, timeout=5.0))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.outcome is Outcome.ERROR


@pytest.mark.parametrize("engine", [DOCKER, PODMAN, PODMAN_5])
def test_starting_what_runs_already_is_no_error(engine: dict[str, Any]) -> None:
    recorded = engine["exchanges"]["start running"]
    asyncio.run(answering(recorded["status"], recorded["body"]).start("chat", timeout=5.0))


@pytest.mark.parametrize(
    ("api", "outcome", "said"),
    [
        pytest.param(answering(500, "<html>"), Outcome.ERROR, "HTTP status 500", id="not in its words"),
        pytest.param(answering(200, "<html>"), Outcome.MALFORMED, "not with JSON", id="no JSON"),
        pytest.param(answering(200, "[]"), Outcome.MALFORMED, "not with JSON", id="no object"),
        pytest.param(answering(200, b"x" * 1_100_000), Outcome.MALFORMED, "more than 1 MB", id="endless"),
    ],
)
def test_what_is_no_answer(api: EngineApi, outcome: Outcome, said: str) -> None:
    with pytest.raises(EngineError, match=said) as caught:
        asyncio.run(api.inspect("chat", timeout=5.0))
    assert caught.value.outcome is outcome


def test_an_engine_that_hangs_is_waited_for_no_longer_than_that(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the client gives up
        writer.close()

    with pytest.raises(EngineError, match=r"no answer on .* within 0\.05 s") as caught:
        served(tmp_path / "s", serve, lambda api: api.inspect("chat", timeout=0.05))
    assert caught.value.outcome is Outcome.TIMEOUT


def test_a_socket_nobody_listens_on(listening: Path) -> None:
    with pytest.raises(EngineError) as caught:
        asyncio.run(EngineApi(listening).inspect("chat", timeout=5.0))
    assert caught.value.outcome is Outcome.ERROR
    assert str(caught.value).startswith(f"{listening}: ")


def test_without_the_right_the_remedy_is_said(listening: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root nothing is denied, so that the denial itself is made up here."""
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(EngineError, match="the group docker, which is as good as root") as caught:
        asyncio.run(EngineApi(listening).inspect("chat", timeout=5.0))
    assert caught.value.outcome is Outcome.UNSUPPORTED


def test_without_a_socket_the_remedy_is_said(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"systemctl --user enable --now podman\.socket") as caught:
        asyncio.run(EngineApi(tmp_path / "none").inspect("chat", timeout=5.0))
    assert caught.value.outcome is Outcome.UNSUPPORTED


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({"DOCKER_HOST": "unix:///srv/d.sock", "CONTAINER_HOST": "unix:///srv/c.sock"}, "/srv/d.sock"),
        ({"DOCKER_HOST": "tcp://box:2375", "CONTAINER_HOST": "unix:///srv/c.sock"}, "/srv/c.sock"),
    ],
)
def test_a_socket_that_is_named_is_the_only_one(environ: dict[str, str], found: str) -> None:
    assert engine_api.sockets(environ) == [Path(found)]


def test_a_users_podman_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "podman").mkdir()
    path = tmp_path / "podman/podman.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    assert path in engine_api.sockets({"XDG_RUNTIME_DIR": str(tmp_path)})
    monkeypatch.setattr(engine_api, "_is_socket", lambda _path: False)
    with pytest.raises(EngineError, match="is Docker running"):
        engine_api.sockets({"XDG_RUNTIME_DIR": str(tmp_path)})


@pytest.mark.parametrize(
    ("text", "since_1970"),
    [
        ("1970-01-01T00:00:10.123456789Z", 10.123456),
        ("1970-01-01T02:00:10+02:00", 10.0),
        ("0001-01-01T00:00:00Z", 0.0),
        ("", 0.0),
        (None, 0.0),
    ],
)
def test_its_times(text: str | None, since_1970: float) -> None:
    assert inspected({"State": {"StartedAt": text}}).started == pytest.approx(since_1970)


def test_what_an_engine_leaves_out_is_as_in_a_container_that_never_ran() -> None:
    bodies: list[dict[str, Any]] = [{}, {"State": None, "HostConfig": [], "Config": {"Env": None}}]
    for body in bodies:
        found = inspected(body)
        assert (found.pid, found.exit_code, found.started, found.environment) == (None, 0, 0.0, ())
        assert (found.policy, found.stop_signal, found.health) == ("no", "SIGTERM", "")


@pytest.mark.parametrize(
    ("podman", "events"),
    [(False, [("kill", 15), ("kill", 9), ("stop", None)]), (True, [("cleanup", None), ("cleanup", None)])],
)
def test_its_events(podman: bool, events: list[tuple[str, int | None]]) -> None:
    recorded = (PODMAN if podman else DOCKER)["scenes"]["stopped-deaf"]
    container = inspected(recorded["inspect"]["body"])
    api = answering(200, recorded["events"]["body"])
    found = asyncio.run(api.stop_events(container, since=0.0, until=1.0, timeout=5.0))
    assert [(event.action, event.signal) for event in found] == events
    assert all(container.started < event.at < container.finished + 1.0 for event in found)
