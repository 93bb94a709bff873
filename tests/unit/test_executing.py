"""The daemon of one child: signals on their way to it, when it is ready, and with what status all ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from llama_watchdog import daemon, executing, log, signals
from llama_watchdog.core.asking import Asking
from llama_watchdog.core.standing import Stage, Standing
from llama_watchdog.core.verdict import Reason, State, Verdict
from llama_watchdog.executing import Exec, execute
from llama_watchdog.settings import Settings, load
from llama_watchdog.supervisors.child import Child
from llama_watchdog.watching import ServerWatch

IDLE = Verdict(State.IDLE)
WEDGED = Verdict(State.WEDGED, Reason.SLOTS_HANG, fault=True)
GONE = Verdict(State.DOWN, Reason.GONE, fault=True)
SLEEP = "exec sleep 60"
# Says each SIGTERM, SIGINT and SIGUSR1 in the file, and ends with 9 at the second SIGTERM.
HEARS = """
import pathlib, signal, sys
path, heard = pathlib.Path(sys.argv[1]), []
def hear(number, _):
    heard.append(signal.Signals(number).name)
    path.write_text(" ".join(heard) + "\\n")
    if heard.count("SIGTERM") == 2:
        sys.exit(9)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
    signal.signal(number, hear)
path.write_text("\\n")
while True:
    signal.pause()
"""


@dataclass
class Looks:
    """What every look sees, and where the incident stands then."""

    verdict: Verdict = IDLE
    standing: Standing = field(default_factory=Standing)
    served: bool = True
    errors: list[Exception] = field(default_factory=list)  # our own, one a look
    rounds: int = 0

    async def round(self, watch: ServerWatch) -> float:
        self.rounds += 1
        await asyncio.sleep(0.002)
        if self.errors:
            raise self.errors.pop()
        watch.engine.verdict, watch.engine.standing = self.verdict, self.standing
        return watch.clock.now()


class Play:
    """A watch of a child, with looks that see what they are told to."""

    def __init__(self, folder: Path, manager: socket.socket, looks: Looks) -> None:
        self.looks = looks
        self.dry_run = False
        self.child: Child
        self.status: int | None = None
        self._folder = folder
        self._manager = manager

    def load(self) -> Settings:
        """The configuration."""
        keys = {"LLAMA_WATCHDOG_STATE_DIR": str(self._folder / "state")}
        return load(overrides={"dry_run": self.dry_run}, environ=keys)

    def run(self, command: str | tuple[str, ...], story: Callable[[Play], Awaitable[None]]) -> int:
        """Play it; returns the exit status."""

        async def play() -> int:
            self.child = Child(("sh", "-c", command) if isinstance(command, str) else command)
            task = asyncio.create_task(execute(self.load(), self.load, self.child))
            try:
                async with asyncio.timeout(20):
                    while not self.looks.rounds:  # noqa: ASYNC110 - the first look has no event
                        await asyncio.sleep(0.002)
                    await story(self)
                    return await task
            finally:
                task.cancel()
                await self.child.kill()
                await self.child.wait()

        return asyncio.run(play())

    @property
    def heard(self) -> list[str]:
        """What systemd was told, since the last time."""
        messages = []
        while True:
            try:
                messages.append(self._manager.recv(65536).decode())
            except BlockingIOError:
                return messages

    async def until_heard(self, *wanted: str) -> None:
        """Until systemd has been told all of it."""
        missing = set(wanted)
        while missing:
            missing -= {want for want in missing if any(message.startswith(want) for message in self.heard)}
            await asyncio.sleep(0.002)

    async def looks_again(self) -> None:
        """Until what is to be seen has been seen."""
        before = self.looks.rounds
        while self.looks.rounds < before + 2:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.002)


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    looks = Looks()

    async def no_sleep(_watch: ServerWatch, _at: float) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(ServerWatch, "round", lambda watch: looks.round(watch))
    monkeypatch.setattr(ServerWatch, "_sleep_until", no_sleep)
    monkeypatch.setattr(Asking, "served", property(lambda _: looks.served))
    monkeypatch.setattr(daemon, "TICK", 0.002)
    monkeypatch.setattr(executing, "AGAIN_AFTER", 0.0)
    monkeypatch.setattr(executing, "EXTEND_EVERY", 0.0)
    monkeypatch.setattr(log, "_output", None)
    where = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", where)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(where)
        manager.setblocking(False)
        yield Play(tmp_path, manager, looks)


def us(sig: signal.Signals) -> None:
    """Send ourselves a signal, as systemd or a container engine would."""
    os.kill(os.getpid(), sig)


def hears(file: Path) -> tuple[str, ...]:
    return (sys.executable, "-IS", "-c", HEARS, str(file))


async def says(path: Path, wanted: str) -> None:
    while not path.exists() or path.read_text() != f"{wanted}\n":  # noqa: ASYNC110, ASYNC240 - a file has no event, and no disk
        await asyncio.sleep(0.002)


# The end, by a signal


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_is_passed_on_and_we_end_as_the_child_does(play: Play, sig: signal.Signals) -> None:
    async def story(play: Play) -> None:
        us(sig)
        await play.until_heard("STOPPING=1")

    assert play.run(SLEEP, story) == 128 + sig


def test_a_healthy_server_has_its_time_and_hears_the_second_signal_too(play: Play, tmp_path: Path) -> None:
    """With which llama-server ends at once."""
    file = tmp_path / "heard"

    async def story(play: Play) -> None:
        await says(file, "")
        us(signal.SIGTERM)
        await play.until_heard("STOPPING=1")
        await says(file, "SIGTERM")
        assert play.child.running
        us(signal.SIGTERM)

    assert play.run(hears(file), story) == 9


@pytest.mark.parametrize(
    ("verdict", "stage", "dry_run", "killed"),
    [
        (WEDGED, Stage.WATCHING, False, True),
        (WEDGED, Stage.CONFIRMING, False, True),
        (IDLE, Stage.CLIMBING, False, True),
        (WEDGED, Stage.UNKILLABLE, False, True),
        (GONE, Stage.STARTING, False, False),  # the verdict is still of the one before it
        (Verdict(State.SUSPECT, Reason.SLOTS_HANG), Stage.WATCHING, False, False),
        (WEDGED, Stage.CONFIRMING, True, False),
    ],
)
def test_only_what_is_proven_to_hear_nothing_is_killed_at_a_stop(
    play: Play, tmp_path: Path, verdict: Verdict, stage: Stage, dry_run: bool, killed: bool
) -> None:
    file = tmp_path / "heard"
    play.looks.verdict, play.looks.standing, play.dry_run = verdict, Standing(stage=stage), dry_run

    async def story(_play: Play) -> None:
        await says(file, "")
        await play.looks_again()
        us(signal.SIGTERM)
        if not killed:
            await says(file, "SIGTERM")
            us(signal.SIGTERM)

    assert play.run(hears(file), story) == (128 + signal.SIGKILL if killed else 9)


def test_what_a_wrapper_has_left_is_told_to_end_and_waited_for(play: Play, tmp_path: Path) -> None:
    """A shell that does not exec its server ends at once, with a status of its own."""
    file = tmp_path / "server"

    async def story(_play: Play) -> None:
        while not file.exists() or not file.read_text().endswith("\n"):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.002)
        server = signals.identify(int(file.read_text()))
        assert server is not None
        us(signal.SIGTERM)
        assert await signals.wait_ended(server, 10)

    assert play.run(f"sleep 60 & echo $! >{file}; wait", story) == 128 + signal.SIGTERM


def test_other_signals_reach_it_and_end_nothing(play: Play, tmp_path: Path) -> None:
    file = tmp_path / "heard"

    async def story(play: Play) -> None:
        await says(file, "")
        us(signal.SIGUSR1)
        await says(file, "SIGUSR1")
        us(signal.SIGHUP)
        await play.until_heard("RELOADING=1")
        await says(file, "SIGUSR1")
        us(signal.SIGTERM)
        await says(file, "SIGUSR1 SIGTERM")
        us(signal.SIGTERM)

    assert play.run(hears(file), story) == 9


# The end, by itself


@pytest.mark.parametrize(("how", "status"), [("exit 3", 3), ("exit 0", 1), ("kill -KILL $$", 137)])
def test_held_we_end_as_it_did_and_never_with_0(play: Play, how: str, status: int) -> None:
    """Whoever supervises us has to see a failure."""
    play.looks.verdict, play.looks.standing = Verdict(State.HELD), Standing(stage=Stage.HELD)

    async def story(_play: Play) -> None:
        pass

    assert play.run(how, story) == status


def test_what_somebody_else_has_ended_is_left_alone(play: Play) -> None:
    async def story(play: Play) -> None:
        pid = (await play.child.show()).main_pid
        assert pid is not None
        os.kill(pid, signal.SIGTERM)
        play.looks.verdict, play.looks.standing = GONE, Standing(stopped=True)
        await play.until_heard("STOPPING=1")

    assert play.run(SLEEP, story) == 128 + signal.SIGTERM


def test_in_a_dry_run_nothing_starts_it_again_so_we_end_with_it(play: Play) -> None:
    play.dry_run = True

    async def story(play: Play) -> None:
        play.looks.verdict = GONE

    assert play.run("exit 5", story) == 5


def test_one_that_has_ended_and_is_about_to_be_started_again_is_waited_for(play: Play) -> None:
    async def story(play: Play) -> None:
        await play.child.wait()
        play.looks.verdict, play.looks.standing = GONE, Standing(stage=Stage.RESTARTING)
        await play.looks_again()
        assert (await play.child.restart()).text.startswith("started our child sh again")
        await play.until_heard("STATUS=default: down (its process has ended) · started again 1×")
        us(signal.SIGTERM)

    assert play.run("exit 5", story) in (5, 143)


@pytest.mark.parametrize("where", ["in the watch", "in the daemon"])
def test_an_error_of_our_own_does_not_cost_the_server_its_life(
    play: Play, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    unforeseen = [RuntimeError("what nobody could foresee")]

    def fail(_daemon: Exec) -> str:
        if unforeseen:
            raise unforeseen.pop()
        return ""

    async def story(play: Play) -> None:
        await play.until_heard("READY=1")
        if where == "in the watch":
            play.looks.errors += unforeseen
        else:
            monkeypatch.setattr(Exec, "status_line", fail)
        heard: list[str] = []
        while "READY=1" not in heard:  # of the watch that begins anew
            heard += play.heard
            await asyncio.sleep(0.002)
        assert "STOPPING=1" not in heard  # systemd would kill all of it, TimeoutStopSec= later
        assert play.child.running
        us(signal.SIGTERM)
        await play.until_heard("STOPPING=1")

    assert play.run(SLEEP, story) == 143
    assert "has ended by an error of our own" in capsys.readouterr().err


# What systemd is told


def test_ready_only_once_it_has_served_and_longer_time_while_it_loads(play: Play) -> None:
    play.looks.verdict, play.looks.served = Verdict(State.LOADING), False

    async def story(play: Play) -> None:
        await play.until_heard("EXTEND_TIMEOUT_USEC=60000000")
        play.looks.verdict = Verdict(State.WEDGED, Reason.LOAD, fault=True)  # it gets on no more
        await play.looks_again()
        _ = play.heard
        await play.looks_again()
        heard = play.heard
        assert not any(message.startswith(("READY", "EXTEND")) for message in heard)
        play.looks.verdict, play.looks.served = IDLE, True
        await play.until_heard("READY=1")
        us(signal.SIGTERM)

    assert play.run(SLEEP, story) == 143


def test_its_end_is_looked_at_at_once(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when the next look is due."""
    woken = asyncio.Event()
    monkeypatch.setattr(ServerWatch, "nudge", lambda _watch: woken.set())

    async def story(play: Play) -> None:
        woken.clear()
        await play.child.kill()
        await woken.wait()
        us(signal.SIGTERM)

    assert play.run(SLEEP, story) == 137
