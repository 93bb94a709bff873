"""The cancel rung on the real server: a stuck client's slot is freed, and nothing is signalled."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.e2e.ground.real_server import RealServer
from tests.e2e.ground.waiting import wait_until

# In a process of its own, since close_clients spares the connections of the process that calls it.
CLOSE = """
import asyncio, sys
from llama_watchdog.actions.cancel import close_clients
result = asyncio.run(close_clients(int(sys.argv[1])))
print(result.outcome)
"""


def close_clients(server: RealServer) -> str:
    """The outcome of the cancel action, done by another process."""
    done = subprocess.run(
        [sys.executable, "-c", CLOSE, str(server.port)],
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("stream", [True, False])
def test_an_endless_generation_is_freed_by_cancel_alone(real_server: RealServer, stream: bool) -> None:
    """The client gets a reset, the slot is idle, and the same process serves on."""
    client, before = real_server.client, real_server.start_ticks
    generation = client.start("Once upon a time", stream=stream)
    wait_until(lambda: client.busy() and client.decoded() > 3, 20.0, "the slot to decode")

    assert close_clients(real_server) == "done"
    generation.wait(2.0)
    # Without streaming, the server notices only after a second in which it answers nobody: not even us.
    wait_until(lambda: not client.busy(), 10.0, "the slot to be idle") if stream else _look_gently(
        real_server
    )

    wait_until(client.serves, 15.0, "the server to serve")
    assert real_server.start_ticks == before
    assert "interrupt" not in real_server.log.read_text(errors="replace")


def test_with_nobody_connected_there_is_nothing_to_cancel(real_server: RealServer) -> None:
    """So that the ladder goes on at once."""
    assert close_clients(real_server) == "unsupported"


def _look_gently(server: RealServer) -> None:
    log = server.log
    wait_until(lambda: "cancel task" in log.read_text(errors="replace"), 5.0, "the server to cancel")
    wait_until(lambda: not server.client.busy(), 5.0, "the slot to be idle")
