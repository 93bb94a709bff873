"""What to ask a server next: enough to see a wedge, gently enough never to be the cause of one.

endpoint | asked
---------+-----------------------------------------------------------------------------------------
/health  | at the start, once a minute, and whenever /slots did not answer
/slots   | every poll; not after a cancel, nor while a server that can sleep is idle
/props   | at the start, after each load, and every poll where the server can sleep or sleeps
/metrics | while idle with clients connected, and where /slots can't be had: each scrape resets the
         | throughput gauges that the user's own monitoring reads
canary   | where it is switched on: once the server has been idle for a minute, then once a minute
"""

from __future__ import annotations

from dataclasses import dataclass

from llama_watchdog.core.observation import Observation, Outcome, Watch
from llama_watchdog.core.verdict import Reason, State, Verdict

HEALTH_EVERY = 60.0
CANARY_AFTER = 60.0
IDLE_POLLS_BEFORE_SLEEP = 3  # GET /slots wakes a sleeping server and resets its idle timer
_OFF = frozenset({Outcome.UNSUPPORTED, Outcome.UNAUTHORIZED})
_WORTH_METRICS = frozenset({Outcome.UNSUPPORTED, Outcome.UNAUTHORIZED, Outcome.MALFORMED, Outcome.ERROR})


@dataclass(frozen=True, slots=True)
class Ask:
    """Which endpoints one poll asks."""

    health: bool = True
    slots: bool = True
    props: bool = False
    metrics: bool = False
    canary: bool = False


class Asking:
    """Remembers just enough of one server to decide what the next poll asks."""

    def __init__(self, watch: Watch, metrics: str = "auto", *, canary: bool = False) -> None:
        self.watch = watch
        self.metrics = metrics  # auto, on, off
        self.canary = canary
        self.quiet_until = 0.0
        self._health_at: float | None = None
        self._last: Observation | None = None
        self._verdict: Verdict | None = None
        self._idle_polls = 0
        self._clients = 0
        self._cpu: float | None = None
        self._props_known = False
        self._has_slept = False  # then it can sleep, although its command line could not be seen to say so
        self._metrics_off = False
        self._at_work = 0.0  # when it was last at work, as with our own canary

    @property
    def served(self) -> bool:
        """Whether /health has ever said ok."""
        return self._health_at is not None

    def see(self, observation: Observation, verdict: Verdict) -> None:
        """Take in what the last poll saw."""
        if observation.health is not None and observation.health.outcome is Outcome.OK:
            self._health_at = observation.at
        if observation.props is not None and observation.props.outcome is not Outcome.SKIPPED:
            self._props_known = observation.props.outcome is not Outcome.LOADING
        self._has_slept = self._has_slept or verdict.state is State.SLEEPING
        if verdict.state in (State.LOADING, State.DOWN):
            self._props_known = self._metrics_off = False
        self._follow_idleness(observation, verdict)
        if observation.metrics is not None and observation.metrics.outcome in _OFF:
            self._metrics_off = True
        if verdict.state is not State.IDLE or (
            observation.canary and observation.canary.outcome is Outcome.OK
        ):
            self._at_work = observation.at
        self._last = observation
        self._verdict = verdict

    def _follow_idleness(self, o: Observation, verdict: Verdict) -> None:
        """A server that can sleep is left to sleep, until its CPU works or another client comes.

        One that stays proves nothing: monitoring keeps its connection, and must not keep the server awake.
        """
        cpu = o.process.cpu if o.process is not None else None
        at_rest = verdict.state in (State.IDLE, State.SLEEPING)
        worked = cpu is not None and self._cpu is not None and cpu - self._cpu > 0.05 * self.watch.interval
        comes = (o.clients or 0) > self._clients
        self._clients = o.clients or 0
        if at_rest and not worked and not comes:
            self._idle_polls += 1
        else:
            self._idle_polls = 0
        self._cpu = cpu

    def next(self, at: float) -> Ask:
        """What the poll at `at` asks."""
        last, verdict = self._last, self._verdict
        if last is None or verdict is None:
            return Ask(health=True, slots=not self.watch.can_sleep, props=True, metrics=self.metrics == "on")
        asleep = verdict.state is State.SLEEPING
        may_sleep = self.watch.can_sleep or self._has_slept
        slots = at >= self.quiet_until and not asleep
        if may_sleep and self._idle_polls >= IDLE_POLLS_BEFORE_SLEEP:
            slots = False
        late = last.slots is None or last.slots.outcome is not Outcome.OK
        health = late or self._health_at is None or at - self._health_at >= HEALTH_EVERY
        return Ask(
            health=health,
            slots=slots,
            props=may_sleep or not self._props_known,
            metrics=self._wants_metrics(last, verdict),
            canary=self.canary and not may_sleep and at - self._at_work >= CANARY_AFTER,
        )

    def _wants_metrics(self, last: Observation, verdict: Verdict) -> bool:
        if self.metrics != "auto":
            return self.metrics == "on"
        if self._metrics_off or verdict.state is State.SLEEPING:
            return False
        if last.slots is not None and last.slots.outcome in _WORTH_METRICS:
            return True
        idle = verdict.state is State.IDLE or verdict.reason is Reason.DEFERRED
        return idle and bool(last.clients)
