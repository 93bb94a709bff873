"""Which adapter gets which order. The adapters are stand-ins that note what they are asked."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence

import pytest

from llama_watchdog.actions import cancel, restart_command, restart_systemd, signals
from llama_watchdog.actions.hands import Hands, by_command, by_systemd
from llama_watchdog.core.action import Action, Done, Identity, Result
from llama_watchdog.core.standing import Order

SERVER = Identity(4711, 88)
UNIT = "llama-server.service"
DENIED = Result(Done.UNSUPPORTED, "no right to signal pid 4711")
STRANGER = Result(Done.FAILED, "pid 4711 is another process now: not signalled")


class World:
    """Every adapter. `answers`: what one says, by its name; DONE where nothing is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.answers: dict[str, Result] = {}
        monkeypatch.setattr(cancel, "close_clients", self._close_clients)
        monkeypatch.setattr(signals, "signal_tree", self._signal_tree)
        monkeypatch.setattr(restart_systemd, "signal_unit", self._signal_unit)
        monkeypatch.setattr(restart_systemd, "restart", self._restart)
        monkeypatch.setattr(restart_command, "run", self._run)

    def _note(self, name: str, *what: object) -> Result:
        self.asked.append((name, *what))
        return self.answers.get(name, Result(Done.DONE, f"{name} did it"))

    async def _close_clients(self, port: int) -> Result:
        return self._note("cancel", port)

    async def _signal_tree(self, identity: Identity, sig: signal.Signals) -> Result:
        return self._note("signal", identity, sig.name)

    async def _signal_unit(self, unit: str, sig: signal.Signals, *, identity: Identity) -> Result:
        return self._note("unit", unit, sig.name, identity)

    async def _restart(self, unit: str, *, ended: Identity | None) -> Result:
        return self._note("systemd", unit, ended)

    async def _run(self, command: Sequence[str]) -> Result:
        return self._note("command", *command)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def do(hands: Hands, action: Action, target: Identity | None = SERVER) -> Result:
    return asyncio.run(hands.do(Order(action, target, 1)))


def test_a_cancel_closes_the_clients_of_its_port(world: World) -> None:
    assert do(Hands(8080), Action.CANCEL).outcome is Done.DONE
    assert world.asked == [("cancel", 8080)]


def test_a_url_from_afar_has_no_clients_that_could_be_closed_here(world: World) -> None:
    assert do(Hands(None), Action.CANCEL).outcome is Done.UNSUPPORTED
    assert world.asked == []


@pytest.mark.parametrize("action", [Action.SIGTERM, Action.SIGKILL])
def test_a_signal_goes_to_exactly_the_incarnation_that_is_meant(world: World, action: Action) -> None:
    assert do(Hands(8080), action).outcome is Done.DONE
    assert world.asked == [("signal", SERVER, action.name)]


@pytest.mark.parametrize("action", [Action.SIGTERM, Action.SIGKILL])
def test_nobody_is_signalled_where_the_process_is_not_known(world: World, action: Action) -> None:
    assert do(Hands(8080, UNIT), action, None).outcome is Done.UNSUPPORTED
    assert world.asked == []


def test_sigterm_leaves_the_unit_alone_where_the_process_could_be_signalled(world: World) -> None:
    """A wrapper around the server would take it for an order to end for good."""
    assert do(Hands(8080, UNIT), Action.SIGTERM).text == "signal did it"
    assert world.asked == [("signal", SERVER, "SIGTERM")]


def test_sigkill_goes_to_the_whole_unit_as_well(world: World) -> None:
    """What has left the tree of the process is still in the unit, and holds the port."""
    assert do(Hands(8080, UNIT), Action.SIGKILL).text == "signal did it"
    assert world.asked == [("signal", SERVER, "SIGKILL"), ("unit", UNIT, "SIGKILL", SERVER)]


@pytest.mark.parametrize("action", [Action.SIGTERM, Action.SIGKILL])
def test_without_the_right_to_signal_systemd_does_it(world: World, action: Action) -> None:
    world.answers["signal"] = DENIED
    assert do(Hands(8080, UNIT), action).text == "unit did it"
    assert do(Hands(8080), action) == DENIED


def test_what_systemd_cannot_do_either_is_said_in_its_words(world: World) -> None:
    world.answers |= {"signal": DENIED, "unit": Result(Done.UNSUPPORTED, "systemctl kill: access denied")}
    assert do(Hands(8080, UNIT), Action.SIGTERM).text == "systemctl kill: access denied"


def test_a_stranger_s_pid_is_no_reason_to_signal_the_unit(world: World) -> None:
    world.answers["signal"] = STRANGER
    assert do(Hands(8080, UNIT), Action.SIGTERM) == STRANGER
    assert world.asked == [("signal", SERVER, "SIGTERM")]


def test_descendants_that_only_systemd_could_kill_are_killed(world: World) -> None:
    world.answers["signal"] = Result(Done.FAILED, "sent SIGKILL to pid 4711, but not to pid 4712")
    assert do(Hands(8080, UNIT), Action.SIGKILL).outcome is Done.DONE
    world.answers["unit"] = Result(Done.UNSUPPORTED, "systemctl kill: access denied")
    assert do(Hands(8080, UNIT), Action.SIGKILL) == world.answers["signal"]


def test_a_restart_through_systemd_knows_which_incarnation_has_ended(world: World) -> None:
    do(Hands(8080, UNIT, by_systemd(UNIT)), Action.RESTART)
    assert world.asked == [("systemd", UNIT, SERVER)]


def test_a_restart_by_command(world: World) -> None:
    do(Hands(8080, restart=by_command(["docker", "restart", "llama"])), Action.RESTART)
    assert world.asked == [("command", "docker", "restart", "llama")]


def test_with_neither_unit_nor_command_the_restart_is_another_s_and_the_remedy_is_said(world: World) -> None:
    result = do(Hands(8080), Action.RESTART)
    assert result.outcome is Done.UNSUPPORTED
    assert "restart.command" in result.text
    assert world.asked == []


@pytest.mark.parametrize("action", [Action.CANCEL, Action.SIGTERM, Action.SIGKILL, Action.RESTART])
def test_a_dry_run_touches_nothing_and_says_what_it_would_have_done(world: World, action: Action) -> None:
    hands = Hands(8080, UNIT, by_systemd(UNIT), dry_run=True)
    result = do(hands, action)
    assert result.outcome is Done.DONE
    assert result.text.startswith("would have ")
    assert world.asked == []
