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
    /slots answers: a slot moved, or all idle     | busy, idle; idle with requests deferred: wedged (deferred)
    /slots answers: slots at work, none moved     | busy → suspect → wedged (frozen), as the evidence allows
    /slots hangs                                  | the same, wedged (slots-hang; deaf if /health hangs too)
    nothing seen of the slots                     | the last verdict for a while, then blind
"""

from __future__ import annotations

from llama_watchdog.core.evidence import Evidence, EvidenceLog, stopped_by_hand
from llama_watchdog.core.loading import LoadProgress
from llama_watchdog.core.observation import HANGS, Metrics, Observation, Outcome, Process, Slot, Slots, Watch
from llama_watchdog.core.policy import StallPolicy
from llama_watchdog.core.progress import Progress
from llama_watchdog.core.verdict import Reason, State, Verdict

# A step this many times the interval (and this many seconds) long is a gap: the watchdog did not run, so
# it does not know what the server did meanwhile.
GAP_POLLS = 3.0
GAP_SECONDS = 10.0
SUSPENDED = 0.5  # seconds asleep that count as a suspend; the two clocks' own jitter is microseconds
QUICK = 1.0  # an answer this fast did not wait for a step that outlasts two polls
JITTER = 0.05  # of an interval: polls come a little early, too
SUSPICION = {Evidence.COMPUTING: 0.8, Evidence.PAGING: 0.8}  # of the budget; a third for the others

_WHY_BLIND = {
    Outcome.UNSUPPORTED: "/slots is switched off; start llama-server without --no-slots",
    Outcome.UNAUTHORIZED: "/slots wants an API key; set api_key_file",
    Outcome.MALFORMED: "/slots answers with something else",
    Outcome.UNREACHABLE: "it can't be reached",
    Outcome.ERROR: "/slots fails",
}


class Judge:
    """Judges one server. Feed it every observation, in order of time."""

    def __init__(self, policy: StallPolicy, watch: Watch) -> None:
        self.policy = policy
        self.watch = watch
        self.progress = Progress(aside_after=policy.unknown)
        self.evidence = EvidenceLog(watch)
        self.load = LoadProgress()
        self.answered = False  # this incarnation has answered
        self.answers_mid_step = False  # its /slots answers in the middle of long steps
        self._identity: tuple[int | None, int | None] | None = None
        self._at: float | None = None
        self._verdict = Verdict(State.IDLE)
        self._streak = 0
        self._unmoved_answers = 0
        self._unseen = 0.0
        self._ever_seen = False
        self._since: dict[Reason, float] = {}

    @property
    def delivered(self) -> bool:
        """Whether this incarnation has delivered tokens."""
        return self.progress.delivered

    def adopt(self, watch: Watch) -> None:
        """Take over what was newly found out about the server (its command line, its build)."""
        self.watch = self.evidence.watch = watch

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
            self._verdict = Verdict(State.PAUSED, note=paused, evidence=Evidence.PAUSED)
            return self._verdict
        self.evidence.see(observation, step)
        self.load.see(observation, at)
        self._verdict = (
            self._gone(observation)
            or self._refused(observation)
            or self._loading(observation)
            or self._sleeping(observation)
            or self._loop(observation, step)
        )
        return self._verdict

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
        self._clocks_anew(at)
        self.progress.restart(at, forget=True)
        self.answered = False
        self.answers_mid_step = False

    def _clocks_anew(self, at: float) -> None:
        self.progress.restart(at, forget=False)
        self.evidence.restart()
        self.load.restart(at)
        self._since.clear()
        self._streak = 0
        self._unmoved_answers = 0

    def _lasting(self, reason: Reason, at: float) -> float:
        """Seconds that `reason` has lasted, without a break."""
        return at - self._since.setdefault(reason, at)

    # What stands before any look at the slots

    def _gone(self, o: Observation) -> Verdict | None:
        if o.process is None or o.process.outcome is not Outcome.GONE or _answers(o):
            self._since.pop(Reason.GONE, None)
            return None
        lasting = self._lasting(Reason.GONE, o.at)
        return Verdict(State.DOWN, Reason.GONE, stalled_for=lasting, budget=0.0, due=0.0, fault=True)

    def _refused(self, o: Observation) -> Verdict | None:
        if not _is(o, Outcome.REFUSED) or _answers(o):
            if self._since.pop(Reason.REFUSED, None) is not None and self._identity is None:
                self._forget(o.at)  # no process to tell it by, but what was refused has begun anew
            return None
        lasting = self._lasting(Reason.REFUSED, o.at)
        readable = o.process is not None and o.process.outcome is Outcome.OK
        if self.answered:
            return self._down(lasting, self.policy.down)
        if readable or (o.unit is not None and o.unit.active in ("active", "activating", "reloading")):
            return self._by_load(o.at, note="it does not listen yet")
        if o.unit is not None and o.unit.active == "failed":
            return self._down(lasting, self.policy.down, note=f"its unit has failed ({o.unit.result})")
        return self._down(lasting, self.policy.loading, note="it has not answered since the watch began")

    def _down(self, lasting: float, budget: float, note: str = "") -> Verdict:
        self._streak += 1
        over = lasting >= budget and self._streak >= self.policy.confirmations
        state = State.DOWN if over or not self.answered else State.SUSPECT
        return Verdict(
            state,
            Reason.REFUSED,
            stalled_for=lasting,
            budget=budget,
            due=max(0.0, budget - lasting),
            fault=over,
            note=note,
        )

    def _loading(self, o: Observation) -> Verdict | None:
        if not _is(o, Outcome.LOADING):
            return None
        self.answered = True
        self.progress.restart(o.at, forget=True)
        return self._by_load(o.at)

    def _by_load(self, at: float, note: str = "") -> Verdict:
        self._streak += 1
        lasting = at - self.load.moved_at
        budget = self.policy.loading if self._identity is not None else self.policy.computing
        due = max(0.0, budget - lasting)
        if lasting >= budget and self._streak >= self.policy.confirmations:
            return Verdict(State.WEDGED, Reason.LOAD, None, lasting, budget, due, fault=True, note=note)
        return Verdict(State.LOADING, None, None, lasting, budget, due, note=note)

    def _sleeping(self, o: Observation) -> Verdict | None:
        if o.props is None or not o.props.sleeping:
            return None
        self.answered = True
        self.progress.restart(o.at, forget=True)  # it loads again before it works again
        self._calm()
        return Verdict(State.SLEEPING)

    def _calm(self) -> None:
        self._streak = 0
        self._unseen = 0.0
        self._since.clear()

    # The main loop, by its slots

    def _loop(self, o: Observation, step: float) -> Verdict:
        if _answers(o):
            self.answered = True
        slots = _slots_or_stand_in(o)
        if slots.outcome is Outcome.OK:
            self._ever_seen = True
            self._unseen = 0.0
            return self._answered(o, slots)
        if slots.outcome in HANGS:
            self._ever_seen = True
            self._unseen = 0.0
            hangs = o.health is not None and o.health.outcome in HANGS
            ids = tuple(t.slot.id for t in self.progress.tracks.values() if t.slot.processing)
            return self._standstill(o, Reason.DEAF if hangs else Reason.SLOTS_HANG, ids)
        return self._not_seen(o, slots, step)

    def _answered(self, o: Observation, slots: Slots) -> Verdict:
        moved = self.progress.see(slots.slots, o.at)
        standing, aside = self.progress.standing()
        if not standing and not aside:
            return self._idle(o)
        self._since.pop(Reason.DEFERRED, None)
        if moved:
            self._streak = self._unmoved_answers = 0
            if aside:
                return self._beside(o, [t.slot for t in aside], aside[0].moved_at)
            return Verdict(State.BUSY, slots=tuple(t.slot.id for t in standing))
        self._learn_regime(slots, [t.slot for t in standing])
        if standing:
            return self._standstill(o, Reason.FROZEN, tuple(t.slot.id for t in standing))
        return self._left_over(o, tuple(t.slot.id for t in aside), min(t.moved_at for t in aside))

    def _learn_regime(self, slots: Slots, standing: list[Slot]) -> None:
        """Three quick answers around two steps without movement, while it computes: it answers in mid-step.

        Without prompt counters a prefill moves nothing from step to step, so only decoding slots tell.
        """
        tells = any(slot.prompt_processed is not None or (slot.decoded or 0) > 0 for slot in standing)
        if slots.seconds < QUICK and tells and self.evidence.working:
            self._unmoved_answers += 1
            if self._unmoved_answers >= 2:
                self.answers_mid_step = True
        else:
            self._unmoved_answers = 0

    def _idle(self, o: Observation) -> Verdict:
        if o.metrics is None or o.metrics.outcome is not Outcome.OK or not o.metrics.deferred:
            self._calm()
            return Verdict(State.IDLE)
        self._streak += 1
        evidence, _ = self.evidence.judge(o, delivered=self.delivered)
        unreadable = o.process is None or o.process.outcome is not Outcome.OK
        still = unreadable or evidence in (Evidence.BLOCKED, Evidence.UNKNOWN)
        budget = self.policy.deferred if still else self.policy.computing
        lasting = self._lasting(Reason.DEFERRED, o.at)
        return self._against(
            budget, lasting, Reason.DEFERRED, evidence, (), at_ease=State.IDLE, stalled=lasting
        )

    def _standstill(self, o: Observation, reason: Reason, ids: tuple[int, ...]) -> Verdict:
        self._streak += 1
        evidence, budget, began = self._budget(o, reason)
        first_work = evidence is Evidence.COMPUTING and self.evidence.one_thread and not self.delivered
        return self._against(
            budget,
            o.at - began,
            reason,
            evidence,
            ids,
            at_ease=State.LOADING if first_work else State.BUSY,
            stalled=o.at - self.progress.moved_at,
        )

    def _budget(self, o: Observation, reason: Reason) -> tuple[Evidence, float, float]:
        """The evidence, its budget, and since when the budget runs."""
        evidence, held = self.evidence.judge(o, delivered=self.delivered)
        turned = self.progress.turned_at
        policy = self.policy
        if evidence is Evidence.BLOCKED:
            return evidence, policy.blocked, max(turned, held)
        if evidence is Evidence.SPINNING:
            return evidence, policy.spinning, max(turned, held)
        if evidence is Evidence.UNKNOWN:
            return evidence, policy.unknown, max(turned, held)
        if evidence is Evidence.PAGING:
            return evidence, policy.loading, max(self.progress.moved_at, self.load.moved_at)
        if reason is not Reason.FROZEN and self.answers_mid_step:
            return Evidence.UNKNOWN, policy.unknown, turned
        return evidence, policy.computing, self.progress.moved_at

    def _against(
        self,
        budget: float,
        lasting: float,
        reason: Reason,
        evidence: Evidence,
        ids: tuple[int, ...],
        *,
        at_ease: State,
        stalled: float,
    ) -> Verdict:
        due = max(0.0, budget - lasting)
        slack = JITTER * self.watch.interval
        if lasting >= budget - slack and self._streak >= self.policy.confirmations:
            return Verdict(State.WEDGED, reason, evidence, stalled, budget, 0.0, ids, fault=True)
        if self._streak >= 2 and lasting >= budget * SUSPICION.get(evidence, 1 / 3):
            return Verdict(State.SUSPECT, reason, evidence, stalled, budget, due, ids)
        return Verdict(at_ease, None, evidence, stalled, budget, due, ids)

    def _beside(self, o: Observation, slots: list[Slot], since: float) -> Verdict:
        """Some slots stand while others move: said, and left alone."""
        ids = tuple(slot.id for slot in slots)
        note = "while others move"
        return Verdict(State.SUSPECT, Reason.FROZEN, None, o.at - since, None, None, ids, note=note)

    def _left_over(self, o: Observation, ids: tuple[int, ...], since: float) -> Verdict:
        """Only slots that stood while others moved are left: patience, then as any standstill."""
        self._streak += 1
        evidence, budget, _ = self._budget(o, Reason.FROZEN)
        lasting = o.at - since
        budget = max(self.policy.slot_patience, budget)
        verdict = self._against(
            budget, lasting, Reason.FROZEN, evidence, ids, at_ease=State.SUSPECT, stalled=lasting
        )
        if verdict.state is State.SUSPECT and verdict.reason is None:
            return Verdict(State.SUSPECT, Reason.FROZEN, evidence, lasting, budget, verdict.due, ids)
        return verdict

    def _not_seen(self, o: Observation, slots: Slots, step: float) -> Verdict:
        """Neither progress nor a standstill; when it lasts: blind."""
        self.progress.shift(step)
        if slots.outcome is Outcome.SKIPPED:
            if not self._ever_seen and not _answers(o):
                return Verdict(State.BLIND, note="nothing was asked")
            return self._keep()
        deaf = self._deaf(o)
        if deaf is not None:
            return deaf
        self._unseen += step
        if self._ever_seen and self._unseen < self.policy.confirmations * self.watch.interval:
            return self._keep()
        return Verdict(State.BLIND, note=_WHY_BLIND.get(slots.outcome, f"/slots: {slots.outcome.value}"))

    def _keep(self) -> Verdict:
        """The last verdict, which what was not seen can't turn into a fault."""
        last = self._verdict
        if last.state in (State.PAUSED, State.DOWN, State.LOADING):
            return Verdict(State.IDLE)
        return Verdict(
            last.state, last.reason, last.evidence, last.stalled_for, last.budget, last.due, last.slots
        )

    def _deaf(self, o: Observation) -> Verdict | None:
        """No slots to see, but /health hangs and the process is still: HTTP is dead, and nobody computes."""
        evidence, held = self.evidence.judge(o, delivered=self.delivered)
        hangs = o.health is not None and o.health.outcome in HANGS
        if not hangs or evidence not in (Evidence.BLOCKED, Evidence.UNKNOWN):
            self._since.pop(Reason.DEAF, None)
            return None
        self._streak += 1
        began = o.at - self._lasting(Reason.DEAF, o.at)
        lasting = o.at - max(began, held)
        return self._against(
            self.policy.unknown, lasting, Reason.DEAF, evidence, (), at_ease=State.BLIND, stalled=lasting
        )


def _is(o: Observation, outcome: Outcome) -> bool:
    """Whether /health says it, or /slots does where /health was not asked or hangs."""
    if o.health is not None and o.health.outcome is outcome:
        return True
    return o.slots is not None and o.slots.outcome is outcome and not _answers(o)


def _answers(o: Observation) -> bool:
    """Whether anything was answered as by a loaded server."""
    return any(part is not None and part.outcome is Outcome.OK for part in (o.health, o.slots))


def _slots_or_stand_in(o: Observation) -> Slots:
    """What /slots tells; where it can't be had, /metrics as one slot that stands for all."""
    slots = o.slots or Slots(Outcome.SKIPPED)
    if slots.outcome in HANGS or slots.outcome in (Outcome.OK, Outcome.SKIPPED) or o.metrics is None:
        return slots
    return _from_metrics(o.metrics, slots)


def _from_metrics(metrics: Metrics, slots: Slots) -> Slots:
    if metrics.outcome in HANGS:
        return Slots(metrics.outcome)
    if metrics.outcome is not Outcome.OK or metrics.processing is None or metrics.decode_total is None:
        return slots
    stand_in = Slot(id=0, processing=metrics.processing > 0, task=0, decoded=metrics.decode_total)
    return Slots(Outcome.OK, slots=(stand_in,))
