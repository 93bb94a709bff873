"""What the next watch makes of what this one has kept: whose it is, of which boot, how old."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from llama_watchdog import log
from llama_watchdog.clock import WatchClock
from llama_watchdog.core.action import Action, Identity
from llama_watchdog.core.standing import Stage, Standing
from llama_watchdog.memory import FORGOTTEN_AFTER, Memory
from llama_watchdog.store import Remembered

BEGAN = 1000.0  # seconds since the machine's start
SERVER = Identity(100, 1)
STARTING = Standing(Stage.STARTING, 3, SERVER, until=100.0, last=Action.RESTART, restarts=(-5.0,))


class Disk:
    """The store of one server; `kept`: each standing that was written."""

    def __init__(self) -> None:
        self.kept: list[dict[str, Any]] = []
        self.this_boot = True

    async def standing(self, key: str) -> Remembered | None:
        assert key == "here"
        return Remembered(self.kept[-1], self.this_boot) if self.kept else None

    async def remember(self, key: str, standing: Mapping[str, Any]) -> bool:
        assert key == "here"
        self.kept.append(dict(standing))
        return True


def clock(at: float) -> WatchClock:
    """Of a watch that began so many seconds after the first one, and has just begun."""
    made = WatchClock()
    made.began = BEGAN + at
    made.now = lambda: 0.0  # type: ignore[method-assign]  # time as told
    return made


def memory(disk: Disk) -> Memory:
    return Memory(disk, "here")  # type: ignore[arg-type]  # a stand-in


def remembering(*standings: Standing) -> Disk:
    """By one watch, one after the other."""
    disk = Disk()
    one = memory(disk)
    for standing in standings:
        asyncio.run(one.remember(standing, clock(0.0)))
    return disk


def taken_over(disk: Disk, *, after: float = 10.0, anew: bool = False) -> Standing | None:
    return asyncio.run(memory(disk).take_over(clock(after), anew=anew))


def test_where_nothing_was_kept_there_is_nothing_to_take_over() -> None:
    assert taken_over(Disk()) is None


def test_only_what_has_changed_is_written() -> None:
    calm, other = Standing(), replace(STARTING, appeared=True)
    disk = remembering(calm, STARTING, STARTING, other, other, calm, calm)
    assert [(kept["stage"], kept["appeared"]) for kept in disk.kept] == [
        ("starting", False),
        ("starting", True),
        ("watching", False),
    ]


def test_the_next_watch_goes_on_by_its_own_clock() -> None:
    taken = replace(STARTING, until=90.0, restarts=(-15.0,), resumed=True)
    assert taken_over(remembering(STARTING), after=10.0) == taken


@pytest.mark.parametrize(
    ("until", "after", "known"),
    [
        (None, FORGOTTEN_AFTER, True),
        (None, FORGOTTEN_AFTER + 1.0, False),
        (100.0, FORGOTTEN_AFTER + 100.0, True),
        (100.0, FORGOTTEN_AFTER + 101.0, False),
    ],
)
def test_the_process_of_an_hour_ago_is_looked_for_no_more(
    *, until: float | None, after: float, known: bool
) -> None:
    """Its pid, and the number of its session, may be another's. What it was about stays."""
    standing = taken_over(remembering(replace(STARTING, until=until)), after=after)
    assert standing is not None
    assert standing.target == (SERVER if known else None)
    assert (standing.stage, standing.incident, len(standing.restarts)) == (Stage.STARTING, 3, 1)


@pytest.mark.parametrize(
    ("this_boot", "anew", "restarts"), [(True, True, (-15.0,)), (False, False, ()), (False, True, ())]
)
def test_of_a_server_that_was_started_anew_nothing_that_was_begun_goes_on(
    *, this_boot: bool, anew: bool, restarts: tuple[float, ...]
) -> None:
    """By hand, which forgives no restart, or with the whole machine; incidents keep their numbers apart."""
    disk = remembering(STARTING)
    disk.this_boot = this_boot
    assert taken_over(disk, anew=anew) == Standing(incident=3, restarts=restarts)


def test_what_can_not_be_read_is_begun_anew_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    disk = Disk()
    disk.kept.append({"stage": "asleep"})
    log.configure()
    assert taken_over(disk) is None
    assert "here: what was remembered of it can't be read: begun anew" in capsys.readouterr().err
