"""Servers that cannot be killed, cannot be restarted, or stand behind a router."""

from __future__ import annotations

from llama_watchdog.core.observation import Outcome
from llama_watchdog.simulator.config import ServerConfig, Task
from llama_watchdog.simulator.faults import Fault
from llama_watchdog.simulator.happenings import (
    Request,
    Restart,
    Strike,
)
from llama_watchdog.simulator.traces import Watcher
from tests.corpus.entry import Acts, Entry, Never, fault
from tests.corpus.generated.common import (
    AT,
    EVERY_TWENTY,
    GPU,
    WORK,
    decoding,
    wedge,
)
from tests.corpus.generated.noise import one_thread
from tests.corpus.generated.sight import (
    slots_say,
    unit,
)

GONE = Acts(AT, 0.0, "gone", None)


BEYOND_HELP: list[Entry] = [
    fault(
        "K9",
        "stuck-in-the-driver",
        "state D inside the GPU driver, for ever",
        wedge(decoding(Fault.FREEZE), one_thread(AT, 1e9, state="D"), config=GPU, minutes=39),
        Acts(AT, 1800.0, "frozen", "paging"),
    ),
    fault(
        "K9",
        "spins-in-the-driver",
        "state R inside the GPU driver",
        wedge(decoding(Fault.HANG_SLOTS), one_thread(AT, 1e9, state="R", cpu=1.0), config=GPU),
        Acts(AT, 60.0, "slots-hang", "spinning"),
    ),
    fault(
        "K10",
        "router-child",
        "one model's child is wedged, seen at its own port",
        wedge(decoding(Fault.BLOCK), watcher=Watcher(interval=2.0)),
        Acts(AT, 30.0, "frozen", "blocked"),
    ),
    fault(
        "K10",
        "router-parent",
        "the parent says nothing of the child that is wedged behind it",
        wedge(decoding(Fault.NONE), slots_say(Outcome.UNSUPPORTED), minutes=30),
        Never(healthy=False),
        seen="blind",
    ),
    fault(
        "K10",
        "router-child-fails-everything",
        "every completion ends in a 500: tasks come and go, and no token moves",
        wedge(
            [*WORK, *[Request(AT + 5.0 * n, Task(50, 0)) for n in range(3)], Strike(AT, Fault.CHURN)],
            watcher=EVERY_TWENTY,
            minutes=128,
        ),
        Acts(AT, 7200.0, "frozen", "computing", early=6900.0),
    ),
    fault(
        "K11",
        "crashes-on-each-first-request",
        "restarted by hand, it dies of its first request, again and again",
        wedge(
            [
                *decoding(Fault.CRASH),
                *[
                    happening
                    for n in range(1, 8)
                    for happening in (
                        Restart(AT + 60.0 * n),
                        Request(AT + 60.0 * n + 20.0, Task(50, 50)),
                        Strike(AT + 60.0 * n + 21.0, Fault.CRASH),
                    )
                ],
            ],
            minutes=14,
        ),
        GONE,
    ),
    fault(
        "K11",
        "can-never-start",
        "its configuration is wrong: the unit has failed before the watch began",
        wedge(
            [Strike(0.0, Fault.NO_LISTEN)],
            unit(0.0, active="failed", sub="failed", result="exit-code"),
            watcher=Watcher(sees_process=False),
            config=ServerConfig(),
        ),
        Acts(0.0, 15.0, "refused", None),
    ),
    fault(
        "K11",
        "rpc-peer-gone",
        "it waits for a machine that is gone, and nothing here can show it",
        wedge(decoding(Fault.FREEZE), known={"rpc": True}, minutes=13),
        Acts(AT, 300.0, "frozen", "computing"),
    ),
    fault(
        "K11",
        "wedged-again-after-its-restart",
        "the new incarnation wedges within its first answer",
        wedge(
            [
                *decoding(Fault.CRASH),
                Restart(AT + 3.0),
                Request(AT + 20.0, Task(100, 9000)),
                Strike(AT + 30.0, Fault.BLOCK),
            ]
        ),
        GONE,
    ),
]
