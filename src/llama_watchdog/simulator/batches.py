"""What one step of the simulated server does to its slots, and how long it takes.

As in llama.cpp: a step takes one token of each generating slot, then prompt tokens up to the batch size. A
slot's context grows when the step begins, its other counters when it ends.
"""

from __future__ import annotations

from llama_watchdog.simulator.config import ServerConfig
from llama_watchdog.simulator.slot import Slot

_DEPTH_GRAIN = 256  # tokens of context over which the rates are taken as constant


class Batches:
    """The steps of one process. `decodes`: calls of llama_decode; `prompts`: tokens of finished prompts."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self.decodes = 0
        self.prompts = 0

    def fill(self, active: list[Slot]) -> float:
        """Begin a step over these slots; returns its seconds."""
        room, prompt_seconds, slowest = self._config.batch_size, 0.0, 0.0
        for slot in active:
            if not slot.prompt_left:
                slot.in_step = 1
                slot.prompt += 1
                room -= 1
                slowest = max(slowest, self._slowness(slot))
        for slot in active:
            if slot.prompt_left:
                slot.in_step = min(room, slot.prompt_left)
                prompt_seconds += slot.in_step * self._slowness(slot)
                slot.prompt += slot.in_step
                room -= slot.in_step
        return slowest / self._config.decode_rate + prompt_seconds / self._config.prefill_rate

    def end(self, slots: list[Slot]) -> list[Slot]:
        """End the running step; returns the slots whose tasks are done with it."""
        self.decodes += 1
        done = []
        for slot in slots:
            if not slot.in_step or slot.task is None:
                continue
            if not slot.prompt_left:
                slot.decoded += 1
            else:
                slot.processed += slot.in_step
                if not slot.prompt_left:  # its last token's step also yields the first generated one
                    self.prompts += slot.task.prompt
                    slot.decoded = 1 if slot.task.predict else 0
            slot.in_step = 0
            if not slot.prompt_left and slot.tokens_left <= 0:
                done.append(slot)
        return done

    def leap(self, active: list[Slot], span: float) -> tuple[int, float]:
        """Make all like steps at once that fit into `span`; returns how many, and the seconds of one.

        Alike: every slot generates, none ends in one of them, none gets much slower.
        """
        if any(slot.prompt_left for slot in active):
            return 0, 0.0
        # As in `fill`, a step is as slow as the context is deep with its own token.
        seconds = max([self._slowness(slot, ahead=1) for slot in active]) / self._config.decode_rate
        steps = min(int(span / seconds), min([slot.tokens_left for slot in active]) - 1)
        if self._config.half_rate_depth:
            steps = min(steps, *[_DEPTH_GRAIN - (slot.prompt + 1) % _DEPTH_GRAIN for slot in active])
        if steps <= 0:
            return 0, seconds
        for slot in active:
            slot.prompt += steps
            slot.decoded += steps
        self.decodes += steps
        return steps, seconds

    def _slowness(self, slot: Slot, ahead: int = 0) -> float:
        """Time per token, as a share of what the configured rate says, so many tokens ahead."""
        half = self._config.half_rate_depth
        depth = (slot.prompt + ahead) // _DEPTH_GRAIN * _DEPTH_GRAIN
        return slot.pace * (1.0 + depth / half) if half else slot.pace
