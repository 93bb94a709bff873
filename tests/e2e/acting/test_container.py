"""A server in a container: its engine starts what wedged or died, and its admin's stop is respected."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.ground import package
from tests.e2e.ground.events import actions
from tests.e2e.ground.podman import Podman, Server
from tests.e2e.ground.waiting import stays_true, wait_until
from tests.e2e.ground.watchdog import Watchdog, running

CONFIG = """
[servers.chat]
url = "{url}"
container = "{name}"
[servers.chat.probe]
interval = "1s"
slots_timeout = "3s"
[servers.chat.stall]
blocked = "6s"
"""


@pytest.fixture(scope="module")
def podman(tree: Path) -> Iterator[Podman]:
    if shutil.which("podman") is None or shutil.which("crun") is None:
        if os.environ.get("CI"):
            pytest.fail("podman and crun are not installed")
        pytest.skip("podman and crun are not installed")
    with Podman(package.dependency_layer(tree), tree) as engine:
        yield engine


@pytest.fixture
def watched(
    podman: Podman, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[tuple[Server, Watchdog]]:
    """A server in a container, its restart policy the parameter, and a watchdog that knows it."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{podman.socket}")
    name = f"chat-{request.node.name.partition('[')[0][:40]}-{os.getpid()}"
    server = podman.serve(name, "--second-sigterm", "hangs", restart=getattr(request, "param", "no"))
    config = tmp_path / "config.toml"
    config.write_text(CONFIG.format(url=server.url, name=name))
    try:
        with running(tmp_path, "run", "--config", config) as watchdog:
            watchdog.wait_for(10, verdict="idle")
            yield server, watchdog
    finally:
        podman.remove(name)


@contextmanager
def brought_back(server: Server, within: float) -> Iterator[None]:
    """What is done to it within ends with exactly one new incarnation that serves, in time."""
    before = server.started
    yield
    began = time.monotonic()
    try:
        wait_until(lambda: server.started != before and server.serves(), within, "the server to serve again")
    except TimeoutError as error:
        pytest.fail(f"{error}\n{server.status}")
    took = time.monotonic() - began
    after = server.started
    assert after != before
    stays_true(lambda: server.started == after, 3.0, "exactly one start of the server")
    print(f"served again after {took:.1f} s")  # noqa: T201 - a figure


def test_a_wedged_server_serves_again(watched: tuple[Server, Watchdog]) -> None:
    """It ignores every SIGTERM, and nobody but the watchdog starts it."""
    server, watchdog = watched
    with brought_back(server, within=30.0):
        server.strike("block")
    assert watchdog.wait_for(1, event="verdict", verdict="wedged")["evidence"] == "blocked", watchdog.text
    watchdog.wait_for(10, action="restart", outcome="healed")
    started = watchdog.wait_for(1, action="restart", outcome="started")
    assert "asked the engine to start container chat" in started["text"]
    assert actions(watchdog.events())[-2:] == ["sigkill", "restart"], watchdog.text


def test_a_killed_server_is_started(watched: tuple[Server, Watchdog]) -> None:
    server, watchdog = watched
    with brought_back(server, within=15.0):
        os.kill(server.pid, signal.SIGKILL)
    watchdog.wait_for(10, action="restart", outcome="healed")
    assert actions(watchdog.events()) == ["restart"], watchdog.text


@pytest.mark.parametrize("watched", ["always"], indirect=True)
@pytest.mark.parametrize("wedged", [False, True], ids=["killed", "wedged"])
def test_its_restart_policy_is_not_interfered_with(watched: tuple[Server, Watchdog], wedged: bool) -> None:
    """The engine starts it itself as soon as it has ended, and nobody starts it once more."""
    server, watchdog = watched
    with brought_back(server, within=30.0):
        if wedged:
            server.strike("block")
        else:
            os.kill(server.pid, signal.SIGKILL)
    assert "asked the engine" not in watchdog.text


@pytest.mark.parametrize("watched", ["no", "always"], indirect=True)
def test_a_stopped_server_stays_stopped(podman: Podman, watched: tuple[Server, Watchdog]) -> None:
    """`podman stop` is a person's will; and once the person starts it again, it is watched as before."""
    server, watchdog = watched
    podman.run("stop", server.name)
    stays_true(lambda: server.status == "exited", 7.0, "the server is stopped")
    assert actions(watchdog.events()) in ([], ["hold"]), watchdog.text

    podman.run("start", server.name)
    wait_until(server.serves, 10.0, "the server to serve for its admin")
    wait_until(lambda: _last_verdict(watchdog) == "idle", 10.0, "the watchdog to see it")
    with brought_back(server, within=20.0):
        os.kill(server.pid, signal.SIGKILL)


def test_stopping_a_wedged_server_is_left_to_the_admin(
    podman: Podman, watched: tuple[Server, Watchdog]
) -> None:
    """The stop hangs on the wedge while the watchdog climbs its ladder: the container ends stopped."""
    server, watchdog = watched
    server.strike("block")
    wait_until(lambda: _last_verdict(watchdog) in ("suspect", "wedged"), 10.0, "the watchdog to suspect it")
    podman.run("stop", "--time", "4", server.name)
    stays_true(lambda: server.status == "exited", 7.0, "the server is stopped")
    assert "restart" not in actions(watchdog.events()), watchdog.text


def _last_verdict(watchdog: Watchdog) -> str:
    verdicts = [event["verdict"] for event in watchdog.events() if event["event"] == "verdict"]
    return str(verdicts[-1]) if verdicts else ""
