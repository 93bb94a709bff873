"""Frozen counters, half wedged servers, and a hiccup that does not end."""

from __future__ import annotations

from llama_watchdog.simulator.config import ServerConfig, Task
from llama_watchdog.simulator.faults import Fault
from llama_watchdog.simulator.happenings import (
    Happening,
    Request,
    Strike,
)
from llama_watchdog.simulator.traces import Watcher
from tests.corpus.entry import Acts, Entry, Never, fault
from tests.corpus.generated.common import (
    AT,
    BLOCKED,
    EVERY_TEN,
    GPU,
    WORK,
    decoding,
    wedge,
)
from tests.corpus.generated.noise import http_load, one_thread
from tests.corpus.generated.sight import (
    gpu_unknown,
    neighbour_gpu,
    no_clients,
)

STRUCK: list[Happening] = [
    *WORK,
    Request(280.0, Task(100, 100_000)),
    Strike(AT, Fault.FROZEN_UNTIL_CANCEL),
]  # one slot of four


def beside(until: float) -> list[Happening]:
    """Short answers in the other slots, until then."""
    return [Request(AT + 5.0 + 20.0 * n, Task(300, 200)) for n in range(int((until - AT) / 20.0))]


FREEZES: list[Entry] = [
    fault("K2", "freeze", "/slots answers in a millisecond", wedge(decoding(Fault.FREEZE)), BLOCKED),
    fault(
        "K2",
        "freeze-client-gone",
        "its client is long gone",
        wedge(decoding(Fault.FREEZE), no_clients(AT + 4.0)),
        BLOCKED,
    ),
    fault(
        "K2",
        "freeze-retries",
        "clients retry: HTTP threads tokenise for nothing",
        wedge(decoding(Fault.FREEZE), http_load(0.12, AT)),
        BLOCKED,
    ),
    fault(
        "K2",
        "freeze-eight-slots",
        "eight slots at once",
        wedge(
            [*WORK, *[Request(270.0, Task(100, 9000)) for _ in range(8)], Strike(AT, Fault.FREEZE)],
            config=ServerConfig(slots=8, context=1 << 20),
        ),
        BLOCKED,
    ),
    fault(
        "K2",
        "freeze-until-cancel",
        "a slot that only a cancel would free",
        wedge(decoding(Fault.FROZEN_UNTIL_CANCEL)),
        BLOCKED,
    ),
    fault(
        "K2",
        "freeze-gpu-neighbour",
        "a neighbour has the GPU: its load is none of ours",
        wedge(decoding(Fault.FREEZE), neighbour_gpu(), config=GPU),
        BLOCKED,
    ),
    fault(
        "K2",
        "freeze-gpu-unknown",
        "its GPU's load can't be known",
        wedge(decoding(Fault.FREEZE), gpu_unknown, config=GPU),
        Acts(AT, 120.0, "frozen", "unknown"),
    ),
    fault(
        "K2",
        "freeze-gpu-unattributed",
        "the device is busy, and nobody can tell for whom",
        wedge(decoding(Fault.FREEZE), neighbour_gpu(own_known=False), config=GPU, minutes=13),
        Acts(AT, 300.0, "frozen", "computing"),
    ),
    fault(
        "K2",
        "freeze-2s-after-hours",
        "after three hours of work",
        wedge(
            [
                *[Request(20.0 + 60.0 * n, Task(900, 900)) for n in range(178)],
                *decoding(Fault.FREEZE, 10800.0),
            ],
            watcher=Watcher(interval=10.0),
            minutes=184,
        ),
        Acts(10800.0, 30.0, "frozen", "blocked"),
    ),
    fault(
        "K12",
        "one-of-four-others-move",
        "one slot stands, and the others move",
        wedge([*STRUCK, *beside(3900.0)], minutes=65),
        Never(healthy=False),
        seen="suspect",
    ),
    fault(
        "K12",
        "one-of-four-others-move-10s",
        "the same, looked at every 10 s: many a short task comes and goes unseen",
        wedge([*STRUCK, *beside(7500.0)], minutes=125, watcher=EVERY_TEN),
        Never(healthy=False),
        seen="suspect",
    ),
    fault(
        "K12",
        "one-of-four-others-done",
        "the others move for ten minutes and have nothing to do from then on",
        wedge([*STRUCK, *beside(900.0)], minutes=40),
        Acts(AT, 1800.0, "frozen", "blocked"),
    ),
    fault(
        "K12",
        "one-of-four-others-never",
        "no other slot has anything to do: a wedge as any",
        wedge(STRUCK),
        Acts(AT, 30.0, "frozen", "blocked"),
    ),
    fault(
        "K12",
        "one-of-four-then-all",
        "after ten minutes the loop stands, with all of them",
        wedge(
            [*STRUCK, *beside(900.0), Request(880.0, Task(100, 100_000)), Strike(900.0, Fault.BLOCK)],
            minutes=20,
        ),
        Acts(900.0, 30.0, "frozen", "blocked"),
    ),
    fault(
        "F8",
        "hiccup-that-does-not-end",
        "it looked like a hiccup of kernel time",
        wedge(decoding(Fault.FREEZE), one_thread(AT, AT + 50.0, state="R", cpu=1.0)),
        Acts(AT + 50.0, 30.0, "frozen", "blocked"),
    ),
]
