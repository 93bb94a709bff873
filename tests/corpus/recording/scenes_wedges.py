"""Scenes in which the real server is wedged: idle, decoding, prefilling."""

from __future__ import annotations

import time

from tests.corpus.recording.scene import BOOK, scene
from tests.corpus.recording.stage import Stage
from tests.e2e.ground.llama_client import prompt_of
from tests.e2e.ground.wedge import DECODE

BLOCKED = 55.0  # seconds of a wedge to be seen, beyond its budget
SPINNING = 90.0


def wedge(stage: Stage, mode: str, within: str = "") -> None:
    stage.server.wedge(mode, within)
    stage.mark("fault")
    stage.rest(BLOCKED if mode == "block" else SPINNING)


def idle(stage: Stage, mode: str, *options: str) -> None:
    stage.start(*options)
    stage.watch(2)
    stage.client.complete(n_predict=20)
    stage.polls(3)
    wedge(stage, mode)


def decoding(stage: Stage, mode: str, *options: str, threads: int = 1) -> None:
    stage.start(*options, threads=threads)
    stage.watch(2)
    stage.client.start_decoding(BOOK)
    stage.polls(3)
    wedge(stage, mode, DECODE)


def prefilling(stage: Stage, mode: str, threads: int = 1) -> None:
    stage.start(threads=threads)
    stage.client.complete(n_predict=20)
    stage.watch(3)
    stage.client.start(prompt_of(3500), 20)
    stage.rest(7.0)
    wedge(stage, mode, DECODE)


@scene("block-idle", interval="2s")
def block_idle(stage: Stage) -> None:
    """Wedged with nothing to do."""
    idle(stage, "block")


@scene("block-decoding", interval="5s")
def block_decoding(stage: Stage) -> None:
    """Wedged in the middle of an answer."""
    decoding(stage, "block")


@scene("block-prefilling", interval="1s")
def block_prefilling(stage: Stage) -> None:
    """Wedged in the middle of a step of a prompt."""
    prefilling(stage, "block")


@scene("spin-idle", interval="5s")
def spin_idle(stage: Stage) -> None:
    """One thread spins, with nothing to do. Two compute threads: a single busy one is no work."""
    stage.start(threads=2)
    stage.client.complete(n_predict=20)
    stage.watch(3)
    wedge(stage, "spin")


@scene("spin-decoding", interval="2s")
def spin_decoding(stage: Stage) -> None:
    """One thread spins in the middle of an answer."""
    stage.start(threads=2)
    stage.watch(2)
    stage.client.start_decoding(BOOK)
    stage.polls(3)
    wedge(stage, "spin", DECODE)


@scene("spin-prefilling", interval="1s")
def spin_prefilling(stage: Stage) -> None:
    """One thread spins in the middle of a step of a prompt."""
    prefilling(stage, "spin", threads=2)


@scene("block-four-slots", interval="2s")
def block_four_slots(stage: Stage) -> None:
    """Four answers at once stand still, and two more requests wait."""
    stage.start("--parallel", "4")
    stage.watch(2)
    for _ in range(6):
        stage.client.start(BOOK)
    stage.rest(12.0)
    wedge(stage, "block", DECODE)


@scene("block-two-threads", interval="2s")
def block_two_threads(stage: Stage) -> None:
    """Wedged in the middle of an answer that two threads were at."""
    decoding(stage, "block", threads=2)


@scene("block-client-left", interval="2s")
def block_client_left(stage: Stage) -> None:
    """Wedged in the middle of an answer, and its client leaves soon after."""
    stage.start()
    stage.watch(2)
    generation = stage.client.start_decoding(BOOK)
    stage.polls(3)
    stage.server.wedge("block", DECODE)
    stage.mark("fault")
    stage.rest(5.0)
    generation.close()
    stage.rest(BLOCKED)


@scene("block-retries", interval="2s")
def block_retries(stage: Stage) -> None:
    """Clients ask again and again with long prompts: HTTP threads tokenise for nothing."""
    stage.start()
    stage.watch(2)
    stage.client.start_decoding(BOOK)
    stage.polls(3)
    stage.server.wedge("block", DECODE)
    stage.mark("fault")
    end = time.monotonic() + BLOCKED + 20.0
    while time.monotonic() < end:
        asking = stage.client.start(prompt_of(3000), 20)
        stage.rest(2.5)
        asking.close()
