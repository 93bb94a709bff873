"""Servers deaf to requests, hanging after an error or a disconnect, half dead, gone."""

from __future__ import annotations

from llama_watchdog.core.observation import Outcome
from llama_watchdog.simulator.config import ServerConfig, Task
from llama_watchdog.simulator.faults import Fault
from llama_watchdog.simulator.happenings import (
    Leave,
    Request,
    Sigterm,
    Strike,
)
from llama_watchdog.simulator.traces import Watcher
from tests.corpus.entry import Acts, Entry, Never, fault
from tests.corpus.generated.common import (
    AT,
    EVERY_SECOND,
    EVERY_TEN,
    GPU,
    HANGS,
    LATE,
    WORK,
    decoding,
    idle,
    wedge,
)
from tests.corpus.generated.sight import (
    health_dead,
    slots_say,
)

REFUSED = Acts(AT, 15.0, "refused", None)
GONE = Acts(AT, 0.0, "gone", None)


HALF_DEAD: list[Entry] = [
    fault(
        "K4",
        "deferred",
        "requests wait, and every slot is idle",
        wedge(
            [*idle(Fault.DEAF), Request(310.0, Task(50, 50)), Request(312.0, Task(50, 50))],
            config=ServerConfig(endpoint_metrics=True),
        ),
        Acts(310.0, 30.0, "deferred", "blocked"),
    ),
    fault(
        "K4",
        "deferred-old",
        "the same on an old build",
        wedge(
            [*idle(Fault.DEAF), Request(310.0, Task(50, 50))],
            form=LATE,
            steady=True,
            config=ServerConfig(endpoint_metrics=True),
        ),
        Acts(310.0, 30.0, "deferred", "blocked"),
    ),
    fault(
        "K4",
        "deaf-without-metrics",
        "nothing tells of the requests that wait: one silent connection proves nothing",
        wedge([*idle(Fault.DEAF), Request(310.0, Task(50, 50))], minutes=60, watcher=EVERY_TEN),
        Never(healthy=False),
    ),
    fault(
        "K5",
        "zombie-after-an-error",
        "an error, then nothing: no loop, and in the end no /health",
        wedge(decoding(Fault.HANG_SLOTS), health_dead(AT + 12.0), config=GPU),
        Acts(AT, 30.0, "deaf", "blocked"),
    ),
    fault(
        "K5",
        "gone-but-the-port-is-held",
        "the process is gone, its forked child holds the port and answers nothing",
        wedge(decoding(Fault.CRASH), health_dead(AT), slots_say(Outcome.PENDING, since=AT)),
        Acts(AT, 0.0, "gone", None),
    ),
    fault(
        "K6",
        "hang-after-a-disconnect",
        "a client leaves while another is served; then nothing is served",
        wedge(
            [
                *WORK,
                Request(280.0, Task(100, 9000), name="one"),
                Request(281.0, Task(100, 9000), name="other"),
                Leave(AT - 0.5, "one"),
                Strike(AT, Fault.HANG_SLOTS),
            ]
        ),
        HANGS,
    ),
    fault(
        "K6",
        "hang-after-a-disconnect-deaf",
        "and in the end /health dies, too",
        wedge(
            [
                *WORK,
                Request(280.0, Task(100, 9000), name="one"),
                Request(281.0, Task(100, 9000), name="other"),
                Leave(AT - 0.5, "one"),
                Strike(AT, Fault.HANG_SLOTS),
            ],
            health_dead(AT + 15.0),
        ),
        Acts(AT, 30.0, "deaf", "blocked"),
    ),
    fault(
        "K8",
        "refused",
        "connections are refused, and the process lives",
        wedge(decoding(Fault.NO_LISTEN)),
        REFUSED,
    ),
    fault(
        "K8",
        "refused-1s",
        "looked at every second",
        wedge(decoding(Fault.NO_LISTEN), watcher=EVERY_SECOND),
        REFUSED,
    ),
    fault(
        "K8",
        "refused-no-rights",
        "nothing is known of the process",
        wedge(decoding(Fault.NO_LISTEN), watcher=Watcher(sees_process=False)),
        REFUSED,
    ),
    fault(
        "K8",
        "sigterm-came-to-nothing",
        "told to end while it was blocked: the loop ignores it",
        wedge([*decoding(Fault.BLOCK), Sigterm(AT + 8.0)]),
        Acts(AT, 30.0, "slots-hang", "blocked"),
    ),
    fault(
        "K8",
        "sigterm-waits-for-a-client",
        "its port is closed, and it waits for ever for a client that has had no result",
        wedge(
            [
                *WORK,
                Request(AT - 1.0, Task(4000, 100)),
                Strike(AT, Fault.FROZEN_UNTIL_CANCEL),
                Sigterm(AT + 1.0),
            ]
        ),
        Acts(AT + 1.0, 15.0, "refused", None),
    ),
    fault("K8", "crash", "the process is gone", wedge(decoding(Fault.CRASH)), GONE),
    fault("K8", "crash-10s", "looked at every 10 s", wedge(decoding(Fault.CRASH), watcher=EVERY_TEN), GONE),
]
