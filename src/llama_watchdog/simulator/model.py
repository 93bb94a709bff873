"""A simulated llama-server as seen and treated from outside: orders, questions, what the kernel shows of it.

Pure: time is an argument, chance is seeded, memory is constant. What goes on inside is in `loop`.
"""

from __future__ import annotations

from random import Random

from llama_watchdog.core.observation import Gpu, Outcome, Process
from llama_watchdog.simulator.config import (
    HealthFacts,
    MetricsFacts,
    PropsFacts,
    ServerConfig,
    SlotState,
    Task,
    TaskState,
)
from llama_watchdog.simulator.faults import Fault
from llama_watchdog.simulator.loop import MainLoop
from llama_watchdog.simulator.machine import TICKS, Activity, Machine
from llama_watchdog.simulator.phases import Phase

TRACER_PID = 4242
_BOOTED = 9e5  # seconds that the machine has been up at time 0


class ServerModel:
    """One server, from second 0 on. Every question and every order takes `now`, which never runs backwards.

    Questions answer `None` while they hang. A question that goes through the task queue may say since when
    it has been `asked`: builds that do not answer in mid-step answer when the running step ends. While
    `loading`, a real server answers 503 to all of them; where it is not `listening`, there is no asking.
    """

    def __init__(
        self,
        config: ServerConfig | None = None,
        *,
        seed: int = 0,
        fault: Fault = Fault.NONE,
    ) -> None:
        self.config = config or ServerConfig()
        self._rng = Random(seed)  # noqa: S311 - noise, no secrets
        self.incarnation = -1  # counts the processes, from 0
        self._loop = self._new_loop(0.0, fault)

    def _new_loop(self, now: float, fault: Fault) -> MainLoop:
        self.incarnation += 1
        pid = self.config.pid + 1000 * self.incarnation
        self._machine = Machine(self.config, self._rng, pid=pid, start_ticks=int((_BOOTED + now) * TICKS))
        return MainLoop(self.config, self._rng, self._machine, fault, now)

    # Orders

    def submit(self, now: float, task: Task) -> int:
        """A client asks for something; returns the id of its task. A sleeping server begins to wake.

        Raises ValueError for a prompt that fills the context: a real server refuses it with a 400.
        """
        if not 0 < task.prompt < self.config.context:
            raise ValueError(
                f"a prompt of {task.prompt} tokens does not fit a context of {self.config.context}"
            )
        self.advance(now)
        task_id = self._loop.next_id
        self._loop.next_id += 1
        self._loop.waiting[task_id] = task
        self._loop.wake()
        self._loop.poke()
        return task_id

    def cancel(self, now: float, task_id: int) -> None:
        """The client of a task leaves. A loop that is stuck never notices."""
        self.advance(now)
        self._loop.waiting.pop(task_id, None)
        for slot in self._loop.slots:
            if slot.processing and slot.task_id == task_id:
                slot.cancelled = True
        self._loop.poke()

    def strike(self, now: float, fault: Fault) -> None:
        """Something goes wrong from now on; Fault.NONE lifts it, and the loop goes on where it stood."""
        self.advance(now)
        self._loop.strike(fault)

    def terminate(self, now: float) -> None:
        """SIGTERM: ends a loading server at once, a turning loop after its step; the second ends any loop.

        After the loop the port closes, and the process waits until its clients have left.
        """
        self.advance(now)
        loop = self._loop
        first, loop.terminating = not loop.terminating, True
        if self.loading or not (first or self.config.second_sigterm_hangs):
            loop.enter(Phase.ENDED)
        loop.poke()

    def kill(self, now: float) -> None:
        """SIGKILL, or the end of the process for any other reason."""
        self.advance(now)
        self._loop.enter(Phase.ENDED)

    def restart(self, now: float, fault: Fault = Fault.NONE) -> None:
        """A new process in place of the old one, with nothing of it but the configuration."""
        self._loop = self._new_loop(max(now, self._loop.clock), fault)

    def advance(self, now: float) -> None:
        """Let time pass up to `now`."""
        self._loop.advance(now)

    # What it is at

    @property
    def clock(self) -> float:
        """The latest `now`."""
        return self._loop.clock

    @property
    def fault(self) -> Fault:
        """What is wrong with it now."""
        return self._loop.fault

    @property
    def alive(self) -> bool:
        """Whether there is a process."""
        return self._loop.phase is not Phase.ENDED

    @property
    def loading(self) -> bool:
        """Whether the model is being downloaded or loaded for the first time."""
        return self._loop.phase in (Phase.DOWNLOADING, Phase.LOADING)

    @property
    def listening(self) -> bool:
        """Whether a connection is accepted (by the kernel, also while the process is halted)."""
        deaf = (Phase.DOWNLOADING, Phase.ENDING, Phase.ENDED)
        return self._loop.phase not in deaf and self.fault is not Fault.NO_LISTEN

    @property
    def halted(self) -> bool:
        """Whether the whole process stands still: stopped, traced or frozen."""
        return not self._loop.traits.http

    @property
    def stuck(self) -> bool:
        """Whether the main loop makes no step, and never will until the fault is lifted."""
        return self._loop.traits.stuck

    @property
    def activity(self) -> Activity:
        """What the process is at."""
        return self._loop.activity

    @property
    def loaded(self) -> float:
        """The share of the model that is in memory."""
        return self._machine.loaded

    @property
    def clients(self) -> int:
        """Connections of clients that wait for an answer."""
        return self._loop.clients

    @property
    def decoded_total(self) -> int:
        """Tokens generated since the start of the process."""
        return self._loop.predicted + sum([slot.decoded for slot in self._loop.slots])

    def task(self, task_id: int) -> TaskState:
        """How far a task has come; a task that was cancelled or forgotten is over."""
        for slot in self._loop.slots:
            if slot.processing and slot.task_id == task_id:
                return TaskState(slot.decoded, over=False)
        return TaskState(self._loop.ended.get(task_id, 0), over=task_id not in self._loop.waiting)

    # Questions

    def health(self, now: float, asked: float | None = None) -> HealthFacts | None:
        """GET /health; answered by an HTTP thread unless the build puts it into the task queue."""
        self.advance(now)
        loading = self.loading
        if self.halted or (
            self.config.health_in_queue and not loading and not self._loop.answers(self._since(asked))
        ):
            return None
        self._machine.answer()
        busy = self._busy
        return HealthFacts(loading, idle=self.config.slots - busy, processing=busy)

    def slots(self, now: float, asked: float | None = None) -> list[SlotState] | None:
        """GET /slots. Wakes a sleeping server, and keeps an idle one awake."""
        self.advance(now)
        self._loop.wake()
        if not self._loop.answers(self._since(asked)):
            return None
        self._machine.answer()
        return [slot.state() for slot in self._loop.slots]

    def props(self, now: float) -> PropsFacts | None:
        """GET /props; answered by an HTTP thread."""
        self.advance(now)
        if self.halted:
            return None
        self._machine.answer()
        return PropsFacts(self._loop.phase is Phase.SLEEPING, self.config.slots, self.config.context)

    def metrics(self, now: float, asked: float | None = None) -> MetricsFacts | None:
        """GET /metrics: through the task queue, but it wakes nobody."""
        self.advance(now)
        loop = self._loop
        if loop.phase is not Phase.SLEEPING and not loop.answers(self._since(asked)):
            return None
        self._machine.answer()
        return MetricsFacts(
            self._busy, len(loop.waiting), loop.batches.decodes, loop.batches.prompts, loop.predicted
        )

    def process(self, now: float) -> Process:
        """The process as a probe that may read everything sees it; GONE once it has ended."""
        self.advance(now)
        if not self.alive:
            return Process(Outcome.GONE)
        return self._machine.process(
            self.activity,
            state=self._loop.traits.state or self.activity.state,
            tracer=TRACER_PID if self.fault is Fault.TRACED else 0,
            frozen=self.fault is Fault.CGROUP_FROZEN,
        )

    def gpu(self, now: float) -> Gpu:
        """The GPU as a probe sees it; UNSUPPORTED where the server uses none."""
        self.advance(now)
        return self._machine.gpu(self.activity)

    @property
    def _busy(self) -> int:
        return sum([slot.processing for slot in self._loop.slots])

    def _since(self, asked: float | None) -> float:
        return self._loop.clock if asked is None else asked
