"""The escalation alone, driven look by look."""

from __future__ import annotations

from llama_watchdog.core.action import Action, Done, Identity, Result
from llama_watchdog.core.escalation import look, outcome
from llama_watchdog.core.observation import Left, Outcome, Unit
from llama_watchdog.core.policy import Policy
from llama_watchdog.core.remembering import as_json, from_json, take_over
from llama_watchdog.core.standing import Move, Order, Report, Sight, Standing
from llama_watchdog.core.verdict import Reason, State, Verdict

OLD, NEW = Identity(100, 1), Identity(200, 2)
IDLE = Verdict(State.IDLE)
FROZEN = Verdict(State.WEDGED, Reason.FROZEN, fault=True)
HANGS = Verdict(State.WEDGED, Reason.SLOTS_HANG, fault=True)
GONE = Verdict(State.DOWN, Reason.GONE, fault=True)
LOADING = Verdict(State.LOADING)
ACTIVE = Unit(Outcome.OK, "loaded", "active", "running", "success")
STOPPED = Unit(Outcome.OK, "loaded", "inactive", "dead", "success")
FAILED = Unit(Outcome.OK, "loaded", "failed", "failed", "signal", exit_status=137)
DONE = Result(Done.DONE, "done")


class Bench:
    """Drives the escalation look by look, and notes all that it orders and reports."""

    def __init__(self, policy: Policy | None = None, *, dry_run: bool = False) -> None:
        self.policy = policy or Policy()
        self.dry_run = dry_run
        self.standing = Standing()
        self.at = 0.0
        self.orders: list[Order] = []
        self.reports: list[Report] = []
        self.results: dict[Action, Result] = {}

    def see(
        self,
        verdict: Verdict,
        target: Identity | None = OLD,
        unit: Unit | None = None,
        *,
        after: float = 5.0,
        times: int = 1,
        delivered: bool = False,
        proven: bool = False,
        left: Left | None = None,
    ) -> Bench:
        """So many looks, each `after` seconds after the last; orders are carried out at once."""
        for _ in range(times):
            self.at += after
            sight = Sight(self.at, verdict, target, unit, delivered, proven, left)
            move = look(self.standing, self.policy, sight, dry_run=self.dry_run)
            self._take(move)
            if move.order is not None:
                self.orders.append(move.order)
                result = self.results.get(move.order.action, DONE)
                self._take(outcome(self.standing, move.order.action, result, self.at))
        return self

    def resume(self, *, after: float = 0.0) -> Bench:
        """The watchdog is killed, and another takes over so much later."""
        standing, kept_at = from_json(as_json(self.standing, 0.0, self.at), 0.0)
        self.at += after
        self.standing = take_over(standing, self.at, kept_at)
        return self

    def _take(self, move: Move) -> None:
        self.standing = move.standing
        if move.report is not None:
            self.reports.append(move.report)

    @property
    def actions(self) -> list[str]:
        """What was ordered so far, in order."""
        return [order.action.value for order in self.orders]
