"""How the simulated server misbehaves: every fault, and what each does to the loop, the queue and HTTP.

One table says it all; the model, the traces and the real process read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum


class Fault(StrEnum):
    """What can be wrong with the server. A stuck loop makes no step until the fault is lifted."""

    NONE = "none"
    BLOCK = "block"  # the main thread sleeps for ever, wherever it is caught
    SPIN = "spin"  # the main thread spins for ever, wherever it is caught
    SPIN_ALL = "spin-all"  # everything that computes spins: looks like a long step
    FREEZE = "freeze"  # stuck asleep in a step, and /slots answers
    FROZEN_UNTIL_CANCEL = "frozen-until-cancel"  # tasks at work stand still until their clients leave
    HANG_SLOTS = "hang-slots"  # stuck asleep between two steps: nothing in the queue is answered
    CHURN = "churn"  # the loop gives its slots task after task, and no token moves
    DEAF = "deaf"  # requests are accepted and put off, and none is ever started
    LOAD_HANG = "load-hang"  # loading stops, asleep; no fault once loaded
    LOAD_SPIN = "load-spin"  # loading stops, one thread spinning; no fault once loaded
    NO_LISTEN = "no-listen"  # connections are refused, the process lives
    CRASH = "crash"  # the process is gone
    # Healthy all the same:
    PAGING = "paging"  # the main thread waits for the disk, page fault by page fault
    STOPPED = "stopped"  # SIGSTOP: state T
    TRACED = "traced"  # a debugger holds it: state t
    CGROUP_FROZEN = "cgroup-frozen"  # the freezer of its cgroup: state S


class Main(Enum):
    """What a fault makes of the main thread."""

    WORKS = "works"
    SLEEPS = "sleeps"
    SPINS = "spins"
    COMPUTES = "computes"  # as in a step, with all that takes part
    READS = "reads"  # waits for the disk


class Queue(Enum):
    """What a fault makes of questions that go through the task queue, such as /slots."""

    AS_CAUGHT = "as caught"  # answered by builds that answer in mid-step, if caught in mid-step
    ANSWERS = "answers"
    HANGS = "hangs"


@dataclass(frozen=True, slots=True)
class Traits:
    """What a fault does. `state` overrides the main thread's state letter; a frozen cgroup has none."""

    main: Main = Main.WORKS
    queue: Queue = Queue.AS_CAUGHT
    http: bool = True  # HTTP threads answer
    state: str | None = None
    loading_only: bool = False

    @property
    def stuck(self) -> bool:
        """Whether the loop makes no step."""
        return self.main is not Main.WORKS


_HALTED = Traits(Main.SLEEPS, Queue.HANGS, http=False)

TRAITS: dict[Fault, Traits] = {
    Fault.NONE: Traits(),
    Fault.BLOCK: Traits(Main.SLEEPS),
    Fault.SPIN: Traits(Main.SPINS),
    Fault.SPIN_ALL: Traits(Main.COMPUTES),
    Fault.FREEZE: Traits(Main.SLEEPS, Queue.ANSWERS),
    Fault.FROZEN_UNTIL_CANCEL: Traits(),
    Fault.HANG_SLOTS: Traits(Main.SLEEPS, Queue.HANGS),
    Fault.CHURN: Traits(Main.SPINS, Queue.ANSWERS),
    Fault.DEAF: Traits(),
    Fault.LOAD_HANG: Traits(Main.SLEEPS, loading_only=True),
    Fault.LOAD_SPIN: Traits(Main.SPINS, loading_only=True),
    Fault.NO_LISTEN: Traits(),
    Fault.CRASH: Traits(),
    Fault.PAGING: Traits(Main.READS),
    Fault.STOPPED: Traits(_HALTED.main, _HALTED.queue, http=False, state="T"),
    Fault.TRACED: Traits(_HALTED.main, _HALTED.queue, http=False, state="t"),
    Fault.CGROUP_FROZEN: _HALTED,
}

# What a real process can do by itself; the others are done to it, by a signal, a debugger or the kernel.
OF_PROCESSES = tuple(
    fault for fault in Fault if fault not in (Fault.PAGING, Fault.STOPPED, Fault.TRACED, Fault.CGROUP_FROZEN)
)
