"""`llama-watchdog check`: one look at each server, and what can be said of it.

Exit 0: it serves. 1: it does not. 3: that can't be told, as while it may be wedged but is not proven to be.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from rich.text import Text

from llama_watchdog.cli import common
from llama_watchdog.core.events import verdict_event
from llama_watchdog.core.observation import HANGS, Observation, Outcome, Process
from llama_watchdog.core.verdict import State
from llama_watchdog.parts import hands_of, observer_of
from llama_watchdog.settings import ServerSettings, Settings
from llama_watchdog.watching import ServerWatch

FINE = frozenset({State.IDLE, State.BUSY, State.SLEEPING})
UNKNOWN = frozenset({State.BLIND, State.SUSPECT})


def add(commands: Any) -> None:
    """Its flags."""
    parser = commands.add_parser("check", help="one look at a server", description=__doc__)
    common.add_target(parser, unit=True)
    parser.add_argument(
        "--watch", type=common.duration, default=0.0, metavar="10s", help="look for that long"
    )
    parser.add_argument("--json", action="store_true", help="one JSON line a server")
    parser.set_defaults(run=run)


class Look:
    """Watches one server for a while and remembers the last of what it saw."""

    def __init__(self, server: ServerSettings) -> None:
        # A single look waits for the answers: it has no later poll to report them.
        observer = observer_of(server, patience=server.probe.slots_timeout)
        hands = hands_of(server, dry_run=True)
        self.watch = ServerWatch(
            server, observer=observer, hands=hands, tell=lambda _event: None, keep=self._keep
        )
        self.seen: Observation | None = None

    def _keep(self, _watch: object, observation: Observation) -> None:
        self.seen = observation

    async def run(self, span: float) -> None:
        """Look once, and on until `span` seconds are over."""
        try:
            due = await self.watch.round()
            while due < span:
                await asyncio.sleep(max(0.0, due - self.watch.clock.now()))
                due = await self.watch.round()
        finally:
            await self.watch.aclose()

    @property
    def state(self) -> State:
        """The verdict; a hang that one look can't prove to be a wedge is a suspicion."""
        verdict, seen = self.watch.verdict, self.seen
        if verdict is None or seen is None:
            return State.BLIND
        hangs = seen.slots is not None and seen.slots.outcome in HANGS
        return State.SUSPECT if hangs and verdict.state in FINE else verdict.state

    @property
    def text(self) -> str:
        """One line for people."""
        verdict = self.watch.verdict
        if verdict is not None and self.state is not verdict.state:
            return "/slots did not answer in time: busy with a long step, or wedged; try --watch 1m"
        return verdict.text if verdict is not None else "not seen"


def run(options: argparse.Namespace) -> int:
    """Look at every server side by side."""
    settings = common.settings_to_look(options)
    looks = asyncio.run(_look(settings, options.watch))
    for look in looks:
        if options.json:
            common.emit(_as_json(look))
        else:
            common.console().print(_lines(look))
    return _exit_code([look.state for look in looks])


async def _look(settings: Settings, span: float) -> list[Look]:
    looks = [Look(server) for server in settings.servers.values()]
    await asyncio.gather(*(look.run(span) for look in looks))
    return looks


def _exit_code(states: list[State]) -> int:
    if any(state not in FINE | UNKNOWN for state in states):
        return 1
    return 3 if any(state in UNKNOWN for state in states) else 0


def _as_json(look: Look) -> dict[str, Any]:
    verdict, seen = look.watch.verdict, look.seen
    assert verdict is not None  # noqa: S101 - there was at least one round
    assert seen is not None  # noqa: S101 - likewise
    event = verdict_event(look.watch.server.name, seen.at, verdict)
    event.update(event="check", verdict=look.state.value, text=look.text, url=look.watch.server.url)
    event["probes"] = dict(_probes(seen, look))
    return event


def _probes(seen: Observation, look: Look) -> list[tuple[str, str]]:
    rows = []
    for name in ("health", "slots", "props", "metrics"):
        part = getattr(seen, name)
        if part is not None and part.outcome is not Outcome.SKIPPED:
            seconds = getattr(part, "seconds", None)
            took = f" in {seconds * 1000:.0f} ms" if seconds else ""
            rows.append((name, f"{part.outcome}{took}"))
    if seen.slots is not None and seen.slots.outcome is Outcome.OK:
        busy = sum(slot.processing for slot in seen.slots.slots)
        rows.append(("at work", f"{busy} of {len(seen.slots.slots)} slots"))
    rows.append(("process", _process(seen.process, look.watch.observer.why)))
    if seen.gpu is not None:
        load = seen.gpu.own if seen.gpu.own is not None else seen.gpu.busy
        rows.append(("gpu", seen.gpu.outcome.value if load is None else f"{load:.0%} busy"))
    if seen.unit is not None:
        rows.append(("unit", " ".join((seen.unit.active, seen.unit.sub)).strip() or seen.unit.outcome.value))
    return rows


def _process(process: Process | None, why: str) -> str:
    if process is None or process.outcome is not Outcome.OK:
        return why or (process.outcome.value if process is not None else "not asked")
    return f"pid {process.pid}, state {process.state}, {len(process.threads or ())} threads"


def _lines(look: Look) -> Text:
    """The verdict, and below it each probe. No table: one would wrap the verdict at 80 columns in a pipe."""
    rows = _probes(look.seen, look) if look.seen is not None else []
    name = look.watch.server.name
    width = max(len(word) for word in (name, *(word for word, _ in rows)))
    lines = Text(f"{name:<{width}}  ", style="bold")
    lines.append(look.state.value, style=common.COLOURS.get(look.state.value, ""))
    lines.append(f"  {look.text}", style="not bold")
    for word, value in rows:
        lines.append(f"\n{word:<{width}}  ", style="not bold dim")
        lines.append(value, style="not bold")
    return lines
