"""The main job: a wedged llama-server, run by Debian's own unit, serves again, and the journal tells why."""

from __future__ import annotations

import time

import pytest

from tests.e2e.ground.events import actions
from tests.e2e.ground.house import SERVER, House
from tests.e2e.ground.llama_client import Generation
from tests.e2e.ground.waiting import stays_true, wait_until
from tests.e2e.ground.wedge import DECODE

CONFIG = """
[servers.chat]
url = "http://127.0.0.1:8080"
unit = "llama-server.service"
[servers.chat.probe]
interval = "1s"
[servers.chat.stall]
blocked = "6s"
spinning = "8s"
"""
LADDER = ["cancel", "sigterm", "sigterm", "sigkill", "restart"]
LOAD = 3.0  # seconds; the small model takes a third of one


@pytest.mark.parametrize(
    ("mode", "decoding", "evidence", "reason", "budget"),
    [
        ("block", False, "blocked", "slots-hang", 6.0),
        ("block", True, "blocked", "frozen", 6.0),
        ("spin", True, "spinning", "frozen", 8.0),
    ],
)
def test_a_wedged_server_serves_again(
    house: House, mode: str, decoding: bool, evidence: str, reason: str, budget: float
) -> None:
    """Whatever the wedge: one restart, in time, down the ladder in its order, and no second one after it."""
    house.fresh(CONFIG)
    house.wait_for(10, verdict="idle")
    stuck = _decode_under_watch(house) if decoding else None
    before = house.show(SERVER, "InvocationID")
    house.mark()

    house.wedge(mode, DECODE if decoding else "")
    wedged_at = time.monotonic()
    try:
        wait_until(house.client.serves, budget + 20.0 + LOAD, "the server to serve again")
    except TimeoutError as error:
        pytest.fail(f"{error}\n{house.story()}")
    took = time.monotonic() - wedged_at

    assert budget <= took <= budget + 20.0 + LOAD
    assert house.show(SERVER, "InvocationID") != before
    if stuck is not None:
        stuck.wait(1.0)  # its client has been told, too
    wedged = house.wait_for(1, event="verdict", verdict="wedged", reason=reason)
    assert wedged["evidence"] == evidence, house.story()
    assert wedged["stalled_for"] >= budget
    house.wait_for(10, action="restart", outcome="healed")
    stays_true(lambda: house.starts() == 1, 4.0, "exactly one start of the server")
    if reason == "frozen":  # closing connections works from within the unit's sandbox
        assert house.wait_for(1, action="cancel")["outcome"] == "done", house.story()
    assert _climbed(actions(house.events()), from_rung=1 if reason == "slots-hang" else 0), house.story()
    print(f"{mode}, {'decoding' if decoding else 'idle'}: served again after {took:.1f} s")  # noqa: T201  a figure


def _decode_under_watch(house: House) -> Generation:
    """An endless generation that llama-watchdog has seen delivering tokens for some polls."""
    generation = house.client.start_decoding()
    house.wait_for(10, verdict="busy")
    generation.flow()
    return generation


def _climbed(order: list[str], from_rung: int) -> bool:
    """Whether the ladder was climbed from that rung on, none skipped, as far as it took, then the restart."""
    rungs = LADDER[from_rung:-1]
    return order[-1:] == ["restart"] and len(order) > 1 and order[:-1] == rungs[: len(order) - 1]
