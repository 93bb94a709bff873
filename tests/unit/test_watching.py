"""The watch of one server: the order of its turns, and what a new configuration changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llama_watchdog import log
from llama_watchdog.clock import WatchClock
from llama_watchdog.core.action import Done, Identity, Result
from llama_watchdog.core.asking import Ask
from llama_watchdog.core.events import Event
from llama_watchdog.core.observation import Observation, Outcome, Process, Watch
from llama_watchdog.core.standing import Order, Stage, Standing
from llama_watchdog.core.verdict import State
from llama_watchdog.parts import hands_of, observer_of
from llama_watchdog.settings import ConfigError, ServerSettings
from llama_watchdog.settings.schema import ProbeSettings, RestartSettings, StallSettings
from llama_watchdog.store import Pause, Wish
from llama_watchdog.supervisors.base import Supervised
from llama_watchdog.watching import ServerWatch
from tests.support.facts import CPU_SERVER, PID, seen, slot
from tests.support.supervisor import RUNNING, FakeSupervisor


class World:
    """Eyes that see what `see` makes of the time, and hands that note their orders; both note their turns."""

    def __init__(self, server: ServerSettings) -> None:
        self.turns: list[object] = []
        self.watch: Watch = CPU_SERVER
        self.fingerprint = None
        self.why = ""
        self.process = object()
        self.supervisor = None
        self.dry_run = False
        self.result = Result(Done.DONE, "done")
        self.at = 0.0
        self.attentive: list[bool] = []
        self.closed = False
        self.events: list[Event] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.see: Any = lambda at: seen(at, slot(busy=False))
        self.server_watch = ServerWatch(
            server,
            observer=self,  # type: ignore[arg-type]  # a stand-in
            hands=self,  # type: ignore[arg-type]  # a stand-in
            tell=self._tell,
            keep=lambda watch, observation: self.turns.append(("keep", watch.server, observation.at)),
        )
        self.server_watch.clock.now = lambda: self.at  # type: ignore[method-assign]  # time as told

    async def look(self, _clock: WatchClock, _ask: Ask, *, attentive: bool) -> Observation:
        self.turns.append("look")
        self.attentive.append(attentive)
        await self.gate.wait()
        seen: Observation = self.see(self.at)
        return seen

    async def do(self, order: Order) -> Result:
        self.turns.append(order.action.value)
        return self.result

    async def aclose(self) -> None:
        self.closed = True

    def _tell(self, event: Event) -> None:
        self.turns.append(event["verdict"] if event["event"] == "verdict" else event["outcome"])
        self.events.append(event)

    async def rounds(self, count: int) -> None:
        for _ in range(count):
            self.at = await self.server_watch.round()


async def until(true: Callable[[], bool]) -> None:
    """Until the watch has got so far."""
    async with asyncio.timeout(5.0):
        while not true():  # noqa: ASYNC110 - nobody sets an event for it
            await asyncio.sleep(0.001)


def gone(at: float) -> Observation:
    return Observation(at, process=Process(Outcome.GONE, PID, 1, "Z"))


CHAT = ServerSettings(name="chat", url="http://127.0.0.1:9")  # nobody listens there


# One round


def test_a_round_looks_keeps_judges_and_tells() -> None:
    async def play() -> World:
        world = World(CHAT)
        await world.rounds(1)
        return world

    world = asyncio.run(play())
    assert world.turns == ["look", ("keep", "default", 0.0), "idle"]
    assert world.server_watch.verdict is not None
    assert world.server_watch.verdict.state is State.IDLE
    assert world.at == 5.0


def test_an_order_is_carried_out_once_and_its_outcome_told() -> None:
    async def play() -> World:
        world = World(CHAT)
        await world.rounds(1)
        world.see = gone
        await world.rounds(8)
        return world

    world = asyncio.run(play())
    turns = [turn for turn in world.turns if isinstance(turn, str)]
    assert turns.count("restart") == 1
    at = turns.index("restart")
    assert turns[at - 1 : at + 2] == ["look", "restart", "started"]


def test_a_quiet_server_needs_no_attention_and_one_in_trouble_does() -> None:
    async def play() -> World:
        world = World(CHAT)
        await world.rounds(3)
        world.see = gone
        await world.rounds(2)
        return world

    assert asyncio.run(play()).attentive == [True, False, False, False, True]


def test_what_the_eyes_find_out_is_judged_by_in_the_same_round() -> None:
    async def play() -> World:
        world = World(CHAT)
        world.watch = Watch(server="chat", interval=2.0)
        await world.rounds(1)
        return world

    world = asyncio.run(play())
    assert world.at == 2.0
    assert world.events[0]["server"] == "chat"


def test_it_goes_on_until_cancelled_and_sleeps_until_the_next_look() -> None:
    async def play() -> tuple[World, int, bool]:
        world = World(CHAT)
        world.watch = Watch(interval=3600.0)
        task = asyncio.create_task(world.server_watch.run())
        await until(lambda: world.server_watch.rounds > 0)
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await world.server_watch.aclose()
        return world, world.server_watch.rounds, task.cancelled()

    world, rounds, cancelled = asyncio.run(play())
    assert (rounds, cancelled, world.closed) == (1, True, True)


def test_its_line_is_for_people() -> None:
    async def play() -> list[str]:
        world = World(CHAT)
        lines = [world.server_watch.line]
        await world.rounds(1)
        lines.append(world.server_watch.line)
        world.see = gone
        await world.rounds(1)
        return [*lines, world.server_watch.line]

    assert asyncio.run(play()) == [
        "chat: not looked at yet",
        "chat: idle",
        "chat: down (its process has ended)",
    ]


# A new configuration


def real(server: ServerSettings) -> ServerWatch:
    hands = hands_of(server, dry_run=False)
    return ServerWatch(server, observer=observer_of(server), hands=hands, tell=lambda _event: None)


async def reconfigured(watch: ServerWatch, server: ServerSettings) -> None:
    await watch.reconfigure(server, hands_of(server, dry_run=False))
    await watch.aclose()


def changed(server: ServerSettings, **keys: object) -> ServerSettings:
    return server.model_copy(update=keys)


def test_other_budgets_change_neither_eyes_nor_what_is_known() -> None:
    watch = real(CHAT)
    eyes, judge = watch.observer, watch.engine.judge
    stall = StallSettings(blocked=6.0)
    asyncio.run(reconfigured(watch, changed(CHAT, stall=stall)))
    assert watch.observer is eyes
    assert watch.engine.judge is judge
    assert watch.engine.policy.stall.blocked == 6.0


def test_other_timeouts_need_new_eyes_and_the_known_process_stays_known() -> None:
    watch = real(CHAT)
    eyes, process_probe, judge = watch.observer, watch.observer.process, watch.engine.judge
    probe = ProbeSettings(interval=1.0, slots_timeout=3.0)
    asyncio.run(reconfigured(watch, changed(CHAT, probe=probe)))
    assert watch.observer is not eyes
    assert watch.observer.process is process_probe
    assert watch.observer.watch.interval == 1.0
    assert watch.engine.judge is judge


def test_another_target_is_looked_for_anew() -> None:
    watch = real(CHAT)
    process_probe = watch.observer.process
    asyncio.run(reconfigured(watch, changed(CHAT, process_name="server")))
    assert watch.observer.process is not process_probe


def test_the_end_of_what_is_watched_is_seen_by_another_unit_s_eyes_too() -> None:
    async def play() -> Process:
        watch = real(CHAT)
        watch.engine.take_over(Standing(Stage.RESTARTING, 1, Identity(PID, 1)))
        unit = FakeSupervisor(state=Supervised(RUNNING))
        server = changed(CHAT, unit=unit.name)
        await watch.reconfigure(server, hands_of(server, dry_run=False, supervisor=unit))
        facts = await watch.observer.process.look()
        await watch.aclose()
        return facts.process

    ended = asyncio.run(play())
    assert (ended.outcome, ended.pid, ended.start_ticks) == (Outcome.GONE, PID, 1)


def test_replaced_eyes_are_closed() -> None:
    async def play() -> bool:
        world = World(CHAT)
        await reconfigured(world.server_watch, changed(CHAT, probe=ProbeSettings(slots_timeout=3.0)))
        return world.closed

    assert asyncio.run(play())


def test_a_new_configuration_waits_for_the_round_to_end() -> None:
    """Eyes that are closed in the middle of a look would take the whole watch with them."""

    async def play() -> tuple[bool, bool, bool]:
        world = World(CHAT)
        world.gate.clear()
        task = asyncio.create_task(world.server_watch.run())
        await until(lambda: bool(world.turns))
        server = changed(CHAT, process_name="server")
        hands = hands_of(server, dry_run=False)
        change = asyncio.create_task(world.server_watch.reconfigure(server, hands))
        await asyncio.sleep(0.01)
        closed_early = world.closed
        world.gate.set()
        await change
        alive = not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await world.server_watch.aclose()
        return closed_early, world.closed, alive

    assert asyncio.run(play()) == (False, True, True)


def test_a_new_configuration_wakes_a_sleeping_watch() -> None:
    """Whoever shortens the interval from an hour need not wait for the hour."""

    async def play() -> int:
        world = World(CHAT)
        world.watch = Watch(interval=3600.0)
        task = asyncio.create_task(world.server_watch.run())
        await until(lambda: world.server_watch.rounds > 0)
        await world.server_watch.reconfigure(changed(CHAT, stall=StallSettings(blocked=6.0)), world)  # type: ignore[arg-type]  # a stand-in
        await until(lambda: world.server_watch.rounds > 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return world.server_watch.rounds

    assert asyncio.run(play()) == 2


def test_a_pause_wakes_a_sleeping_watch_and_its_passing_does_not() -> None:
    async def play() -> int:
        world = World(CHAT)
        world.watch = Watch(interval=3600.0)
        task = asyncio.create_task(world.server_watch.run())
        await until(lambda: world.server_watch.rounds > 0)
        await world.server_watch.heed(Wish(Pause(0.0, 60.0, 60.0)))
        await until(lambda: world.server_watch.rounds > 1)
        for left in range(59, 49, -1):
            await world.server_watch.heed(Wish(Pause(0.0, 60.0, left)))
            await asyncio.sleep(0)
        await asyncio.sleep(0.005)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return world.server_watch.rounds

    assert asyncio.run(play()) == 2


def test_a_key_that_was_changed_in_its_file_is_used_after_a_reload(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("sk-old")
    server = changed(CHAT, api_key_file=key)
    watch = real(server)
    eyes = watch.observer
    key.write_text("sk-new")
    asyncio.run(reconfigured(watch, server))
    assert watch.observer is not eyes


def test_a_key_file_that_is_gone_is_no_longer_needed_once_another_is_configured(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("sk-old")
    new.write_text("sk-new")
    watch = real(changed(CHAT, api_key_file=old))
    old.unlink()
    asyncio.run(reconfigured(watch, changed(CHAT, api_key_file=new)))
    assert watch.server.api_key_file == new


# From settings to eyes and hands


def test_certificates_that_cannot_be_read_are_said_by_their_key(tmp_path: Path) -> None:
    server = changed(CHAT, url="https://127.0.0.1:8443", ca_file=tmp_path / "none.pem")
    with pytest.raises(ConfigError, match=r"^servers\.chat\.ca_file: .*none\.pem: No such file"):
        observer_of(server)
    (tmp_path / "none.pem").write_text("no certificate")
    with pytest.raises(ConfigError, match=r"^servers\.chat\.ca_file: "):
        observer_of(server)


@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("http://127.0.0.1:8080", 8080),
        ("http://[::1]:8080", 8080),
        ("http://localhost:9000", 9000),
        ("http://192.0.2.1:8080", None),
        ("http://llama.example:8080", None),
        ("unix:///run/llama.sock", None),
    ],
)
def test_only_connections_to_this_machine_are_closed(url: str, port: int | None) -> None:
    assert hands_of(changed(CHAT, url=url), dry_run=False).port == port


@pytest.mark.parametrize(
    ("keys", "way"),
    [
        ({}, None),
        ({"unit": "llama.service"}, "SystemdUnit"),
        ({"restart": RestartSettings(command=("true",))}, "by_command"),
        ({"unit": "llama.service", "restart": RestartSettings(command=("true",))}, "SystemdUnit"),
        ({"unit": "llama.service", "restart": RestartSettings(via="none")}, None),
        (
            {"unit": "llama.service", "restart": RestartSettings(via="command", command=("true",))},
            "by_command",
        ),
    ],
)
def test_what_restarts_it(keys: dict[str, object], way: str | None) -> None:
    restart = hands_of(changed(CHAT, **keys), dry_run=False).restart
    assert (restart and restart.__qualname__.partition(".")[0]) == way


def test_what_cannot_be_seen_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    async def story() -> None:
        world = World(ServerSettings(name="chat"))
        world.why = "port 8080 is served by nginx"
        world.see = lambda at: seen(at, slot(busy=False), process=Process(Outcome.UNSUPPORTED))
        for world.at in (0.0, 5.0, 10.0):
            await world.server_watch.round()

    log.configure()
    asyncio.run(story())
    assert capsys.readouterr().err.count("served by nginx") == 1
