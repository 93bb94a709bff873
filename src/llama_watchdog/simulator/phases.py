"""Where a simulated server is in its life, and what its loop can be in the middle of."""

from __future__ import annotations

from enum import Enum


class Phase(Enum):
    """Where a server is in its life."""

    DOWNLOADING = "downloading"
    LOADING = "loading"
    READY = "ready"
    SLEEPING = "sleeping"
    WAKING = "waking"
    ENDING = "ending"  # the loop has ended and the port is closed, but clients are still connected
    ENDED = "ended"


class Step(Enum):
    """What the loop can be in the middle of."""

    WARMUP = "warmup"
    ENCODE = "encode"
    BATCH = "batch"


LOADS = (Phase.LOADING, Phase.WAKING)
