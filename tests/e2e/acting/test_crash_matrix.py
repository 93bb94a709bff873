"""The watchdog is killed at each instant of an incident that could matter; the next one ends it, once.

Nothing of the product is changed for it: `ground/crash.py` runs the real program and kills it there. What was
really done is read from what that wrote down of each order, from systemd, and from bystanders that tell of
any signal.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.ground.accidents import Accidents, Bystander, wedge_in_decode
from tests.e2e.ground.house import WATCHDOG, House
from tests.e2e.ground.waiting import stays_true, wait_until

CONFIG = """
[servers.chat]
url = "http://127.0.0.1:8080"
unit = "llama-server.service"
[servers.chat.probe]
interval = "0.5s"
[servers.chat.stall]
blocked = "3s"
[servers.chat.escalation]
ladder = {ladder}
cancel_grace = "1s"
sigterm_grace = "1s"
"""
# A wedged server is deaf to the first SIGTERM; whether the second ends it is left to chance, as in the field.
# Without a cancel it goes faster by the 3 s in which /slots is left alone after one.
TO_SIGTERM = ("cancel", "sigterm", "sigkill")
TO_SECOND = ("sigterm", "sigterm", "sigkill")
TO_SIGKILL = ("sigterm", "sigkill")
POINTS = [
    ("confirming kept", TO_SIGTERM),
    *((f"cancel 1 {moment}", TO_SIGTERM) for moment in ("kept", "given", "told")),
    *((f"sigterm 1 {moment}", TO_SIGTERM) for moment in ("kept", "given", "told")),
    *((f"sigterm 2 {moment}", TO_SECOND) for moment in ("kept", "given", "told")),
    *((f"sigkill 1 {moment}", TO_SIGKILL) for moment in ("kept", "given", "told")),
    *((f"restart 1 {moment}", TO_SIGKILL) for moment in ("kept", "given", "told")),
    ("healed told", TO_SIGKILL),
    ("healed kept", TO_SIGKILL),
]
# Budget, confirmation and ladder of two lives, RestartSec=2, and the time that a restart has to show.
WITHIN = 45.0


@pytest.fixture(scope="module")
def accidents(house: House) -> Accidents:
    """The house's watchdog is run by `crash.py`."""
    return Accidents(house)


@pytest.fixture
def bystander(house: House) -> Iterator[Bystander]:
    """Another process of the server's name."""
    bystander = Bystander(house)
    yield bystander
    bystander.end()


@pytest.mark.parametrize(("point", "ladder"), POINTS, ids=[point.replace(" ", "-") for point, _ in POINTS])
def test_killed_there_it_ends_the_incident_once(
    house: House, accidents: Accidents, bystander: Bystander, point: str, ladder: tuple[str, ...]
) -> None:
    """One restart; no rung twice, but a SIGKILL to the same process; one incident; nobody else is hit."""
    accidents.plan(at=point)
    house.fresh(CONFIG.format(ladder=json.dumps(ladder)))
    house.wait_for(10, verdict="idle")
    house.client.start_decoding()
    house.wait_for(10, verdict="busy")
    victim = house.main_pid()
    house.mark()
    began = time.monotonic()
    wedge_in_decode(house, victim)

    try:
        wait_until(lambda: house.show(WATCHDOG, "NRestarts") == "1", WITHIN, "the watchdog to be killed")
        wait_until(lambda: house.starts() and house.client.serves(), WITHIN, "the server to serve again")
    except TimeoutError as error:
        pytest.fail(f"{error}\n{house.story()}")
    took = time.monotonic() - began
    again = house.main_pid()
    wait_until(lambda: "chat: idle" in house.show(WATCHDOG, "StatusText"), 15.0, "the watchdog to be calm")
    quiet = lambda: house.starts() == 1 and house.main_pid() == again
    stays_true(quiet, 2.0, f"one start of the server\n{house.story()}")

    assert accidents.happened() == point
    assert house.show(WATCHDOG, "NRestarts") == "1", house.story()
    check_orders(accidents.orders(), victim, ladder, house.story())
    told = [event for event in house.events() if event["event"] == "action"]
    assert {event["incident"] for event in told} == {"1"}, house.story()
    assert bystander.unhurt(), house.story()
    print(f"{point}: served again after {took:.1f} s")  # noqa: T201  a figure


def check_orders(orders: list[dict[str, Any]], victim: int, ladder: tuple[str, ...], story: str) -> None:
    """What was carried out in both lives: the ladder's rungs in their order, each once, then a restart."""
    said = f"{orders}\n{story}"
    signalled = [order for order in orders if order["action"] != "restart"]
    assert {order["target"][0] for order in signalled} == {victim}, said
    assert len({tuple(order["target"]) for order in signalled}) == 1, said
    assert {order["incident"] for order in orders} == {1}, said
    done = [order["action"] for order in orders]
    times = Counter(done)
    assert times["restart"] == 1, said
    assert times["sigkill"] <= 2, said  # the same process, as was checked
    for action in ("cancel", "sigterm"):
        assert times[action] <= ladder.count(action), said
    climbed = [action for i, action in enumerate(done) if action != "sigkill" or done[i - 1] != "sigkill"]
    rungs = iter([*ladder, "restart"])
    assert all(action in rungs for action in climbed), said  # a subsequence: none after a later one
