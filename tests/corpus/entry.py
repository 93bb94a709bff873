"""One line of the corpus's table: a trace, the kind of situation it shows, and what must come of it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.corpus.generated.story import Story

RECORDED = Path(__file__).with_name("recorded")
POLLS_LATE = 2  # a wedge is acted upon within its budget and so many polls
JITTER = 0.6  # seconds: polls come late on a machine at work


@dataclass(frozen=True)
class Recorded:
    """A file below recorded/, with the moments that its scene has marked."""

    scene: str

    def lines(self, _: str) -> Iterator[str]:
        """The trace."""
        with gzip.open(RECORDED / f"{self.scene}.jsonl.gz", "rt", encoding="utf-8") as file:
            yield from file

    def moment(self, mark: str) -> float:
        """Seconds on the trace's clock."""
        return float(json.loads((RECORDED / "moments.json").read_text())[self.scene][mark])


@dataclass(frozen=True)
class Acts:
    """The first action comes after `fault_at`, within budget and two polls; with that reason and evidence.

    `fault_at`: seconds, or a mark of the recording. `early`: how long the counters may have stood already.
    """

    fault_at: float | str
    budget: float
    reason: str
    evidence: str | None
    early: float = 0.0


@dataclass(frozen=True)
class Never:
    """No action, ever. `healthy`: nothing is wrong with it; else nothing can be proven, or it is not ours."""

    healthy: bool = True


@dataclass(frozen=True)
class Entry:
    """`seen`, `unseen`: verdicts that there must be, and must not. `lasting`: for how many seconds at least.

    `bug`: why the judge does not live up to this yet.
    """

    name: str
    kind: str
    variant: str
    source: Story | Recorded
    expect: Acts | Never
    interval: float = 5.0
    seen: frozenset[str] = frozenset()
    unseen: frozenset[str] = frozenset()
    lasting: tuple[str, float] | None = None
    bug: str = ""

    def lines(self) -> Iterator[str]:
        """The trace, line by line."""
        return self.source.lines(self.name)

    def fault_at(self) -> float | None:
        """When it went wrong; `None` where it never does."""
        if isinstance(self.expect, Never):
            return None
        at = self.expect.fault_at
        if isinstance(at, str):
            assert isinstance(self.source, Recorded)
            return self.source.moment(at)
        return at


CALM = frozenset(
    {"suspect", "wedged", "down", "held", "unkillable"}
)  # verdicts nobody need see of a healthy one


def words(text: str) -> frozenset[str]:
    """Verdicts, separated by blanks."""
    return frozenset(text.split())


def healthy(
    kind: str,
    name: str,
    variant: str,
    source: Story | Recorded,
    *,
    seen: str = "",
    unseen: str | None = None,
    lasting: tuple[str, float] | None = None,
    bug: str = "",
) -> Entry:
    """Nothing may be done; by default nothing may be suspected either."""
    forbidden = CALM if unseen is None else words(unseen) | {"wedged"}
    interval = source.watcher.interval if isinstance(source, Story) else 5.0
    return Entry(name, kind, variant, source, Never(), interval, words(seen), forbidden, lasting, bug)


def fault(
    kind: str,
    name: str,
    variant: str,
    source: Story | Recorded,
    expect: Acts | Never,
    *,
    seen: str = "",
    interval: float | None = None,
    bug: str = "",
) -> Entry:
    """Something must be done in time, or is known to be beyond proof."""
    if interval is None:
        interval = source.watcher.interval if isinstance(source, Story) else 5.0
    return Entry(name, kind, variant, source, expect, interval, words(seen), bug=bug)
