"""Blocked servers: in every build, in every phase, with and without rights."""

from __future__ import annotations

from llama_watchdog.simulator.config import Compute, ServerConfig
from llama_watchdog.simulator.faults import Fault
from llama_watchdog.simulator.traces import Watcher
from tests.corpus.entry import Acts, Entry, fault
from tests.corpus.generated.common import (
    AT,
    BLOCKED,
    EARLY,
    EVERY_SECOND,
    EVERY_TEN,
    GPU,
    HANGS,
    IK,
    LATE,
    NO_RIGHTS,
    OLD,
    decoding,
    idle,
    prefilling,
    wedge,
)
from tests.corpus.generated.noise import http_load, no_threads, writes

BLOCKS: list[Entry] = [
    fault("K1", "block-decoding", "in the middle of an answer", wedge(decoding(Fault.BLOCK)), BLOCKED),
    fault(
        "K1",
        "block-decoding-steady",
        "the same, seen at every 5 s alone",
        wedge(decoding(Fault.BLOCK), steady=True),
        BLOCKED,
    ),
    fault("K1", "block-idle", "with nothing to do", wedge(idle(Fault.BLOCK)), HANGS),
    fault("K1", "block-prefilling", "in the middle of a prompt", wedge(prefilling(Fault.BLOCK)), BLOCKED),
    fault(
        "K1",
        "block-1s",
        "looked at every second",
        wedge(decoding(Fault.BLOCK), watcher=EVERY_SECOND),
        BLOCKED,
    ),
    fault(
        "K1", "block-10s", "looked at every 10 s", wedge(decoding(Fault.BLOCK), watcher=EVERY_TEN), BLOCKED
    ),
    fault("K1", "block-b9247", "no prompt counters", wedge(decoding(Fault.BLOCK), form=OLD), HANGS),
    fault("K1", "block-b9247-idle", "the same, idle", wedge(idle(Fault.BLOCK), form=OLD), HANGS),
    fault(
        "K1",
        "block-2024-late",
        "late 2024",
        wedge(prefilling(Fault.BLOCK), form=LATE),
        HANGS,
    ),
    fault(
        "K1",
        "block-2024-early",
        "early 2024: /health waits in the queue, too",
        wedge(decoding(Fault.BLOCK), form=EARLY),
        Acts(AT, 30.0, "deaf", "blocked"),
    ),
    fault(
        "K1", "block-ik", "ik_llama.cpp", wedge(idle(Fault.BLOCK), form=IK), Acts(AT, 30.0, "deaf", "blocked")
    ),
    fault(
        "K1",
        "block-no-io",
        "reads and writes can't be seen",
        wedge(decoding(Fault.BLOCK), watcher=Watcher(sees_io=False)),
        BLOCKED,
    ),
    fault(
        "K1",
        "block-noisy-start",
        "HTTP threads are busy for its first 20 s",
        wedge(decoding(Fault.BLOCK), http_load(0.1, AT, AT + 20.0)),
        BLOCKED,
    ),
    fault(
        "K1",
        "block-log-lines",
        "clients retry, and each retry is a line in a log file: pages are written",
        wedge(decoding(Fault.BLOCK), writes(1500.0, AT)),
        BLOCKED,
    ),
    fault(
        "K1", "block-no-threads", "threads can't be seen", wedge(decoding(Fault.BLOCK), no_threads), BLOCKED
    ),
    fault(
        "K1",
        "block-no-rights",
        "nothing is known of the process, but its pace",
        wedge(decoding(Fault.BLOCK), watcher=NO_RIGHTS, minutes=13),
        Acts(AT, 300.0, "frozen", "computing"),
    ),
    fault(
        "K1",
        "block-no-rights-old",
        "nor is it of the kind that answers",
        wedge(
            decoding(Fault.BLOCK), watcher=Watcher(interval=20.0, sees_process=False), form=OLD, minutes=128
        ),
        Acts(AT, 7200.0, "slots-hang", "computing"),
    ),
    fault(
        "K1",
        "block-worker",
        "its workers are still, too",
        wedge(
            decoding(Fault.BLOCK), http_load(0.04), config=ServerConfig(compute=Compute.CPU_WORKER, threads=5)
        ),
        BLOCKED,
    ),
    fault("K1", "block-gpu", "and its GPU idle", wedge(decoding(Fault.BLOCK), config=GPU), BLOCKED),
]
