"""Which adapter gets which order. The adapters are stand-ins that note what they are asked."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence

import pytest

from llama_watchdog import signals
from llama_watchdog.actions import cancel, restart_command
from llama_watchdog.actions.hands import Hands, by_command
from llama_watchdog.core.action import Action, Done, Identity, Result
from llama_watchdog.core.standing import Order
from tests.support.supervisor import FakeSupervisor

SERVER = Identity(4711, 88)
LEFT = (Identity(4712, 89), Identity(4713, 90))
DENIED = Result(Done.UNSUPPORTED, "no right to signal pid 4711")
STRANGER = Result(Done.FAILED, "pid 4711 is another process now: not signalled")


class World:
    """Every adapter. `answers`: what one says, by its name; DONE where nothing is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.supervisor = FakeSupervisor()
        self.asked = self.supervisor.asked
        self.answers = self.supervisor.answers
        monkeypatch.setattr(cancel, "close_clients", self._close_clients)
        monkeypatch.setattr(signals, "signal_tree", self._signal_tree)
        monkeypatch.setattr(signals, "kill_each", self._kill_each)
        monkeypatch.setattr(restart_command, "run", self._run)

    def _note(self, name: str, *what: object) -> Result:
        self.asked.append((name, *what))
        return self.answers.get(name, Result(Done.DONE, f"{name} did it"))

    async def _close_clients(self, port: int) -> Result:
        return self._note("cancel", port)

    async def _signal_tree(self, identity: Identity, sig: signal.Signals) -> Result:
        return self._note("signal", identity, sig.name)

    async def _kill_each(self, members: Sequence[Identity]) -> Result:
        return self._note("each", *members)

    async def _run(self, command: Sequence[str]) -> Result:
        return self._note("command", *command)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def do(
    hands: Hands, action: Action, target: Identity | None = SERVER, left: tuple[Identity, ...] = ()
) -> Result:
    return asyncio.run(hands.do(Order(action, target, 1, left)))


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
    assert do(Hands(8080, world.supervisor), action, None).outcome is Done.UNSUPPORTED
    assert world.asked == []


def test_sigterm_leaves_the_unit_alone_where_the_process_could_be_signalled(world: World) -> None:
    """A wrapper around the server would take it for an order to end for good."""
    assert do(Hands(8080, world.supervisor), Action.SIGTERM).text == "signal did it"
    assert world.asked == [("signal", SERVER, "SIGTERM")]


def test_sigkill_goes_to_the_whole_unit_as_well(world: World) -> None:
    """What has left the tree of the process is still in the unit, and holds the port."""
    assert do(Hands(8080, world.supervisor), Action.SIGKILL).text == "signal did it"
    assert world.asked == [("signal", SERVER, "SIGKILL"), ("supervisor", "SIGKILL", SERVER)]


@pytest.mark.parametrize("action", [Action.SIGTERM, Action.SIGKILL])
def test_without_the_right_to_signal_the_supervisor_does_it(world: World, action: Action) -> None:
    world.answers["signal"] = DENIED
    assert do(Hands(8080, world.supervisor), action).text == "supervisor did it"
    assert do(Hands(8080), action) == DENIED


def test_what_it_cannot_do_either_is_said_in_its_words(world: World) -> None:
    world.answers |= {
        "signal": DENIED,
        "supervisor": Result(Done.UNSUPPORTED, "systemctl kill: access denied"),
    }
    assert do(Hands(8080, world.supervisor), Action.SIGTERM).text == "systemctl kill: access denied"


def test_a_stranger_s_pid_is_no_reason_to_signal_the_unit(world: World) -> None:
    world.answers["signal"] = STRANGER
    assert do(Hands(8080, world.supervisor), Action.SIGTERM) == STRANGER
    assert world.asked == [("signal", SERVER, "SIGTERM")]


def test_descendants_that_only_the_supervisor_could_kill_are_killed(world: World) -> None:
    world.answers["signal"] = Result(Done.FAILED, "sent SIGKILL to pid 4711, but not to pid 4712")
    assert do(Hands(8080, world.supervisor), Action.SIGKILL).outcome is Done.DONE
    world.answers["supervisor"] = Result(Done.UNSUPPORTED, "systemctl kill: access denied")
    assert do(Hands(8080, world.supervisor), Action.SIGKILL) == world.answers["signal"]


def test_what_a_dead_server_has_left_is_killed_one_by_one_and_by_its_supervisor(world: World) -> None:
    """The target has ended: its pid may be anybody's by now."""
    assert do(Hands(8080), Action.SIGKILL, left=LEFT).text == "each did it"
    assert world.asked == [("each", *LEFT)]
    world.asked.clear()
    do(Hands(8080, world.supervisor), Action.SIGKILL, left=LEFT)
    assert world.asked == [("each", *LEFT), ("supervisor", "SIGKILL", SERVER)]


def test_what_is_left_and_not_ours_to_kill_is_the_supervisors(world: World) -> None:
    world.answers["each"] = Result(Done.UNSUPPORTED, "sent SIGKILL to 0 processes, but not to pid 4712")
    assert do(Hands(8080, world.supervisor), Action.SIGKILL, left=LEFT).text == "supervisor did it"
    assert do(Hands(8080), Action.SIGKILL, left=LEFT) == world.answers["each"]


def test_a_restart_through_the_supervisor_knows_which_incarnation_has_ended(world: World) -> None:
    do(Hands(8080, world.supervisor, world.supervisor.restart), Action.RESTART)
    assert world.asked == [("restart", SERVER)]


def test_a_restart_by_command(world: World) -> None:
    do(Hands(8080, restart=by_command(["docker", "restart", "llama"])), Action.RESTART)
    assert world.asked == [("command", "docker", "restart", "llama")]


def test_with_neither_supervisor_nor_command_the_remedy_is_said(
    world: World,
) -> None:
    result = do(Hands(8080), Action.RESTART)
    assert result.outcome is Done.UNSUPPORTED
    assert "restart.command" in result.text
    assert world.asked == []


@pytest.mark.parametrize("action", [Action.CANCEL, Action.SIGTERM, Action.SIGKILL, Action.RESTART])
def test_a_dry_run_touches_nothing_and_says_what_it_would_have_done(world: World, action: Action) -> None:
    hands = Hands(8080, world.supervisor, world.supervisor.restart, dry_run=True)
    result = do(hands, action)
    assert result.outcome is Done.DONE
    assert result.text.startswith("would have ")
    assert world.asked == []
