"""What a container's state means, and what is asked of its engine: by exchanges recorded from real ones.

The fake engine here answers with what Docker and Podman have answered (tests/unit/data/containers), and tells
events as they do: those between two times.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from llama_watchdog import signals
from llama_watchdog.core.action import Done, Identity, Result
from llama_watchdog.core.observation import Outcome, Unit
from llama_watchdog.supervisors.base import Supervised
from llama_watchdog.supervisors.container import Container
from llama_watchdog.supervisors.engine_api import EngineApi

DATA = Path(__file__).parents[1] / "data/containers"
ENGINES: dict[str, dict[str, Any]] = {
    kind: json.loads((DATA / f"{kind}.json").read_text())
    for kind in ("docker-20.10", "podman-4.3", "podman-5.4")
}
ALL = tuple(ENGINES)


def ourselves() -> Identity:
    found = signals.identify(os.getpid())
    assert found is not None
    return found


@dataclass
class Engine:
    """An engine that has one container, in the state of a recorded scene. `asked`: what it was told to do."""

    scene: dict[str, Any]
    refuses: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    hangs: bool = False
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scene = copy.deepcopy(self.scene)
        if self.state.get("Pid"):
            self.state["Pid"] = os.getpid()  # the recorded one may be anybody's here

    @property
    def body(self) -> dict[str, Any]:
        found: dict[str, Any] = self.scene["inspect"]["body"]
        return found

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self.body.get("State", {})
        return found

    async def answer(self, request: httpx.Request) -> httpx.Response:
        path, query = request.url.path, request.url.params
        if path == "/events":
            return httpx.Response(200, text=self._events(query))
        if request.method == "POST":
            verb = path.rpartition("/")[2]
            self.asked.append(" ".join((verb, *query.values())))
            if self.hangs:
                raise httpx.ReadTimeout("")
            status, message = self.refuses.get(verb, (204, ""))
            return httpx.Response(status, json={"message": message} if message else None)
        inspect = self.scene["inspect"]
        if path.startswith("/v4.0.0/libpod/"):
            return httpx.Response(200, json=self.scene["native"])
        return httpx.Response(inspect["status"], json=self.body, headers=inspect["headers"])

    def _events(self, query: httpx.QueryParams) -> str:
        lines = self.scene["events"]["body"].splitlines()
        kinds = json.loads(query["filters"])["event"]
        told = [json.loads(line) for line in lines]
        if "libpod-api-version" in self.scene["inspect"]["headers"]:
            assert "until" not in query, "Podman tells nothing then"
        assert "until" in query or query["stream"] == "false", "this would never end"
        return "\n".join(
            json.dumps(event)
            for event in told
            if event["Action"] in kinds and event["timeNano"] / 1e9 >= float(query["since"])
        )

    def happens(self, action: str, at: float, **attributes: str) -> None:
        """One event more, so many seconds after its start."""
        event = {
            "Action": action,
            "Actor": {"Attributes": attributes},
            "timeNano": int((self.started + at) * 1e9),
        }
        self.scene["events"]["body"] += json.dumps(event) + "\n"

    @property
    def started(self) -> float:
        return datetime.fromisoformat(self.state["StartedAt"]).timestamp()

    def container(self, **options: Any) -> Container:
        transport = httpx.MockTransport(self.answer)
        return Container(
            "chat", engines=[EngineApi(Path("/run/engine.sock"), transport=transport)], **options
        )


@pytest.fixture(autouse=True)
def recorded_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wall clock stands at the end of the recordings, whose orders would else be forgotten by now."""
    ends = [
        json.loads(line)["timeNano"] / 1e9
        for engine in ENGINES.values()
        for scene in engine["scenes"].values()
        for line in scene.get("events", {"body": ""})["body"].splitlines()
    ]
    monkeypatch.setattr("llama_watchdog.supervisors.stop_orders.time.time", lambda: max(ends))


def scene(engine: str, name: str, **options: Any) -> Engine:
    return Engine(ENGINES[engine]["scenes"][name], **options)


def show(engine: Engine) -> Supervised:
    return asyncio.run(engine.container().show())


def restart(engine: Engine, ended: Identity | None = None) -> Result:
    return asyncio.run(engine.container().restart(ended))


# (scene, active, job, ordered, exit status)
STATES = [
    ("running", "active", "", False, None),
    ("created", "inactive", "", False, None),
    ("ended", "inactive", "", False, 0),
    ("crashed", "failed", "", False, 3),
    ("killed-outside", "failed", "", False, 137),
    ("term-outside", "inactive", "", False, 0),
    ("stopped-deaf", "failed", "", True, 137),
    ("killed", "failed", "", True, 137),
    ("killed-term", "inactive", "", True, 0),
    ("killed-term-deaf", "active", "stop", True, None),
    ("restarted", "active", "", False, None),
    ("restarted-deaf", "active", "", False, None),
    ("always-killed-outside", "active", "", False, None),
    ("always-looping-2", "activating", "", False, 3),
    ("always-killed-api", "failed", "", True, 137),
    ("unless-stopped-killed-api", "failed", "", True, 137),
    ("on-failure-clean", "inactive", "", False, 0),
    ("on-failure-exhausted", "failed", "", False, 3),
    ("unhealthy", "active", "", False, None),
]


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(("name", "active", "job", "ordered", "status"), STATES, ids=[s[0] for s in STATES])
def test_each_state_is_one_of_a_unit(
    kind: str, name: str, active: str, job: str, ordered: bool, status: int | None
) -> None:
    unit = show(scene(kind, name)).unit
    assert (unit.outcome, unit.load) == (Outcome.OK, "loaded")
    assert (unit.active, unit.job, unit.stop_ordered, unit.exit_status) == (active, job, ordered, status)


@pytest.mark.parametrize(
    ("kind", "name", "active", "job", "ordered"),
    [
        ("docker-20.10", "stopped", "inactive", "", True),
        ("podman-4.3", "stopped", "failed", "", True),  # its Docker API kills at once where no time is given
        ("docker-20.10", "always-stopped", "inactive", "", True),
        ("podman-4.3", "always-stopped", "failed", "", True),
        ("docker-20.10", "stopping", "active", "stop", True),
        ("podman-4.3", "stopping", "deactivating", "stop", True),
        ("podman-5.4", "stopped", "inactive", "", True),
        ("podman-5.4", "always-stopped", "inactive", "", True),
        ("podman-5.4", "stopping", "deactivating", "stop", True),
        ("docker-20.10", "paused", "active", "", False),
        ("docker-20.10", "killed-hup", "active", "", False),  # SIGURG, in fact: no order to end
        ("podman-4.3", "killed-hup", "active", "stop", True),  # Podman doesn't tell which signal it was
        ("podman-5.4", "killed-hup", "active", "stop", True),
    ],
)
def test_what_the_engines_do_differently(kind: str, name: str, active: str, job: str, ordered: bool) -> None:
    unit = show(scene(kind, name)).unit
    assert (unit.active, unit.job, unit.stop_ordered) == (active, job, ordered)


def test_a_running_container_has_its_process_and_the_group_named_after_it() -> None:
    engine = scene("docker-20.10", "running")
    state = show(engine)
    assert state.main_pid == os.getpid()
    assert state.control_group is None  # it shares ours, which holds more than it


@pytest.mark.parametrize(
    ("groups", "own"),
    [
        ("0::/system.slice/docker-ID.scope", "/system.slice/docker-ID.scope"),
        ("0::/machine.slice/libpod-ID.scope/container", "/machine.slice/libpod-ID.scope"),
        ("12:pids:/docker/ID\n1:name=systemd:/docker/ID\n0::/", "/docker/ID"),
        ("0::/user.slice", None),
    ],
)
def test_its_control_group(groups: str, own: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = scene("docker-20.10", "running")
    id_ = engine.body["Id"]
    monkeypatch.setattr(Path, "read_text", lambda *_a, **_k: groups.replace("ID", id_))
    assert show(engine).control_group == (own.replace("ID", id_) if own else None)


@pytest.mark.parametrize("kind", ALL)
def test_a_removed_container_is_not_found(kind: str) -> None:
    engine = scene(kind, "removed")
    assert show(engine).unit == Unit(Outcome.OK, load="not-found", active="inactive", sub="dead")
    assert restart(engine).outcome is Done.UNSUPPORTED
    assert asyncio.run(engine.container().signal(signal.SIGTERM)).outcome is Done.UNSUPPORTED
    assert engine.asked == []


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("running", ["restart 0"]),
        ("created", ["start"]),
        ("ended", ["start"]),
        ("crashed", ["start"]),
        ("killed-outside", ["start"]),
        ("on-failure-exhausted", ["start"]),
    ],
)
def test_a_server_that_is_down_is_started_and_a_running_one_restarted(
    kind: str, name: str, asked: list[str]
) -> None:
    engine = scene(kind, name)
    result = restart(engine)
    assert result.outcome is Done.DONE
    assert "container chat" in result.text
    assert engine.asked == asked


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        *((kind, "stopped", "was stopped by its admin") for kind in ALL),
        *((kind, "stopped-deaf", "stopped by its admin") for kind in ALL),
        *((kind, "killed", "stopped by its admin") for kind in ALL),
        *((kind, "always-stopped", "stopped by its admin") for kind in ALL),
        *((kind, "stopping", "being stopped by its admin") for kind in ALL),
        ("docker-20.10", "paused", "docker unpause chat"),
    ],
)
def test_the_admins_will_is_done(kind: str, name: str, said: str) -> None:
    engine = scene(kind, name)
    result = restart(engine)
    assert result.outcome is Done.FAILED
    assert said in result.text
    assert engine.asked == []


@pytest.mark.parametrize("kind", ALL)
def test_what_the_engine_restarts_itself_is_left_to_it(kind: str) -> None:
    engine = scene(kind, "always-looping-2")
    result = restart(engine)
    assert result.outcome is Done.DONE
    assert "the engine restarts container chat itself" in result.text
    assert engine.asked == []


def test_a_policy_that_was_quicker_is_not_restarted_again() -> None:
    engine, fresh = scene("docker-20.10", "always-killed-outside"), ourselves()
    result = restart(engine, ended=Identity(fresh.pid - 1, fresh.start_ticks - 1))
    assert result == Result(Done.DONE, "the engine has restarted container chat itself")
    assert engine.asked == []


def test_a_podman_that_has_lost_its_cleanup_does_not_restart_for_ever() -> None:
    times = iter((0.0, 0.0, 9.0, 11.0))
    container = scene("podman-4.3", "always-looping-2").container(clock=lambda: next(times))
    states = [asyncio.run(container.show()).unit.active for _ in range(3)]
    assert states == ["activating", "activating", "failed"]


def test_the_text_says_how_the_server_ended_and_what_its_healthcheck_said() -> None:
    how = "(its last process: signal, exit status 137)"
    assert (
        restart(scene("docker-20.10", "killed-outside")).text
        == f"asked the engine to start container chat {how}"
    )
    assert "HEALTHCHECK said unhealthy" in restart(scene("docker-20.10", "unhealthy")).text


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_goes_through_the_engine(kind: str, sig: signal.Signals) -> None:
    engine = scene(kind, "running")
    assert asyncio.run(engine.container().signal(sig)).outcome is Done.DONE
    assert engine.asked == [f"kill {sig.name}"]


@pytest.mark.parametrize("name", ["crashed", "always-looping-2"])
def test_where_nobody_is_left_nothing_is_asked(name: str) -> None:
    engine = scene("docker-20.10", name)
    result = asyncio.run(engine.container().signal(signal.SIGKILL))
    assert result == Result(Done.DONE, "nothing of container chat is running any more")
    assert engine.asked == []


def test_the_successor_of_the_wedged_server_is_never_signalled() -> None:
    engine, fresh = scene("docker-20.10", "running"), ourselves()
    older = Identity(fresh.pid - 1, fresh.start_ticks - 1)
    result = asyncio.run(engine.container().signal(signal.SIGKILL, older))
    assert result == Result(Done.FAILED, "container chat has been restarted meanwhile: not signalled")
    assert engine.asked == []


def test_a_server_that_has_just_been_killed_is_left_to_its_restart_policy() -> None:
    """Killed once more through the engine, it would be one that a user has stopped, and stay down."""
    engine, ours = scene("docker-20.10", "running"), ourselves()
    gone = Identity(ours.pid, ours.start_ticks + 1)  # the pid is another's: it has ended
    assert asyncio.run(engine.container().signal(signal.SIGKILL, gone)).outcome is Done.DONE
    assert engine.asked == []


def test_a_kill_that_the_engine_waits_for_has_been_sent() -> None:
    """Docker answers once the process has ended, and an unkillable one does not."""
    engine = scene("docker-20.10", "running", hangs=True)
    assert asyncio.run(engine.container().signal(signal.SIGKILL)).outcome is Done.DONE
    assert asyncio.run(engine.container().signal(signal.SIGTERM)).outcome is Done.FAILED


def test_our_own_kill_is_no_order_of_the_admins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Policies do not act for what was killed through the engine: it is for us to start it."""
    engine = scene("docker-20.10", "running")
    container = engine.container()
    monkeypatch.setattr("llama_watchdog.supervisors.stop_orders.time.time", lambda: engine.started + 5.0)

    async def kill_and_restart() -> Result:
        await container.signal(signal.SIGKILL)
        ended = {"Status": "exited", "Running": False, "Pid": 0, "ExitCode": 137}
        engine.state.update(ended, FinishedAt=engine.state["StartedAt"])
        engine.body["HostConfig"]["RestartPolicy"]["Name"] = "always"
        engine.happens("kill", 5.0, signal="9")
        return await container.restart()

    assert asyncio.run(kill_and_restart()).outcome is Done.DONE
    assert engine.asked == ["kill SIGKILL", "start"]


def test_a_stop_in_the_middle_of_our_ladder_is_the_admins(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = scene("docker-20.10", "running")
    container = engine.container()
    monkeypatch.setattr("llama_watchdog.supervisors.stop_orders.time.time", lambda: engine.started + 5.0)

    async def term_then_stopped() -> Unit:
        await container.signal(signal.SIGTERM)
        engine.happens("kill", 5.0, signal="15")
        assert (await container.show()).unit.job == ""
        engine.happens("kill", 6.0, signal="15")
        return (await container.show()).unit

    assert asyncio.run(term_then_stopped()).job == "stop"


@pytest.mark.parametrize("kind", ALL)
def test_an_order_to_stop_that_the_server_has_long_outlived_is_forgotten(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = scene(kind, "killed-term-deaf")
    monkeypatch.setattr("llama_watchdog.supervisors.stop_orders.time.time", lambda: engine.started + 700.0)
    assert show(engine).unit.job == ""


@pytest.mark.parametrize(("stop_signal", "job"), [("SIGUSR1", "stop"), ("10", "stop"), ("SIGTERM", "")])
def test_the_stop_signal_of_its_image_is_an_order_to_stop(stop_signal: str, job: str) -> None:
    engine = scene("docker-20.10", "running")
    engine.body["Config"]["StopSignal"] = stop_signal
    engine.happens("kill", 0.2, signal="10")
    assert show(engine).unit.job == job


def test_podmans_stop_is_remembered_where_it_was_seen() -> None:
    """Nothing that came later may tell of it: here its events are gone."""
    engine = scene("podman-4.3", "stopping")
    container = engine.container()

    async def stop() -> Unit:
        await container.show()
        engine.state.update(Status="exited", Pid=0, ExitCode=137, FinishedAt=engine.state["StartedAt"])
        engine.scene["events"]["body"] = ""
        return (await container.show()).unit

    assert asyncio.run(stop()).stop_ordered


def test_a_container_that_could_not_be_started_has_failed() -> None:
    """Docker leaves one whose port is taken in the state created, with an exit code and the reason."""
    engine = scene(
        "docker-20.10", "created", refuses={"start": (500, "driver failed:\n port is already allocated")}
    )
    engine.state.update(Error="port is already allocated", ExitCode=128)
    assert show(engine).unit.active == "failed"
    result = restart(engine)
    assert result.outcome is Done.FAILED
    assert result.text == "restart of container chat: driver failed: port is already allocated"


@pytest.mark.parametrize("kind", ALL)
def test_its_environment(kind: str) -> None:
    container = scene(kind, "environment").container()
    assert asyncio.run(container.environment(("LLAMA_ARG_PORT", "OTHER"))) == {"LLAMA_ARG_PORT": "8080"}
    assert asyncio.run(scene(kind, "removed").container().environment(("A",))) is None


def test_the_engine_that_has_it_is_asked() -> None:
    """Where Docker and Podman are both here."""
    empty, has = scene("docker-20.10", "removed"), scene("podman-4.3", "crashed")
    engines = [
        EngineApi(Path("/run/a.sock"), transport=httpx.MockTransport(each.answer)) for each in (empty, has)
    ]
    assert asyncio.run(Container("chat", engines=engines).restart()).outcome is Done.DONE
    assert (empty.asked, has.asked) == ([], ["start"])


def test_an_engine_that_is_away_is_no_stopped_container(tmp_path: Path) -> None:
    container = Container("chat", engines=[EngineApi(tmp_path / "none.sock")])
    state = asyncio.run(container.show())
    assert state.unit == Unit(Outcome.UNSUPPORTED)
    assert "podman.socket" in state.why
    for result in (asyncio.run(container.restart()), asyncio.run(container.signal(signal.SIGTERM))):
        assert result.outcome is Done.UNSUPPORTED
        assert "podman.socket" in result.text
    assert asyncio.run(container.environment(("A",))) is None
