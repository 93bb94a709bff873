"""`llama-watchdog replay`: judges recorded traces, in no time. Nothing is asked, nothing is done.

Every rung is taken as done, and the server heals only as traced.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from rich.table import Table
from rich.text import Text

from llama_watchdog.cli import common
from llama_watchdog.core.action import would_have
from llama_watchdog.core.engine import Engine
from llama_watchdog.core.events import VERSION, Event
from llama_watchdog.core.observation import Observation
from llama_watchdog.core.policy import Policy
from llama_watchdog.core.trace import LONGEST_LINE, Header, TraceError, read
from llama_watchdog.core.verdict import Verdict
from llama_watchdog.core.verdict import seconds as words
from llama_watchdog.settings import ConfigError, load

LARGEST = 4 << 30  # characters of one trace: four times what `record` writes, and an end to any gzip bomb


def add(commands: Any) -> None:
    """Its flags."""
    parser = commands.add_parser("replay", help="judge recorded traces", description=__doc__)
    parser.add_argument("traces", nargs="+", metavar="TRACE", help="files by record; - for standard input")
    parser.add_argument("--config", type=Path, metavar="FILE", help="judge by its settings, not the trace's")
    parser.add_argument("--json", action="store_true", help="events as JSON lines")
    parser.add_argument("--summary", action="store_true", help="only what came of each trace")
    parser.set_defaults(run=run)


@dataclass(slots=True)
class Summary:
    """What came of one trace."""

    trace: str
    observations: int = 0
    seconds: float = 0.0
    verdicts: dict[str, float] = field(default_factory=dict)
    first_action: dict[str, Any] | None = None
    _since: tuple[float, str] | None = None

    def count(self, at: float, verdict: Verdict) -> None:
        """Each verdict holds until the next observation."""
        if self._since is not None:
            since, state = self._since
            self.verdicts[state] = self.verdicts.get(state, 0.0) + at - since
        else:
            self.seconds = -at
        self._since = (at, verdict.state.value)
        self.observations += 1

    def end(self) -> Event:
        """The last line of a replay."""
        last = self._since[0] if self._since is not None else 0.0
        return {
            "v": VERSION,
            "event": "summary",
            "trace": self.trace,
            "observations": self.observations,
            "seconds": round(last + self.seconds, 3),
            "verdicts": {state: round(seconds, 3) for state, seconds in self.verdicts.items()},
            "first_action": self.first_action,
        }


def replay(name: str, lines: Iterator[str], policies: dict[str, Policy] | None) -> Iterator[Event]:
    """Every event of one trace, the summary last. Raises TraceError."""
    summary = Summary(name)
    engine: Engine | None = None
    for fact in read(lines):
        if not isinstance(fact, Observation):
            engine = _take_over(engine, fact, policies)
            continue
        assert engine is not None  # noqa: S101 - `read` has seen to it that a header comes first
        step = engine.step(fact)
        summary.count(fact.at, step.verdict)
        yield from step.events
        if step.order is not None:
            if summary.first_action is None:
                summary.first_action = {
                    "elapsed": round(fact.at, 3),
                    "action": step.order.action.value,
                    "reason": step.verdict.reason.value if step.verdict.reason else None,
                    "evidence": step.verdict.evidence.value if step.verdict.evidence else None,
                }
            yield from engine.done(step.order, would_have(step.order.action, step.order.target), fact.at)
    if engine is None:
        raise TraceError("is empty, where a trace is expected")
    yield summary.end()


def _take_over(engine: Engine | None, header: Header, policies: dict[str, Policy] | None) -> Engine:
    """A header: the watch begins, or more is known of the server, or it has another incarnation."""
    watch = header.watch
    if engine is None or engine.watch.server != watch.server:
        policy = header.policy if policies is None else _configured(watch.server, policies)
        engine = Engine(policy, watch, dry_run=True)
        engine.adopt(watch, header.learned)
    engine.adopt(watch)
    return engine


def _configured(server: str, policies: dict[str, Policy]) -> Policy:
    """The policy of that server, or of the only one that is configured, whatever it is called."""
    if server in policies or len(policies) == 1:
        return policies.get(server) or next(iter(policies.values()))
    raise ConfigError(f"--config: has no server '{server}', of which the trace is, but {', '.join(policies)}")


def run(options: argparse.Namespace) -> int:
    """Replay each trace; exit 0 whatever they show, 2 where one can't be read."""
    policies = None
    if options.config is not None:
        servers = load(options.config).servers
        policies = {name: server.policy() for name, server in servers.items()}
    summaries = []
    for name in options.traces:
        try:
            for event in replay(name, _lines(name), policies):
                if event["event"] == "summary":
                    summaries.append(event)
                if options.json and (event["event"] == "summary" or not options.summary):
                    common.emit(event)
                elif not options.json and not options.summary and event["event"] != "summary":
                    common.console().print(common.event_line(event))
        except TraceError as error:
            raise ConfigError(f"{name}: {error}") from None
    if not options.json:
        common.console().print(_table(summaries))
    return 0


def _lines(name: str) -> Iterator[str]:
    """The lines of a trace. Raises ConfigError where the file can't be read as text."""
    try:
        with _open(name) as file:
            yield from _bounded(name, file)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise ConfigError(f"{name}: damaged: no whole gzip file") from None
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{name}: not UTF-8 text, so no trace") from None


def _open(name: str) -> TextIO:
    if name == "-":
        return os.fdopen(0, encoding="utf-8", closefd=False)
    if name.endswith(".gz"):
        return gzip.open(name, "rt", encoding="utf-8")
    return Path(name).open(encoding="utf-8")


def _bounded(name: str, file: TextIO) -> Iterator[str]:
    """Lines, none much longer than `read` takes; without a last one that was cut off in the writing."""
    size, first = 0, True
    while line := file.readline(LONGEST_LINE + 1):
        size += len(line)
        if size > LARGEST:
            raise ConfigError(f"{name}: larger than {LARGEST >> 20} MB")
        if not line.endswith("\n") and not first and _is_cut(line):
            print(f"{name}: its last line is cut off, and left out", file=sys.stderr)  # noqa: T201 - a command's output
            return
        yield line
        first = False


def _is_cut(line: str) -> bool:
    """Whether it is the beginning of a line, as a killed `record` or a full disk leaves it."""
    try:
        json.loads(line)
    except ValueError:
        return len(line) <= LONGEST_LINE
    return False


def _table(summaries: list[Event]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("trace", overflow="fold")
    table.add_column("polls", justify="right", no_wrap=True)
    table.add_column("span", justify="right", no_wrap=True)
    table.add_column("first action", overflow="fold")
    table.add_column("verdicts", overflow="fold")
    for summary in summaries:
        first = summary["first_action"]
        acted = Text("never", style="green")
        if first is not None:
            acted = Text(f"{first['action']} at {first['elapsed']:.0f} s, {first['reason']}", style="red")
        verdicts = ", ".join(f"{state} {words(seconds)}" for state, seconds in summary["verdicts"].items())
        table.add_row(
            Path(summary["trace"]).name,
            str(summary["observations"]),
            words(summary["seconds"]),
            acted,
            verdicts,
        )
    return table
