"""What one GPU driver tells of one process."""

from __future__ import annotations

from dataclasses import dataclass

from llama_watchdog.core.observation import Gpu


@dataclass(frozen=True, slots=True)
class GpuLook:
    """`knows`: the driver has seen the process on one of its devices."""

    gpu: Gpu
    knows: bool
