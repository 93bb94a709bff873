"""The daemon: what systemd is told and when, reloads, signals, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llama_watchdog import daemon as room
from llama_watchdog import log
from llama_watchdog.core.action import Action, Done, Result
from llama_watchdog.core.engine import Step
from llama_watchdog.core.observation import Observation
from llama_watchdog.core.standing import Order
from llama_watchdog.daemon import Daemon
from llama_watchdog.settings import Settings, load
from llama_watchdog.store import WishWriter
from llama_watchdog.watching import ServerWatch

# Nobody listens there, so that a look takes no time.
A, B, C = "http://127.0.0.1:9", "http://127.0.0.1:10", "http://127.0.0.1:11"


class House:
    """A configuration file, systemd's socket, and the log; the rounds follow one another without a pause."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], manager: socket.socket) -> None:
        self.config = folder / "config.toml"
        self.state = folder / "state"
        self._capsys = capsys
        self._manager = manager
        self._said = ""
        self._messages: list[str] = []

    def write(self, *, more: str = "", **servers: str) -> None:
        tables = "".join(f"[servers.{name}]\n{keys}\n" for name, keys in servers.items())
        self.config.write_text(f'state_dir = "{self.state}"\n{more}\n{tables}')

    def load(self) -> Settings:
        return load(self.config, environ={})

    @property
    def said(self) -> str:
        """Everything that was logged so far."""
        self._said += self._capsys.readouterr().err
        return self._said

    @property
    def heard(self) -> list[str]:
        """Everything that systemd was told so far, but for the status."""
        while True:
            try:
                self._messages.append(self._manager.recv(65536).decode())
            except BlockingIOError:
                return [message for message in self._messages if not message.startswith("STATUS")]

    @property
    def status(self) -> str:
        """The latest."""
        assert self.heard is not None
        lines = [message for message in self._messages if message.startswith("STATUS=")]
        return lines[-1].removeprefix("STATUS=") if lines else ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Daemon]:
        """The daemon at work; ended by SIGTERM."""
        daemon = Daemon(self.load(), self.load)
        task = asyncio.create_task(daemon.run())
        await asyncio.sleep(0)
        try:
            yield daemon
        finally:
            if not task.done():
                os.kill(os.getpid(), signal.SIGTERM)
            async with asyncio.timeout(5.0):
                assert await task == 0

    def play(self, story: Callable[[Daemon], Awaitable[None]]) -> None:
        """Run the daemon through a story."""

        async def run() -> None:
            async with self.running() as daemon:
                await story(daemon)

        asyncio.run(run())


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(5.0):
        while not true():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.002)


@pytest.fixture
def house(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[House]:
    async def hurry(_watch: ServerWatch, _at: float) -> None:
        await asyncio.sleep(0.002)

    monkeypatch.setattr(ServerWatch, "_sleep_until", hurry)
    monkeypatch.setattr(room, "TICK", 0.002)
    monkeypatch.setattr(log, "_output", None)
    where = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", where)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(where)
        manager.setblocking(False)
        house = House(tmp_path, capsys, manager)
        house.write(chat=f'url = "{A}"', code=f'url = "{B}"')
        yield house


class Gate:
    """Holds up the rounds of one server until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.open = asyncio.Event()
        look = ServerWatch.round

        async def round_of(watch: ServerWatch) -> float:
            if watch.server.name == name:
                await self.open.wait()
            return await look(watch)

        monkeypatch.setattr(ServerWatch, "round", round_of)


# What systemd is told


def test_ready_only_after_the_first_round_of_every_server(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, "code")

    async def story(daemon: Daemon) -> None:
        await until(lambda: daemon.watches["chat"].rounds > 3)
        assert house.heard == []
        gate.open.set()
        await until(lambda: house.heard)
        assert house.heard[:2] == ["READY=1", "WATCHDOG=1"]

    house.play(story)
    assert house.heard.count("READY=1") == 1
    assert house.heard[-1] == "STOPPING=1"


def test_a_server_whose_round_hangs_silences_the_pings(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would otherwise say that all is well while one server is watched by nobody."""
    gate = Gate(monkeypatch, "code")
    gate.open.set()

    async def story(daemon: Daemon) -> None:
        await until(lambda: house.heard.count("WATCHDOG=1") > 2)
        gate.open.clear()
        rounds = daemon.watches["chat"].rounds
        await until(lambda: daemon.watches["chat"].rounds > rounds + 5)
        pings = house.heard.count("WATCHDOG=1")
        await until(lambda: daemon.watches["chat"].rounds > rounds + 15)
        assert house.heard.count("WATCHDOG=1") == pings
        gate.open.set()
        await until(lambda: house.heard.count("WATCHDOG=1") > pings)

    house.play(story)


def test_no_more_pings_than_rounds(house: House) -> None:
    async def story(daemon: Daemon) -> None:
        await until(lambda: house.heard and daemon.watches["code"].rounds > 10)
        assert house.heard.count("WATCHDOG=1") <= daemon.watches["code"].rounds

    house.play(story)


def test_the_status_is_one_readable_line(house: House) -> None:
    async def story(_daemon: Daemon) -> None:
        await until(lambda: "not looked at" not in house.status and house.status)
        chat, code = house.status.split(" · ")
        assert chat.startswith("chat: down (connections have been refused")
        assert code.startswith("code: down (")

    house.play(story)


# Reloads


def hup() -> None:
    os.kill(os.getpid(), signal.SIGHUP)


async def reloaded(house: House, times: int = 1) -> None:
    await until(lambda: house.heard.count("READY=1") == 1 + times)


def test_a_reload_is_announced_and_its_end_too(house: House) -> None:
    async def story(_daemon: Daemon) -> None:
        await until(lambda: "READY=1" in house.heard)
        hup()
        await reloaded(house)
        told = [message for message in house.heard if message != "WATCHDOG=1"]
        assert told[0] == told[2] == "READY=1"
        assert told[1].startswith("RELOADING=1\nMONOTONIC_USEC=")
        assert "reloaded the configuration" in house.said

    house.play(story)


def test_a_reload_before_the_first_rounds_makes_nothing_ready(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, "code")

    async def story(_daemon: Daemon) -> None:
        house.write(chat=f'url = "{A}"', code=f'url = "{C}"')
        hup()
        await until(lambda: "reloaded" in house.said)
        assert house.heard == []
        gate.open.set()
        await until(lambda: house.heard)

    house.play(story)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ('url = "ftp://x"', "servers.chat.url: must begin with http"),
        ('url = "http://127.0.0.1:9"\nunti = "x"', "unti"),
        ('api_key_file = "{folder}/none"', "none: servers.chat.api_key_file: "),
        ('url = "https://127.0.0.1:9"\nca_file = "{folder}/none"', "servers.chat.ca_file: "),
        ('url = "http://127.0.0.1:9"\nrestart.via = "child"', "servers.chat.restart.via: 'child' is what"),
    ],
)
def test_a_bad_configuration_is_refused_as_a_whole(house: House, keys: str, reason: str) -> None:
    """The other change in it, and the server that it no longer names, are not touched either."""

    async def story(daemon: Daemon) -> None:
        await until(lambda: "READY=1" in house.heard)
        watches, settings = dict(daemon.watches), daemon.settings
        house.write(
            more="[defaults.stall]\nblocked = '6s'",
            extra=f'url = "{C}"',
            chat=keys.replace("{folder}", str(house.config.parent)),
        )
        hup()
        await reloaded(house)
        assert daemon.watches == watches
        assert daemon.settings is settings
        assert watches["chat"].engine.policy.stall.blocked == 30.0
        (line,) = [json.loads(line) for line in house.said.splitlines() if "stays in force" in line]
        assert line["level"] == "error"
        assert line["message"].startswith("the old configuration stays in force: ")
        assert reason in line["message"]

    house.play(story)


def test_a_good_configuration_is_taken_over_without_losing_what_is_known(house: House) -> None:
    async def story(daemon: Daemon) -> None:
        await until(lambda: "READY=1" in house.heard)
        chat = daemon.watches["chat"]
        judge = chat.engine.judge
        house.write(
            more="dry_run = true",
            chat=f'url = "{A}"\nstall.blocked = "6s"\nprobe.interval = "1s"',
            extra=f'url = "{C}"',
        )
        hup()
        await reloaded(house)
        assert daemon.watches.keys() == {"chat", "extra"}
        assert daemon.watches["chat"] is chat
        assert chat.engine.judge is judge
        assert chat.engine.policy.stall.blocked == 6.0
        assert (chat.engine.dry_run, chat.hands.dry_run) == (True, True)
        await until(lambda: daemon.watches["extra"].rounds > 1)
        assert "no longer watching code" in house.said
        assert f"watching extra at {C} (dry run)" in house.said

    house.play(story)


def test_a_server_that_has_moved_is_watched_anew_and_the_pings_go_on(house: House) -> None:
    """Its rounds count from nothing again; the pings must not wait until they catch up."""

    async def story(daemon: Daemon) -> None:
        await until(lambda: house.heard)
        daemon.watches["code"].rounds = 1_000_000
        pings = house.heard.count("WATCHDOG=1")
        await until(lambda: house.heard.count("WATCHDOG=1") > pings + 1)
        judge = daemon.watches["code"].engine.judge
        house.write(chat=f'url = "{A}"', code=f'url = "{C}"')
        hup()
        await reloaded(house)
        assert daemon.watches["code"].engine.judge is not judge
        pings = house.heard.count("WATCHDOG=1")
        await until(lambda: house.heard.count("WATCHDOG=1") > pings + 1)

    house.play(story)


# While an order is carried out, which may take a minute


async def acting(watch: ServerWatch, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """From here on an order is carried out, until the event is set."""
    over, step = asyncio.Event(), watch.engine.step

    def order(observation: Observation) -> Step:
        return replace(step(observation), order=None if over.is_set() else Order(Action.RESTART, None, 1))

    async def do(_order: Order) -> Result:
        await over.wait()
        return Result(Done.DONE, "done")

    monkeypatch.setattr(watch, "hands", SimpleNamespace(do=do, dry_run=False, supervisor=None))
    monkeypatch.setattr(watch.engine, "step", order)
    await until(lambda: watch.acting)
    return over


async def pinged_again(house: House, times: int = 3) -> None:
    pings = house.heard.count("WATCHDOG=1")
    await until(lambda: house.heard.count("WATCHDOG=1") >= pings + times)


def test_the_pings_go_on_and_whatever_needs_a_round_waits_for_its_end(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Systemd's watchdog would otherwise end ours in the middle of a slow restart."""
    house.write(chat=f'url = "unix://{house.state}/none.sock"', code=f'url = "{B}"')

    async def story(daemon: Daemon) -> None:
        await until(lambda: "READY=1" in house.heard)
        chat = daemon.watches["chat"]
        over = await acting(chat, monkeypatch)
        await pinged_again(house)
        admin = WishWriter(house.state, print)
        await admin.release(chat.target)
        await admin.close()
        hup()
        await pinged_again(house)
        assert (await daemon.wishes.read())[chat.target].release is not None
        assert not any(message.startswith("RELOADING") for message in house.heard)
        over.set()
        await reloaded(house)
        async with asyncio.timeout(5.0):
            while await daemon.wishes.read():  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.002)

    house.play(story)


def test_a_reload_that_has_to_wait_is_not_asked_after_without_a_pause(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(daemon: Daemon) -> None:
        await until(lambda: "READY=1" in house.heard)
        await acting(daemon.watches["chat"], monkeypatch)
        hup()
        await pinged_again(house)
        monkeypatch.setattr(room, "TICK", 3600.0)
        code = daemon.watches["code"]
        before = code.rounds
        await until(lambda: code.rounds > before + 5)
        pings = house.heard.count("WATCHDOG=1")
        await until(lambda: code.rounds > before + 15)
        assert house.heard.count("WATCHDOG=1") == pings

    house.play(story)


# The end


def test_sigterm_ends_it_cleanly_and_systemd_is_told_first(house: House) -> None:
    async def story(_daemon: Daemon) -> None:
        await until(lambda: "READY=1" in house.heard)

    house.play(story)
    assert house.heard[-1] == "STOPPING=1"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_sigint_too(house: House) -> None:
    async def run() -> int:
        task = asyncio.create_task(Daemon(house.load(), house.load).run())
        await until(lambda: "READY=1" in house.heard)
        os.kill(os.getpid(), signal.SIGINT)
        return await task

    assert asyncio.run(run()) == 0


def test_it_does_not_wait_for_a_round_that_hangs(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    Gate(monkeypatch, "code")

    async def story(daemon: Daemon) -> None:
        await until(lambda: daemon.watches["chat"].rounds)

    house.play(story)


def test_an_error_of_our_own_ends_it_with_one_line_and_an_exit_code(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Systemd starts it again; half a watchdog would look like a whole one."""

    async def fail(watch: ServerWatch) -> Any:
        await asyncio.sleep(0.01)
        raise RuntimeError(f"what {watch.server.name} could not foresee")

    monkeypatch.setattr(ServerWatch, "round", fail)
    house.write(chat=f'url = "{A}"')
    assert asyncio.run(Daemon(house.load(), house.load).run()) == 1
    (line,) = [json.loads(line) for line in house.said.splitlines() if '"error"' in line]
    assert line["level"] == "error"
    assert line["message"] == "the watch of chat has ended by an error of our own"
    assert line["error"] == "RuntimeError: what chat could not foresee"


# The log


def test_events_are_logged_with_the_time_for_people(house: House) -> None:
    async def story(daemon: Daemon) -> None:
        await until(lambda: daemon.watches["chat"].rounds)

    house.play(story)
    events = [json.loads(line) for line in house.said.splitlines()]
    (down,) = [event for event in events if event["event"] == "verdict" and event["server"] == "chat"][:1]
    assert list(down)[:3] == ["v", "event", "at"]
    assert down["verdict"] == "down"
