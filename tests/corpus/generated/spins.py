"""Spinning servers: one thread, all of them, the GPU; and churning ones."""

from __future__ import annotations

from llama_watchdog.simulator.config import Task
from llama_watchdog.simulator.faults import Fault
from llama_watchdog.simulator.happenings import (
    Request,
    Strike,
)
from tests.corpus.entry import Acts, Entry, fault
from tests.corpus.generated.common import (
    AT,
    EVERY_TEN,
    EVERY_TWENTY,
    GPU,
    LATE,
    decoding,
    idle,
    prefilling,
    wedge,
)
from tests.corpus.generated.noise import crowded, http_load, one_thread
from tests.corpus.generated.sight import (
    gpu_stuck,
    neighbour_gpu,
)

SPINS_FROZEN = Acts(AT, 60.0, "frozen", "spinning")
SPINS_SILENTLY = Acts(AT, 60.0, "slots-hang", "spinning")


SPINS: list[Entry] = [
    fault(
        "K3", "spin-decoding", "one thread at 100 %, in an answer", wedge(decoding(Fault.SPIN)), SPINS_FROZEN
    ),
    fault("K3", "spin-prefilling", "in a prompt", wedge(prefilling(Fault.SPIN)), SPINS_FROZEN),
    fault("K3", "spin-idle", "with nothing to do", wedge(idle(Fault.SPIN)), SPINS_SILENTLY),
    fault("K3", "spin-old", "an old build", wedge(decoding(Fault.SPIN), form=LATE), SPINS_SILENTLY),
    fault(
        "K3", "spin-steady", "seen at every 5 s alone", wedge(decoding(Fault.SPIN), steady=True), SPINS_FROZEN
    ),
    fault(
        "K3", "spin-10s", "looked at every 10 s", wedge(decoding(Fault.SPIN), watcher=EVERY_TEN), SPINS_FROZEN
    ),
    fault(
        "K3",
        "spin-crowded",
        "on a busy machine that gives it 65 % of a core",
        wedge(decoding(Fault.SPIN), crowded(0.65)),
        SPINS_FROZEN,
    ),
    fault(
        "K3",
        "spin-retries",
        "while clients retry",
        wedge(decoding(Fault.SPIN), http_load(0.08, AT)),
        SPINS_FROZEN,
    ),
    fault(
        "K3",
        "spin-gpu-idle",
        "a GPU server whose GPU does nothing, though a neighbour's kernels run there",
        wedge(decoding(Fault.SPIN), neighbour_gpu(), config=GPU),
        SPINS_FROZEN,
    ),
    fault(
        "K3",
        "spin-helper",
        "not the main thread spins, but a worker",
        wedge(decoding(Fault.FREEZE), one_thread(AT, 1e9, state="R", cpu=0.99, n=2)),
        SPINS_FROZEN,
    ),
    fault(
        "K3",
        "gpu-at-full-load",
        "the GPU is at 100 %, and no counter moves: only the pace tells",
        wedge(decoding(Fault.FREEZE), gpu_stuck(1.0, AT), config=GPU, minutes=13),
        Acts(AT, 300.0, "frozen", "computing"),
    ),
    fault(
        "K3",
        "all-threads-spin",
        "every thread at 100 %: only the pace tells",
        wedge(decoding(Fault.SPIN_ALL), minutes=13),
        Acts(AT, 300.0, "frozen", "computing"),
    ),
    fault(
        "K3",
        "all-threads-spin-prefilling",
        "the same in a prompt",
        wedge(prefilling(Fault.SPIN_ALL), minutes=13),
        Acts(AT, 300.0, "frozen", "computing"),
    ),
    fault(
        "K3",
        "all-threads-spin-old",
        "the same on a build that is silent in every step",
        wedge(decoding(Fault.SPIN_ALL), form=LATE, watcher=EVERY_TWENTY, minutes=128),
        Acts(AT, 7200.0, "slots-hang", "computing"),
    ),
    fault(
        "K3",
        "spin-before-any-token",
        "from the very first task on: it may be compiling kernels",
        wedge([Request(60.0, Task(600, 200)), Strike(60.1, Fault.SPIN)], watcher=EVERY_TWENTY, minutes=125),
        Acts(60.0, 7200.0, "frozen", "computing"),
    ),
    fault(
        "K3",
        "churn",
        "task after task, cancelled after cancelled, and no token moves",
        wedge(decoding(Fault.CHURN), watcher=EVERY_TWENTY, minutes=128),
        Acts(AT, 7200.0, "frozen", "computing", early=6900.0),
    ),
]
