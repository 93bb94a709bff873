"""Scenes in which the real server is wedged in other ways, killed, or told to end."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import suppress

from tests.corpus.recording.machine import OWN_MODEL, cgroup, disk, own_copy
from tests.corpus.recording.scene import BOOK, scene
from tests.corpus.recording.scenes_wedges import BLOCKED, SPINNING, decoding, wedge
from tests.corpus.recording.stage import Stage
from tests.e2e.ground.llama_client import prompt_of
from tests.e2e.ground.wedge import DECODE


@scene("block-sigterm", interval="2s")
def block_sigterm(stage: Stage) -> None:
    """Somebody sends SIGTERM to the wedged server, and nothing comes of it."""
    stage.start()
    stage.watch(2)
    stage.client.start_decoding(BOOK)
    stage.polls(3)
    stage.server.wedge("block", DECODE)
    stage.mark("fault")
    stage.rest(10.0)
    stage.server.process.send_signal(signal.SIGTERM)
    stage.rest(BLOCKED)


@scene("block-metrics", interval="2s")
def block_metrics(stage: Stage) -> None:
    """`/slots` is switched off, `/metrics` is not: a wedge all the same."""
    decoding(stage, "block", "--no-slots", "--metrics")


@scene("block-no-slots", interval="2s")
def block_no_slots(stage: Stage) -> None:
    """Neither is to be had: nothing can be proven."""
    stage.start("--no-slots")
    stage.watch(2)
    stage.client.start(BOOK)
    stage.rest(8.0)
    wedge(stage, "block", DECODE)


@scene("block-few-rights", interval="2s", rights=False)
def block_few_rights(stage: Stage) -> None:
    """Wedged in the middle of an answer, watched by an ordinary user."""
    decoding(stage, "block")


@scene("block-asleep", interval="2s")
def block_asleep(stage: Stage) -> None:
    """Wedged while asleep; a client comes, and is not served."""
    stage.start("--sleep-idle-seconds", "10")
    stage.watch(2)
    stage.client.complete(n_predict=20)
    stage.rest(30.0)
    stage.server.wedge("block")
    stage.mark("wedged")
    stage.rest(10.0)
    threading.Thread(target=_ask, args=(stage,), daemon=True).start()
    stage.mark("fault")
    stage.rest(100.0)


@scene("block-before-sleep", interval="2s")
def block_before_sleep(stage: Stage) -> None:
    """A server that can sleep is wedged while it decodes."""
    decoding(stage, "block", "--sleep-idle-seconds", "20")


@scene("killed", interval="1s")
def killed(stage: Stage) -> None:
    """SIGKILL; its parent has not reaped it for a while."""
    stage.start()
    stage.watch(2)
    stage.client.start_decoding(BOOK)
    stage.polls(3)
    stage.server.process.send_signal(signal.SIGKILL)
    stage.mark("fault")
    stage.rest(8.0)
    stage.server.process.wait()
    stage.rest(8.0)


@scene("killed-and-back", interval="2s")
def killed_and_back(stage: Stage) -> None:
    """SIGKILL, and somebody starts it again; the new one works."""
    stage.start()
    stage.watch(2)
    stage.client.start_decoding(BOOK)
    stage.polls(3)
    stage.server.stop()
    stage.mark("fault")
    stage.rest(6.0)
    stage.start()
    stage.client.complete(n_predict=40)
    stage.polls(5)


@scene("sigterm-in-prefill", interval="1s")
def sigterm_in_prefill(stage: Stage) -> None:
    """A healthy server is told to end in the middle of a step: it does, once the step is over."""
    stage.start()
    stage.watch(2)
    stage.client.start(prompt_of(3500), 20)
    stage.rest(6.0)
    stage.server.process.send_signal(signal.SIGTERM)
    stage.mark("told")
    while stage.client.healthy():
        time.sleep(0.1)
    stage.mark("refused")
    stage.server.process.wait()
    stage.mark("fault")
    stage.rest(8.0)


@scene("grammar-explodes", interval="2s")
def grammar_explodes(stage: Stage) -> None:
    """A client's grammar is so ambiguous that one thread never gets through: a wedge by no tool of ours."""
    stage.start(threads=2)
    stage.watch(2)
    stage.client.complete(n_predict=20)
    stage.polls(2)
    rules = "root ::= x{0,40}\nx ::= [a-z ]? [a-z ]? [a-z ]? [a-z ]?"
    body = {"prompt": BOOK, "n_predict": 20, "grammar": rules, "ignore_eos": True}
    stage.mark("fault")
    with suppress(OSError):
        stage.client.request("POST", "/completion", body, timeout=40.0)
    stage.rest(SPINNING - 30.0)


@scene("load-hangs", interval="5s")
def load_hangs(stage: Stage) -> None:
    """Loading is wedged half-way, while clients ask again and again, and get a 503 for half an hour."""
    with cgroup("blkio", blkio__throttle__read_bps_device=f"{disk()} 1000000") as slow:
        own_copy(stage)
        stage.launch(groups=(slow,), model=OWN_MODEL)
        stage.watch(5)
        stage.server.wedge("block")
        stage.mark("fault")
        end = time.monotonic() + 1835.0
        while time.monotonic() < end:
            with suppress(OSError):
                stage.client.request("POST", "/completion", {"prompt": prompt_of(2000)})
            stage.rest(7.0)


def _ask(stage: Stage) -> None:
    with suppress(Exception):  # it is never answered
        stage.client.complete(timeout=150.0)
