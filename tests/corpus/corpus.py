"""The corpus: every trace, of every kind of situation, with what must and must not come of it."""

from __future__ import annotations

from tests.corpus.entry import Entry
from tests.corpus.generated.beyond_help import BEYOND_HELP
from tests.corpus.generated.blocks import BLOCKS
from tests.corpus.generated.freezes import FREEZES
from tests.corpus.generated.half_dead import HALF_DEAD
from tests.corpus.generated.held import HELD
from tests.corpus.generated.loads import LOADS
from tests.corpus.generated.other_work import OTHER_WORK
from tests.corpus.generated.sleepers import SLEEPERS
from tests.corpus.generated.slow_machines import SLOW_MACHINES
from tests.corpus.generated.slow_prefill import SLOW_PREFILL
from tests.corpus.generated.spins import SPINS
from tests.corpus.generated.strangers import STRANGERS
from tests.corpus.recordings import RECORDINGS

KINDS = [*(f"K{n}" for n in range(1, 13)), *(f"F{n}" for n in range(1, 15)), "B1", "P1"]
TABLE: list[Entry] = [
    *SLOW_PREFILL,
    *OTHER_WORK,
    *SLOW_MACHINES,
    *LOADS,
    *SLEEPERS,
    *HELD,
    *STRANGERS,
    *BLOCKS,
    *FREEZES,
    *SPINS,
    *HALF_DEAD,
    *BEYOND_HELP,
    *RECORDINGS,
]
