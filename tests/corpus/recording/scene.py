"""The list of scenes to be recorded, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

BOOK = "Once upon a time"


class Played(Protocol):
    """What plays a scene."""

    def __call__(self, stage: object, /) -> None: ...


@dataclass(frozen=True)
class Scene:
    """One scene: its name, how the watch looks at it, and whether it may look into the process."""

    name: str
    interval: str
    config: str
    rights: bool
    play: Callable[..., None]


SCENES: dict[str, Scene] = {}


def scene(
    name: str, *, interval: str, config: str = "", rights: bool = True
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Put a scene on the list. `config`: more lines of `[servers.default.probe]`."""

    def put(play: Callable[..., None]) -> Callable[..., None]:
        SCENES[name] = Scene(name, interval, config, rights, play)
        return play

    return put
