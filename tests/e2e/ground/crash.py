"""The real `llama-watchdog run` with an accident of a test's: `crash.py SPEC`, run by the Python that has it.

SPEC is a JSON file; what a drop-in of the unit starts in place of the program:

    {"kept": FOLDER,        where the two files below are kept, across the watchdog's lives
     "at": POINT,           kill ourselves by SIGKILL there, once in all lives: FOLDER/crashed says so
     "deaf": true}          SIGKILL reaches nobody, as when the target is stuck in a driver

A point is a moment of an incident: "confirming kept", "healed told", "healed kept", or one
of an order's three, such as "sigterm 2 kept" (decided and remembered, not given), "sigterm 2 given" (carried
out, nobody told), "sigterm 2 told" (its outcome remembered). "restart 1 kept" is of the restart.

FOLDER/orders has a line of JSON for each order that is carried out, written before: what was really done,
also by a life that could not tell of it any more.

A script of its own that imports nothing of the tests. The program itself has no hooks: its two ends, what it
remembers and what it does, are wrapped from outside.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llama_watchdog import signals
from llama_watchdog.actions.hands import Hands
from llama_watchdog.cli import main
from llama_watchdog.core.action import Done, Identity, Result
from llama_watchdog.core.standing import Order
from llama_watchdog.store import Store
from llama_watchdog.supervisors.systemd import SystemdUnit


class Accident:
    """What happens at the points of one life."""

    def __init__(self, at: str, kept: Path) -> None:
        self._at = at
        self._kept = kept
        self._stage = "watching"
        self._orders = Counter[str]()
        self._untold = ""  # the order that was carried out, its outcome not yet remembered

    def reach(self, point: str) -> None:
        """Die, if this is the point."""
        marker = self._kept / "crashed"
        if point != self._at or marker.exists():
            return
        marker.write_text(point)
        os.kill(os.getpid(), signal.SIGKILL)

    def before_kept(self, standing: Mapping[str, Any]) -> None:
        """A standing is about to be remembered."""
        if standing["stage"] == "watching" and self._stage == "starting":
            self.reach("healed told")

    def after_kept(self, standing: Mapping[str, Any]) -> None:
        """A standing was remembered."""
        before, self._stage = self._stage, str(standing["stage"])
        told, self._untold = self._untold, ""
        if standing["ordered"]:
            self._orders[standing["ordered"]] += 1
            self.reach(f"{standing['ordered']} {self._orders[standing['ordered']]} kept")
        elif told:
            self.reach(f"{told} told")
        elif self._stage == "confirming":
            self.reach("confirming kept")
        elif self._stage == "watching" and before == "starting":
            self.reach("healed kept")

    def before_given(self, order: Order) -> None:
        """An order is about to be carried out."""
        target = order.target
        line = {
            "action": order.action.value,
            "incident": order.incident,
            "target": None if target is None else [target.pid, target.start_ticks],
            "left": [member.pid for member in order.left],
        }
        with (self._kept / "orders").open("a") as orders:
            orders.write(json.dumps(line) + "\n")

    def after_given(self, order: Order) -> None:
        """An order was carried out."""
        self._untold = f"{order.action.value} {self._orders[order.action.value]}"
        self.reach(f"{self._untold} given")


def wrap(accident: Accident) -> None:
    """Let it have its moments."""
    remember, do = Store.remember, Hands.do

    async def remembering(store: Store, key: str, standing: Mapping[str, Any]) -> bool:
        accident.before_kept(standing)
        kept = await remember(store, key, standing)
        accident.after_kept(standing)
        return kept

    async def doing(hands: Hands, order: Order) -> Result:
        accident.before_given(order)
        result = await do(hands, order)
        accident.after_given(order)
        return result

    Store.remember = remembering  # type: ignore[method-assign,assignment]  # the program has no hooks, on purpose
    Hands.do = doing  # type: ignore[method-assign,assignment]  # likewise


def deafen() -> None:
    """SIGKILL is said to be sent, and reaches nobody."""
    tree, unit = signals.signal_tree, SystemdUnit.signal
    swallowed = Result(Done.DONE, "sent SIGKILL, which nobody heard")

    async def signal_tree(identity: Identity, sig: signal.Signals) -> Result:
        return swallowed if sig is signal.SIGKILL else await tree(identity, sig)

    async def kill_each(_members: object) -> Result:
        return swallowed

    async def by_unit(self: SystemdUnit, sig: signal.Signals, identity: Identity | None = None) -> Result:
        return swallowed if sig is signal.SIGKILL else await unit(self, sig, identity)

    signals.signal_tree = signal_tree
    signals.kill_each = kill_each  # type: ignore[assignment]  # takes whatever it is given
    SystemdUnit.signal = by_unit  # type: ignore[method-assign]  # as above


if __name__ == "__main__":
    spec = json.loads(Path(sys.argv[1]).read_text())
    wrap(Accident(spec.get("at", ""), Path(spec["kept"])))
    if spec.get("deaf"):
        deafen()
    sys.exit(main(["run"]))
