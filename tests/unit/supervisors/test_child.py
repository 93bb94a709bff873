"""A server as our own child: how it is started and seen, how it ends, and that it never gets a twin."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from llama_watchdog import signals
from llama_watchdog.core.action import Done, Identity
from llama_watchdog.supervisors import child as room
from llama_watchdog.supervisors.child import Child

SLEEP = "exec sleep 60"


def play(
    command: str | tuple[str, ...],
    story: Callable[[Child], Awaitable[None]],
    environ: Mapping[str, str] = os.environ,
) -> None:
    """A child through a story; whatever lives of it then is killed."""

    async def run() -> None:
        child = Child(("sh", "-c", command) if isinstance(command, str) else command, environ)
        try:
            async with asyncio.timeout(20):
                await story(child)
        finally:
            await child.kill()
            await child.wait()

    asyncio.run(run())


async def pid_of(child: Child) -> int:
    pid = (await child.show()).main_pid
    assert pid is not None
    return pid


async def identity_of(child: Child) -> Identity:
    identity = signals.identify(await pid_of(child))
    assert identity is not None
    return identity


async def said(path: Path) -> str:
    """What a child has written there, once it has."""
    while not (text := read(path)).endswith("\n"):  # noqa: ASYNC110 - a file has no event
        await asyncio.sleep(0.002)
    return text.strip()


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


async def someone(path: Path) -> Identity:
    """The process whose pid is written there."""
    identity = signals.identify(int(await said(path)))
    assert identity is not None
    return identity


def test_one_that_runs_is_active_and_leads_a_session_of_its_own() -> None:
    async def story(child: Child) -> None:
        await child.start()
        state = await child.show()
        assert (state.unit.active, state.unit.sub, state.unit.exit_status) == ("active", "running", None)
        assert state.control_group is None
        assert os.getsid(await pid_of(child)) == state.main_pid
        assert child.running

    play(SLEEP, story)


@pytest.mark.parametrize(
    ("how", "active", "result", "status"),
    [
        ("exit 0", "inactive", "success", 0),
        *(
            (f"kill -{name} $$", "inactive", "success", 128 + getattr(signal, f"SIG{name}"))
            for name in ("HUP", "INT", "PIPE", "TERM")
        ),
        ("exit 1", "failed", "exit-code", 1),
        ("kill -KILL $$", "failed", "signal", 137),
        ("ulimit -c 0; kill -SEGV $$", "failed", "signal", 139),
    ],
)
def test_how_it_has_ended(how: str, active: str, result: str, status: int) -> None:
    """As systemd would call it, and as a shell would exit."""

    async def story(child: Child) -> None:
        await child.start()
        await child.wait()
        state = await child.show()
        assert (state.unit.active, state.unit.result, state.unit.exit_status) == (active, result, status)
        assert (state.main_pid, child.running, child.status) == (None, False, status)
        assert not state.unit.stop_ordered

    play(how, story)


def test_its_end_wakes_whoever_waits_for_a_change() -> None:
    async def story(child: Child) -> None:
        await child.start()
        child.changed.clear()
        os.kill(await pid_of(child), signal.SIGKILL)
        await child.changed.wait()
        assert child.status == 137

    play(SLEEP, story)


def test_it_gets_our_outputs_an_empty_input_and_not_what_systemd_means_for_us(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """By NOTIFY_SOCKET it could say READY in our place."""
    environ = {
        "PATH": os.environ["PATH"],
        "LLAMA_ARG_PORT": "8080",
        "NOTIFY_SOCKET": "/run/systemd/notify",
        "WATCHDOG_USEC": "10000000",
        "WATCHDOG_PID": "1",
        "LISTEN_FDS": "1",
        "LISTEN_PID": "1",
        "LLAMA_WATCHDOG_SERVERS__chat__API_KEY": "sk-secret",
    }

    async def story(child: Child) -> None:
        await child.start()
        await child.wait()
        assert await child.environment(["LLAMA_ARG_PORT", "LISTEN_FDS", "LLAMA_ARG_HOST"]) == {
            "LLAMA_ARG_PORT": "8080"
        }

    play(("sh", "-c", "cat; env; echo here >&2"), story, environ)
    out, err = capfd.readouterr()
    names = {line.partition("=")[0] for line in out.splitlines()}
    assert names - {"PWD", "SHLVL", "_", "OLDPWD"} == {"PATH", "LLAMA_ARG_PORT"}
    assert err == "here\n"


@pytest.mark.parametrize(("mode", "status"), [(None, 127), (0o644, 126)])
def test_one_that_cant_be_started(tmp_path: Path, mode: int | None, status: int) -> None:
    program = tmp_path / "llama-server"
    if mode is not None:
        program.write_text("#!/bin/sh\n")
        program.chmod(mode)

    async def story(child: Child) -> None:
        with pytest.raises(OSError, match=r"No such file|Permission denied"):
            await child.start()
        state = await child.show()
        assert (child.status, state.unit.active, state.unit.exit_status) == (status, "failed", status)
        result = await child.restart()
        assert result.outcome is Done.FAILED
        assert result.text.startswith(f"{program} can't be started: ")

    play((str(program),), story)


# Restarting


def test_it_is_started_again_in_place() -> None:
    async def story(child: Child) -> None:
        await child.start()
        first = await identity_of(child)
        os.kill(first.pid, signal.SIGKILL)
        await child.wait()
        result = await child.restart(first)
        second = await identity_of(child)
        assert (result.outcome, child.starts) == (Done.DONE, 2)
        assert result.text == f"started our child sh again, as pid {second.pid}"
        assert second != first
        assert (await child.show()).unit.active == "active"

    play(SLEEP, story)


@pytest.mark.parametrize("known", [True, False])
def test_one_that_is_alive_gets_no_twin(known: bool) -> None:
    """Also where nobody could tell which process is the server."""

    async def story(child: Child) -> None:
        await child.start()
        identity = await identity_of(child)
        result = await child.restart(identity if known else None)
        assert result.outcome is Done.FAILED
        assert result.text == f"pid {identity.pid} is still alive: nothing is started beside it"
        assert (child.starts, await identity_of(child)) == (1, identity)

    play(SLEEP, story)


def test_its_successor_is_not_restarted_for_it() -> None:
    async def story(child: Child) -> None:
        await child.start()
        first = await identity_of(child)
        await child.kill()
        await child.wait()
        await asyncio.sleep(0.02)  # two of the kernel's ticks, by which one process is later than another
        assert (await child.restart(first)).outcome is Done.DONE
        second = await identity_of(child)
        result = await child.restart(first)
        assert (result.outcome, result.text) == (Done.DONE, "our child sh has been started already")
        assert (await child.signal(signal.SIGKILL, first)).outcome is Done.FAILED
        assert await identity_of(child) == second

    play(SLEEP, story)


def test_a_wrapper_that_outlives_its_server_ends_before_the_next_start(tmp_path: Path) -> None:
    server = tmp_path / "server"

    async def story(child: Child) -> None:
        await child.start()
        first, wrapper = await someone(server), await identity_of(child)
        os.kill(first.pid, signal.SIGKILL)
        assert await signals.wait_ended(first, 5)
        server.unlink()
        assert (await child.restart(first)).outcome is Done.DONE
        assert await signals.ended(wrapper)
        assert await someone(server) != first
        assert child.starts == 2

    play(f"sleep 60 & echo $! >{server}; wait; {SLEEP}", story)


def test_an_orphan_of_its_session_ends_before_the_next_start(tmp_path: Path) -> None:
    """As a fork that an aborting server made for its backtrace: it holds the port."""
    orphan = tmp_path / "orphan"

    async def story(child: Child) -> None:
        await child.start()
        first, left = await identity_of(child), await someone(orphan)
        os.kill(first.pid, signal.SIGKILL)
        await child.wait()
        assert not await signals.ended(left)
        assert (await child.restart(first)).outcome is Done.DONE
        assert await signals.ended(left)

    play(f"sleep 60 & echo $! >{orphan}; {SLEEP}", story)


def test_beside_what_cant_be_killed_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orphan = tmp_path / "orphan"
    monkeypatch.setattr(room, "_LEFT_SECONDS", 0.05)

    async def story(child: Child) -> None:
        await child.start()
        first, left = await identity_of(child), await someone(orphan)
        os.kill(first.pid, signal.SIGKILL)
        await child.wait()
        with monkeypatch.context() as stuck:
            stuck.setattr(signals, "_send", lambda _identity, _sig: None)
            result = await child.restart(first)
        assert result.outcome is Done.FAILED
        assert result.text == f"pid {left.pid} is alive after SIGKILL: nothing is started beside it"
        assert child.starts == 1

    play(f"sleep 60 & echo $! >{orphan}; {SLEEP}", story)


# Signals


def test_sigkill_is_for_all_of_it(tmp_path: Path) -> None:
    server = tmp_path / "server"

    async def story(child: Child) -> None:
        await child.start()
        inner, outer = await someone(server), await identity_of(child)
        result = await child.signal(signal.SIGKILL, inner)
        assert (result.outcome, result.text) == (Done.DONE, "sent SIGKILL to all of our child sh")
        assert await signals.wait_ended(inner, 5)
        assert await signals.wait_ended(outer, 5)

    play(f"sleep 60 & echo $! >{server}; wait; {SLEEP}", story)


def test_other_signals_it_could_send_no_better_than_the_hands() -> None:
    async def story(child: Child) -> None:
        await child.start()
        assert (await child.signal(signal.SIGTERM)).outcome is Done.UNSUPPORTED
        assert child.running

    play(SLEEP, story)


def test_a_signal_that_is_passed_on_is_an_order_to_stop(tmp_path: Path) -> None:
    """Also to one that ends with a status of its own."""
    ready = tmp_path / "ready"
    server = (
        "import signal, sys, pathlib\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\n"
        f"pathlib.Path({str(ready)!r}).write_text('ready\\n')\n"
        "signal.pause()"
    )

    async def story(child: Child) -> None:
        await child.start()
        await said(ready)
        await child.pass_on(signal.SIGTERM)
        await child.wait()
        unit = (await child.show()).unit
        assert (unit.active, unit.exit_status, unit.stop_ordered) == ("failed", 3, True)

    play((sys.executable, "-IS", "-c", server), story)


def test_one_that_was_told_to_end_is_not_started_again() -> None:
    async def story(child: Child) -> None:
        await child.start()
        await child.pass_on(signal.SIGINT)
        await child.wait()
        result = await child.restart()
        assert (result.outcome, result.text) == (Done.FAILED, "our child sh has been told to end")

    play(SLEEP, story)


def test_one_that_is_told_to_end_while_it_is_started_ends() -> None:
    async def story(child: Child) -> None:
        starting = asyncio.create_task(child.start())
        await asyncio.sleep(0)
        await child.pass_on(signal.SIGTERM)
        await starting
        await child.wait()
        assert child.status == 128 + signal.SIGTERM

    play(SLEEP, story)


def test_a_server_outlives_its_wrapper_and_gets_its_signals(tmp_path: Path) -> None:
    """As of a script without `exec`: ended by SIGTERM, it leaves the server to us."""
    server = tmp_path / "server"

    async def story(child: Child) -> None:
        await child.start()
        inner = await someone(server)
        await child.pass_on(signal.SIGTERM)
        await child.wait()
        waiting = asyncio.create_task(child.wait_for_all())
        assert not await signals.ended(inner)
        assert not waiting.done()
        await child.pass_on(signal.SIGTERM)
        await waiting
        assert await signals.ended(inner)

    play(f"sleep 60 & echo $! >{server}; wait", story)


def test_a_signal_for_one_that_has_ended_comes_to_nothing() -> None:
    async def story(child: Child) -> None:
        await child.start()
        await child.wait()
        await child.pass_on(signal.SIGHUP)
        assert not (await child.show()).unit.stop_ordered

    play("exit 1", story)
