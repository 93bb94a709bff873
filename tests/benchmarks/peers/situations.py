"""What is played: three wedges of the real server, and four things that look like one and are none."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from llama_watchdog.simulator.launch import Simulated
from tests.benchmarks.peers.limits import share_of_a_core, slow_disk
from tests.benchmarks.peers.loading import loading
from tests.benchmarks.peers.round import WELL, Round
from tests.e2e.ground.llama_client import Generation, prompt_of
from tests.e2e.ground.real_server import RealServer
from tests.e2e.ground.wedge import DECODE

PATIENCE = 90.0  # seconds after a wedge until "never" is said
SHARE, PROMPT = 0.2, 3500
STOPPED = 120.0
MODEL_RATE = 1_050_000  # bytes a second: the model's 98 MB within some 90 s
OLD_RATE, OLD_PROMPT = "12", 900  # tokens a second, tokens: 75 s of silence


@dataclass(frozen=True)
class Situation:
    """One row of the table. `wedged`: somebody must act; else nobody may."""

    name: str
    title: str
    wedged: bool
    play: Callable[[Round], None]
    simulated: bool = False


def _block_idle(r: Round) -> None:
    server = r.start()
    server.client.complete()
    r.note_build(r.watch(server.port))
    server.wedge("block")
    r.happens()
    r.look(PATIENCE)


def _wedge_decoding(r: Round, mode: str) -> None:
    server = r.start(threads=2)  # one that spins is known by the other being still
    generation = _decode_for_a_while(r, server)
    _wedge_within_decode(server, mode)
    r.happens()
    r.look(PATIENCE)
    generation.close()


def _decode_for_a_while(r: Round, server: RealServer) -> Generation:
    client = r.watch(server.port, rest=1.0)
    r.note_build(client)
    generation = client.start_decoding()
    time.sleep(WELL - 1.0)
    return generation


def _wedge_within_decode(server: RealServer, mode: str) -> None:
    """On a machine with more to do than cores the main thread may not be met in there for seconds."""
    for _ in range(3):
        try:
            return server.wedge(mode, DECODE)
        except TimeoutError:
            server.process.send_signal(signal.SIGCONT)
    raise RuntimeError("the server was never met in the middle of a decode")


def _prefill(r: Round) -> None:
    server = r.start()
    server.client.complete()
    with share_of_a_core(SHARE) as group:
        (group / "cgroup.procs").write_text(str(server.pid))
        client = r.watch(server.port)
        r.note_build(client)
        prefill = client.start(prompt_of(PROMPT), n_predict=2)
        r.happens()
        r.look(300.0, lambda: prefill.ended)
        if prefill.error is not None or not prefill.ended:
            raise RuntimeError(f"the prefill was not finished: {prefill.error}")
        r.look_afterwards()


def _stopped(r: Round) -> None:
    server = r.start()
    generation = _decode_for_a_while(r, server)
    server.process.send_signal(signal.SIGSTOP)
    r.happens()
    r.look(STOPPED)
    server.process.send_signal(signal.SIGCONT)
    r.look_afterwards()
    generation.close()


def _load(r: Round) -> None:
    group = r.stack.enter_context(slow_disk(MODEL_RATE))
    server = r.stack.enter_context(loading(r.tree, r.folder, group))
    client = r.watch(server.port, rest=0.0)
    r.happens()
    r.look(200.0, client.healthy)
    r.note_build(client)
    r.look_afterwards()


def _old_build(r: Round) -> None:
    flags = ("--format", "b9247", "--prefill-rate", OLD_RATE, "--parallel", "1", "--threads", "1")
    simulated = r.stack.enter_context(Simulated(*flags))
    client = r.watch(int(simulated.url.rpartition(":")[2]))
    r.note_build(client)
    client.complete()
    prefill = client.start(prompt_of(OLD_PROMPT), n_predict=2)
    r.happens()
    r.look(150.0, lambda: prefill.ended)
    if not prefill.ended:
        raise RuntimeError("the prefill was not finished")
    r.look_afterwards()


SITUATIONS = (
    Situation("block-idle", "main loop blocked while idle", True, _block_idle),
    Situation(
        "block-decoding", "main loop blocked while decoding", True, lambda r: _wedge_decoding(r, "block")
    ),
    Situation(
        "spin-decoding", "main loop spinning while decoding", True, lambda r: _wedge_decoding(r, "spin")
    ),
    Situation("prefill", f"prefill of {PROMPT:,} tokens at {SHARE:.0%} of a core", False, _prefill),
    Situation("stopped", "stopped by SIGSTOP while decoding", False, _stopped),
    Situation("load", "model loading from a slow disk", False, _load),
    Situation(
        "old-build", "prefill on a build whose `/slots` waits for it", False, _old_build, simulated=True
    ),
)
