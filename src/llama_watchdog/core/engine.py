"""One server's watch, pure: observations in; events, orders and the time of the next look out.

The daemon and `replay` run the same engine, so that what is replayed is what would have happened.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from llama_watchdog.core.action import Action, Done, Identity, Result
from llama_watchdog.core.asking import Ask, Asking
from llama_watchdog.core.escalation import aside, look, outcome
from llama_watchdog.core.events import Event, action_event, verdict_event
from llama_watchdog.core.judge import Judge
from llama_watchdog.core.observation import Observation, Outcome, Watch
from llama_watchdog.core.pace import Learned
from llama_watchdog.core.policy import Policy
from llama_watchdog.core.restarting import release, waits_for
from llama_watchdog.core.standing import Move, Order, Sight, Stage, Standing
from llama_watchdog.core.verdict import State, Verdict

# /slots is left alone this long after a cancel: a request without streaming is freed only after a full
# second in which the server produced no result for anyone, and an answer to us is a result.
QUIET_AFTER_CANCEL = 3.0
SOONEST = 0.25
WAITING = 1.0  # between looks while a start waits for the world, and for no time that is known


@dataclass(frozen=True, slots=True)
class Step:
    """What one observation led to."""

    verdict: Verdict
    events: tuple[Event, ...]
    order: Order | None
    next_look: float  # `at` of the next poll


class Engine:
    """Judges one server, climbs its ladder, says what to ask next."""

    def __init__(self, policy: Policy, watch: Watch, *, dry_run: bool = False) -> None:
        self.policy = policy
        self.watch = watch
        self.dry_run = dry_run
        self.judge = Judge(policy.stall, watch)
        self.asking = Asking(watch)
        self.standing = Standing()
        self.verdict: Verdict | None = None
        self.hands_off = ""  # why nothing is to be done, whatever is seen
        self._told: tuple[object, ...] | None = None
        self._known: Identity | None = None  # the last incarnation that was seen alive

    def adopt(self, watch: Watch, learned: Learned | None = None) -> None:
        """The server's own facts are known (better) now: its command line, its build, its pace of old."""
        self.watch = watch
        self.judge.adopt(watch, learned)
        self.asking.watch = watch

    def reconfigure(self, policy: Policy, *, dry_run: bool) -> None:
        """A new configuration; nothing that is known of the server is lost."""
        self.policy = policy
        if dry_run != self.dry_run:  # what was rehearsed was not done, and has to be begun in earnest
            self.standing = replace(self.standing.calm(), stopped=self.standing.stopped)
        self.dry_run = dry_run
        self.judge.reconfigure(policy.stall)

    def take_over(self, standing: Standing) -> None:
        """Go on where a watchdog before this one has ended (`remembering`)."""
        self.standing = standing
        self._known = standing.target

    def release(self, at: float) -> tuple[Event, ...]:
        """Forgive its restarts, and lift a hold."""
        return self._take(release(self.standing, at), at)

    @property
    def calm(self) -> bool:
        """Whether nothing is wrong, so that nobody need be asked what the admin wants."""
        fine = self.verdict is not None and self.verdict.state in (State.IDLE, State.BUSY, State.SLEEPING)
        return fine and self.standing.stage is Stage.WATCHING

    def ask(self, at: float) -> Ask:
        """What the poll at `at` should ask."""
        return self.asking.next(at)

    def step(self, observation: Observation) -> Step:
        """Take in one observation."""
        at = observation.at
        verdict = self.judge.observe(observation)
        if self.standing.stage is not Stage.WATCHING:
            self.judge.break_pace()
        self.asking.see(observation, verdict)
        sight = Sight(
            at,
            verdict,
            _target(observation),
            observation.unit,
            self.judge.delivered,
            self.judge.proven,
            observation.left,
        )
        self._known = sight.target or self._known
        if self.hands_off:
            move = aside(self.standing, self.hands_off)
        else:
            move = look(self.standing, self.policy, sight, dry_run=self.dry_run)
        order = move.order
        if order is not None and order.target is None:
            order = replace(order, target=self._known)
        told_of_move = self._take(move, at)
        shown = self._overlay(verdict, observation)
        events = []
        told = (shown.state, shown.reason)
        if told != self._told:
            self._told = told
            events.append(verdict_event(self.watch.server, at, shown))
        events += told_of_move
        self.verdict = shown
        return Step(shown, tuple(events), order, self._next_look(at, verdict))

    def done(self, order: Order, result: Result, at: float) -> tuple[Event, ...]:
        """Take in how an order went."""
        if order.action is Action.CANCEL and result.outcome is Done.DONE:
            self.asking.quiet_until = at + QUIET_AFTER_CANCEL
        return self._take(outcome(self.standing, order.action, result, at), at)

    def _take(self, move: Move, at: float) -> tuple[Event, ...]:
        """The new standing, and what is to be told of it."""
        self.standing = move.standing
        if move.report is None:
            return ()
        return (action_event(self.watch.server, at, move.report, dry_run=self.dry_run),)

    def next_look(self, at: float) -> float:
        """When to look again, after an order was carried out at `at`."""
        return self._next_look(at, self.verdict or Verdict(State.IDLE))

    def _overlay(self, verdict: Verdict, observation: Observation) -> Verdict:
        """What the escalation has to say before the judge."""
        if self.standing.stage is Stage.HELD:
            return replace(verdict, state=State.HELD, fault=False)
        if self.standing.stage is Stage.UNKILLABLE:
            note = waits_for(observation.left) or "it is alive after SIGKILL; nothing is started beside it"
            return replace(verdict, state=State.UNKILLABLE, fault=False, note=note)
        if self.standing.stage is Stage.RESTARTING and (what := waits_for(observation.left)):
            return replace(verdict, note=what)
        return verdict

    def _next_look(self, at: float, verdict: Verdict) -> float:
        """At the interval, or sooner where a deadline falls before."""
        soonest = at + SOONEST
        times = [at + self.watch.interval]
        if self.standing.until is not None and self.standing.until >= at:
            times.append(self.standing.until)
        if self.standing.stage is Stage.RESTARTING and (self.standing.until or at) <= at:
            times.append(at + WAITING)
        if verdict.due and not verdict.fault:
            times.append(at + verdict.due)
        return max(soonest, min(times))


def _target(observation: Observation) -> Identity | None:
    """The incarnation that was looked at, one that has ended included."""
    process = observation.process
    if process is None or process.outcome not in (Outcome.OK, Outcome.GONE):
        return None
    if process.pid is None or process.start_ticks is None:
        return None
    return Identity(process.pid, process.start_ticks)
