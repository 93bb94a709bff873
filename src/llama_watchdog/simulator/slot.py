"""One slot of the simulated server: which task it has, and how far that has come."""

from __future__ import annotations

from llama_watchdog.simulator.config import SlotState, Task


class Slot:
    """Counters move as llama-server's: `prompt` when a step begins, the others when it ends."""

    __slots__ = (
        "cancelled",
        "context",
        "decoded",
        "encode_left",
        "id",
        "in_step",
        "pace",
        "processed",
        "processing",
        "prompt",
        "shown_id",
        "struck",
        "task",
        "task_id",
        "used",
    )

    def __init__(self, slot_id: int, context: int) -> None:
        self.id = slot_id
        self.context = context
        self.task: Task | None = None
        self.task_id = -1
        self.shown_id = -1  # what /slots calls it: churn gives it new names
        self.processing = False
        self.prompt = 0  # tokens in the context, those of the running step included
        self.processed = 0
        self.decoded = 0
        self.in_step = 0  # tokens of this slot in the running step
        self.encode_left = 0.0
        self.used = -1.0  # when its last task began
        self.pace = 1.0  # this task's time per token, as a share of the usual one
        self.struck = False  # never in a step again
        self.cancelled = False  # its client left; the loop has not noticed yet

    def launch(self, task_id: int, task: Task, *, pace: float, now: float) -> None:
        """Give the slot a task: all counters start anew."""
        self.task, self.pace, self.used = task, pace, now
        self.task_id = self.shown_id = task_id
        self.processing = True
        self.prompt = self.processed = self.decoded = self.in_step = 0
        self.encode_left = task.encode_seconds
        self.struck = self.cancelled = False

    def release(self) -> None:
        """End the task: an idle slot goes on showing its id and its context, not its other counters."""
        self.processing = self.struck = self.cancelled = False
        self.processed = self.decoded = self.in_step = 0

    @property
    def has_client(self) -> bool:
        """Whether somebody waits for its task."""
        return self.processing and not self.cancelled

    @property
    def prompt_left(self) -> int:
        """Prompt tokens that no step has taken yet."""
        return self.task.prompt - self.processed if self.task else 0

    @property
    def tokens_left(self) -> int:
        """Tokens that this task may still generate: until its limit, or until the context is full."""
        if self.task is None:
            return 0
        room = self.context - self.prompt
        return room if self.task.predict < 0 else min(self.task.predict - self.decoded, room)

    def state(self) -> SlotState:
        """What can be seen of it from outside."""
        task = self.task
        return SlotState(
            self.id,
            self.context,
            self.processing,
            self.shown_id,
            self.prompt,
            self.processed,
            self.decoded,
            task.predict if task else -1,
            task.text if task else "",
        )
