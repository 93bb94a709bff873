"""The server's main loop, judged by its slots.

seen of the slots                 | verdict
----------------------------------+----------------------------------------------------------------
a slot moved, or all are idle     | busy, idle
all idle, and requests deferred   | suspect → wedged (deferred)
slots at work, none moved         | busy → suspect → wedged (frozen), as the evidence allows
/slots hangs                      | likewise, wedged (slots-hang; deaf where /health hangs, too)
one slot stands, others move      | suspect, and left alone; alone at last, it is given patience
nothing                           | the last verdict for a while, then blind
"""

from __future__ import annotations

from dataclasses import replace

from llama_watchdog.core.budget import Budget, pick, verdict_against
from llama_watchdog.core.evidence import Evidence, EvidenceLog
from llama_watchdog.core.loading import LoadProgress
from llama_watchdog.core.observation import HANGS, Metrics, Observation, Outcome, Slot, Slots, Watch
from llama_watchdog.core.pace import Pace
from llama_watchdog.core.policy import StallPolicy
from llama_watchdog.core.progress import Progress
from llama_watchdog.core.verdict import Reason, State, Verdict

IDLE = Verdict(State.IDLE)
QUICK = 1.0  # seconds; an answer this fast did not wait for a step that outlasts two polls

_WHY_BLIND = {
    Outcome.UNSUPPORTED: "/slots is switched off; start llama-server without --no-slots",
    Outcome.UNAUTHORIZED: "/slots wants an API key; set api_key_file",
    Outcome.MALFORMED: "/slots answers with something else",
    Outcome.UNREACHABLE: "it can't be reached",
    Outcome.ERROR: "/slots fails",
}


class MainLoop:
    """Follows the slots of one server. `load` is its load's progress, which the judge follows."""

    def __init__(self, policy: StallPolicy, watch: Watch, load: LoadProgress) -> None:
        self.policy = policy
        self.watch = watch
        self.progress = Progress(aside_after=policy.unknown)
        self.evidence = EvidenceLog(watch)
        self.pace = Pace(watch.batch_size)
        self.answers_mid_step = False  # its /slots answers in the middle of long steps
        self._load = load
        self._last = Verdict(State.IDLE)
        self._streak = 0
        self._unmoved_answers = 0
        self._unseen = 0.0
        self._ever_seen = False
        self._since: dict[Reason, float] = {}

    def restart(self, at: float, *, forget: bool) -> None:
        """Clocks anew; with `forget` it is another incarnation, or its model has to be loaded again."""
        self.progress.restart(at, forget=forget)
        self.evidence.restart()
        self.pace.restart()
        self.calm()
        if forget:
            self.answers_mid_step = False

    def calm(self) -> None:
        """Nothing that has lasted until now counts any more."""
        self._streak = self._unmoved_answers = 0
        self._unseen = 0.0
        self._since.clear()

    def note(self, verdict: Verdict) -> None:
        """The verdict of the last poll, whoever found it."""
        self._last = verdict

    def judge(self, o: Observation, step: float) -> Verdict:
        """The verdict on one poll, `step` seconds after the last."""
        slots = _slots_or_stand_in(o)
        if slots.outcome is Outcome.OK:
            self._ever_seen, self._unseen = True, 0.0
            return self._answered(o, slots)
        if slots.outcome in HANGS:
            self._ever_seen, self._unseen = True, 0.0
            self.evidence.see(o)
            self._since.pop(Reason.DEFERRED, None)
            deaf = o.health is not None and o.health.outcome in HANGS
            ids = tuple(t.slot.id for t in self.progress.tracks.values() if t.slot.processing)
            return self._standstill(o, Reason.DEAF if deaf else Reason.SLOTS_HANG, ids)
        return self._not_seen(o, slots, step)

    # /slots answers

    def _answered(self, o: Observation, slots: Slots) -> Verdict:
        self._since.pop(Reason.DEAF, None)
        moved = self.progress.see(slots.slots, o.at)
        self.pace.see(slots.slots, o.at)
        standing, aside = self.progress.standing()
        if not standing and not aside:
            return self._idle(o)
        if not moved:
            self.evidence.see(o)
        self._since.pop(Reason.DEFERRED, None)
        ids = tuple(track.slot.id for track in standing)
        if moved:
            self._streak = self._unmoved_answers = 0
            self.evidence.calm(o)
            if not aside:
                return self._busy(ids)
            stands = tuple(track.slot.id for track in aside)
            stalled = o.at - min(track.moved_at for track in aside)
            note = "while others move: left alone"
            return Verdict(State.SUSPECT, Reason.FROZEN, None, stalled, None, None, stands, note=note)
        self._learn_regime(slots, [track.slot for track in standing])
        if standing:
            return self._standstill(o, Reason.FROZEN, ids)
        return self._left_over(o)

    def _busy(self, ids: tuple[int, ...]) -> Verdict:
        """The same object while nothing changes: most polls of a busy server end here."""
        if self._last.state is State.BUSY and self._last.slots == ids and self._last.budget is None:
            return self._last
        return Verdict(State.BUSY, slots=ids)

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
        metrics = o.metrics
        if o.canary is not None and o.canary.outcome in HANGS:
            return self._put_off(o, Reason.CANARY, o.at - o.canary.seconds)
        if metrics is None or metrics.outcome is not Outcome.OK or not metrics.deferred:
            self.evidence.calm(o)
            if metrics is None or metrics.outcome is not Outcome.SKIPPED:
                self.calm()
            return IDLE
        return self._put_off(o, Reason.DEFERRED, self._since.setdefault(Reason.DEFERRED, o.at))

    def _put_off(self, o: Observation, reason: Reason, since: float) -> Verdict:
        """Every slot is idle, and yet a request waits."""
        self._streak += 1
        self.evidence.see(o)
        evidence, _ = self.evidence.judge(o, delivered=self.progress.delivered)
        unreadable = o.process is None or o.process.outcome is not Outcome.OK
        still = unreadable or evidence in (Evidence.BLOCKED, Evidence.UNKNOWN)
        seconds = self.policy.deferred if still else self.policy.computing
        return self._against(Budget(evidence, seconds, since), o, reason, (), State.IDLE, o.at - since)

    # Nothing moves

    def _standstill(self, o: Observation, reason: Reason, ids: tuple[int, ...]) -> Verdict:
        self._streak += 1
        self._load.see(o, o.at)
        budget = self._budget(o, reason)
        compiles = budget.evidence is Evidence.COMPUTING and self.evidence.one_thread
        first_work = compiles and not self.progress.delivered
        at_ease = State.LOADING if first_work else State.BUSY
        return self._against(budget, o, reason, ids, at_ease, o.at - self.progress.moved_at)

    def _left_over(self, o: Observation) -> Verdict:
        """Only slots that stood while others moved are left: patience, then as any standstill."""
        self._streak += 1
        _, aside = self.progress.standing()
        budget = self._budget(o, Reason.FROZEN)
        began = min(track.moved_at for track in aside)
        # The others may serve short tasks between two looks, of which only the turns of the loop are seen.
        quiet = self.progress.turned_at + self.policy.unknown - began
        patience = max(self.policy.slot_patience, budget.seconds, quiet)
        budget = replace(budget, seconds=patience, began=began, why="others had moved")
        ids = tuple(track.slot.id for track in aside)
        verdict = self._against(budget, o, Reason.FROZEN, ids, State.SUSPECT, o.at - budget.began)
        return replace(verdict, reason=Reason.FROZEN)

    def _budget(self, o: Observation, reason: Reason) -> Budget:
        return pick(
            self.policy,
            self.evidence.judge(o, delivered=self.progress.delivered),
            self.progress,
            self.pace,
            load_moved_at=self._load.moved_at,
            hangs=reason is not Reason.FROZEN,
            # With /health hanging, too, it may be HTTP that is choked, and not the loop.
            answers_mid_step=self.answers_mid_step and reason is not Reason.DEAF,
        )

    def _against(
        self,
        budget: Budget,
        o: Observation,
        reason: Reason,
        ids: tuple[int, ...],
        at_ease: State,
        stalled: float,
    ) -> Verdict:
        return verdict_against(
            budget,
            o.at,
            reason,
            ids,
            streak=self._streak,
            policy=self.policy,
            interval=self.watch.interval,
            at_ease=at_ease,
            stalled=stalled,
        )

    # Nothing is seen

    def _not_seen(self, o: Observation, slots: Slots, step: float) -> Verdict:
        """Neither progress nor a standstill; when it lasts: blind."""
        self.progress.shift(step)
        if slots.outcome is Outcome.SKIPPED:
            if not self._ever_seen and (o.health is None or o.health.outcome is not Outcome.OK):
                return Verdict(State.BLIND, note="nothing was asked")
            if self._last.state is State.IDLE:
                self.evidence.calm(o)  # left alone on purpose, since it had nothing to do
            return self._keep()
        hangs = o.health is not None and o.health.outcome in HANGS
        if hangs and (deaf := self._deaf(o)) is not None:
            return deaf
        self._since.pop(Reason.DEAF, None)
        self._unseen += step
        if self._ever_seen and self._unseen < self.policy.confirmations * self.watch.interval:
            return self._keep()
        return Verdict(State.BLIND, note=_WHY_BLIND.get(slots.outcome, f"/slots: {slots.outcome.value}"))

    def _keep(self) -> Verdict:
        """The last verdict, which what was not seen can't turn into a fault."""
        if self._last.state in (State.SLEEPING, State.PAUSED, State.DOWN, State.BLIND):
            return IDLE
        return replace(self._last, fault=False)

    def _deaf(self, o: Observation) -> Verdict | None:
        """No slots to see, but /health hangs and the process is still: HTTP is dead, and nobody computes."""
        self.evidence.see(o)
        evidence, held = self.evidence.judge(o, delivered=self.progress.delivered)
        if evidence not in (Evidence.BLOCKED, Evidence.UNKNOWN):
            return None
        self._streak += 1
        began = max(self._since.setdefault(Reason.DEAF, o.at), held)
        budget = Budget(evidence, self.policy.unknown, began)
        return self._against(budget, o, Reason.DEAF, (), State.BLIND, o.at - began)


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
    # Without a task: it counts steps, of prefill and decode alike, and so has no phase to pace it by.
    stand_in = Slot(id=0, processing=metrics.processing > 0, task=None, prompt=metrics.decode_total)
    return Slots(Outcome.OK, slots=(stand_in,))
