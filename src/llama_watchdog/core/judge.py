"""One server's observations in, verdicts out.

In this order, the first that applies:

    seen                                          | verdict
    ----------------------------------------------+------------------------------------------------------
    stopped, traced or frozen process             | paused; clocks anew
    process ended                                 | down (gone), at once
    connection refused, had answered before       | suspect, after `down`: down (refused)
    connection refused, had not answered yet      | loading, by its progress; or down
    503 while loading                             | loading, by its progress; without any: wedged (load)
    /props says sleeping                          | sleeping
    it has slept, and hangs                       | loading, by its progress
    anything else                                 | what the main loop's slots say: `mainloop`
"""

from __future__ import annotations

from llama_watchdog.core.evidence import Evidence, stopped_by_hand
from llama_watchdog.core.loading import LoadProgress
from llama_watchdog.core.mainloop import MainLoop
from llama_watchdog.core.observation import HANGS, Observation, Outcome, Process, Watch
from llama_watchdog.core.pace import Learned
from llama_watchdog.core.policy import StallPolicy
from llama_watchdog.core.verdict import Reason, State, Verdict

# A step this many times the interval (and this many seconds) long is a gap: the watchdog did not run, so
# it does not know what the server did meanwhile.
GAP_POLLS = 3.0
GAP_SECONDS = 10.0
SUSPENDED = 0.5  # seconds asleep that count as a suspend; the two clocks' own jitter is microseconds


class Judge:
    """Judges one server. Feed it every observation, in order of time."""

    def __init__(self, policy: StallPolicy, watch: Watch) -> None:
        self.policy = policy
        self.watch = watch
        self.load = LoadProgress()
        self.loop = MainLoop(policy, watch, self.load)
        self.answered = False  # this incarnation has answered
        self._waking = False  # it has slept, and has not answered /slots since
        self._identity: tuple[int | None, int | None] | None = None
        self._at: float | None = None
        self._streak = 0
        self._since: dict[Reason, float] = {}

    @property
    def delivered(self) -> bool:
        """Whether this incarnation has delivered tokens."""
        return self.loop.progress.delivered

    @property
    def proven(self) -> bool:
        """Whether its main loop has been seen to work since the clocks began."""
        return self.loop.progress.proven

    @property
    def learned(self) -> Learned:
        """The pace that is known by now."""
        return self.loop.pace.learned

    def adopt(self, watch: Watch, learned: Learned | None = None) -> None:
        """Take over what was newly found out about the server: its command line, its build, its old pace."""
        self.watch = self.loop.watch = self.loop.evidence.watch = watch
        self.loop.pace.batch_size = watch.batch_size
        if learned is not None:
            self.loop.pace.learned = learned

    def reconfigure(self, policy: StallPolicy) -> None:
        """Other budgets from now on."""
        self.policy = self.loop.policy = policy
        self.loop.progress.aside_after = policy.unknown

    def break_pace(self) -> None:
        """Something is being done to the server: what it does now is not its own pace."""
        self.loop.pace.restart()

    def observe(self, observation: Observation) -> Verdict:
        """The verdict on all that was seen so far."""
        at = observation.at
        step = 0.0 if self._at is None else at - self._at
        if self._at is None:
            self._clocks_anew(at)
        self._at = at
        self._meet(observation.process, at)
        gap = max(GAP_POLLS * self.watch.interval, GAP_SECONDS)
        if observation.suspended > SUSPENDED or step - observation.suspended > gap:
            self._clocks_anew(at)
        paused = stopped_by_hand(observation.process)
        if paused is not None:
            self._clocks_anew(at)
            verdict = Verdict(State.PAUSED, evidence=Evidence.PAUSED, note=paused)
        else:
            verdict = self._judge(observation, step)
        self.loop.note(verdict)
        return verdict

    def _judge(self, o: Observation, step: float) -> Verdict:
        if _answers(o):
            self._rejoice(o)
        else:
            early = self._gone(o) or self._refused(o) or self._loading(o)
            if early is not None:
                return early
        if o.props is not None and o.props.sleeping:
            # A client proves nothing here: who polls /health over one connection looks like one that waits.
            self._waking = True  # as soon as it hangs
            self._clocks_anew(o.at, forget=True)
            return Verdict(State.SLEEPING)
        if self._waking and (waking := self._wakes(o)) is not None:
            return waking
        self._streak = 0
        return self.loop.judge(o, step)

    def _wakes(self, o: Observation) -> Verdict | None:
        """It loads again before it works again; /props and /slots hang meanwhile, and /health says ok."""
        if o.slots is not None and o.slots.outcome is Outcome.OK:
            self._waking = False
            return None
        hangs = any(part is not None and part.outcome in HANGS for part in (o.slots, o.props))
        return self._by_load(o, note="it wakes") if hangs else None

    def _rejoice(self, o: Observation) -> None:
        """It answers as a loaded server does."""
        if Reason.REFUSED in self._since and self._identity is None:
            self._forget(o.at)  # no process to tell it by, but what was refused has begun anew
        self._since.clear()
        self.answered = True

    # Incarnations and clocks

    def _meet(self, process: Process | None, at: float) -> None:
        if process is None or process.outcome is not Outcome.OK:
            return
        identity = (process.pid, process.start_ticks)
        if self._identity is not None and identity != self._identity:
            self._forget(at)
        self._identity = identity

    def _forget(self, at: float) -> None:
        """Another incarnation: the old one's sins are not its own."""
        self._clocks_anew(at, forget=True)
        self.answered = self._waking = False

    def _clocks_anew(self, at: float, *, forget: bool = False) -> None:
        self.loop.restart(at, forget=forget)
        self.load.restart(at)
        self._since.clear()
        self._streak = 0

    def _lasting(self, reason: Reason, at: float) -> float:
        """Seconds that `reason` has lasted, without a break."""
        return at - self._since.setdefault(reason, at)

    # What stands before any look at the slots

    def _gone(self, o: Observation) -> Verdict | None:
        if o.process is None or o.process.outcome is not Outcome.GONE:
            self._since.pop(Reason.GONE, None)
            return None
        lasting = self._lasting(Reason.GONE, o.at)
        return Verdict(State.DOWN, Reason.GONE, stalled_for=lasting, budget=0.0, due=0.0, fault=True)

    def _refused(self, o: Observation) -> Verdict | None:
        if not _says(o, Outcome.REFUSED):
            self._since.pop(Reason.REFUSED, None)
            return None
        lasting = self._lasting(Reason.REFUSED, o.at)
        readable = o.process is not None and o.process.outcome is Outcome.OK
        if self.answered:
            return self._down(lasting, self.policy.down)
        if readable or (o.unit is not None and o.unit.active in ("active", "activating", "reloading")):
            return self._by_load(o, note="it does not listen yet")
        if o.unit is not None and o.unit.active == "failed":
            return self._down(lasting, self.policy.down, note=f"its unit has failed ({o.unit.result})")
        return self._down(lasting, self.policy.loading, note="it has not answered since the watch began")

    def _down(self, lasting: float, budget: float, note: str = "") -> Verdict:
        self._streak += 1
        over = lasting >= budget and self._streak >= self.policy.confirmations
        state = State.DOWN if over or not self.answered else State.SUSPECT
        due = max(0.0, budget - lasting)
        return Verdict(state, Reason.REFUSED, None, lasting, budget, due, fault=over, note=note)

    def _loading(self, o: Observation) -> Verdict | None:
        if not _says(o, Outcome.LOADING):
            return None
        self.answered = True
        self.loop.restart(o.at, forget=True)
        return self._by_load(o)

    def _by_load(self, o: Observation, note: str = "") -> Verdict:
        self._streak += 1
        self.load.see(o, o.at)
        lasting = o.at - self.load.moved_at
        # Without the right to see its reads and writes a load from a slow disk shows no progress.
        readable = o.process is not None and o.process.read_bytes is not None
        budget = self.policy.loading if readable else self.policy.computing
        due = max(0.0, budget - lasting)
        if lasting >= budget and self._streak >= self.policy.confirmations:
            return Verdict(State.WEDGED, Reason.LOAD, None, lasting, budget, due, fault=True, note=note)
        return Verdict(State.LOADING, None, None, lasting, budget, due, note=note)


def _says(o: Observation, outcome: Outcome) -> bool:
    """Whether /health or /slots says it."""
    said = o.health is not None and o.health.outcome is outcome
    return said or (o.slots is not None and o.slots.outcome is outcome)


def _answers(o: Observation) -> bool:
    """Whether anything was answered as by a loaded server."""
    said = o.slots is not None and o.slots.outcome is Outcome.OK
    return said or (o.health is not None and o.health.outcome is Outcome.OK)
