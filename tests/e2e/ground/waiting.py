"""Waiting for the real world: polled, and with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
POLL = 0.1


def wait_until(predicate: Callable[[], T | None], timeout: float, what: str) -> T:
    """The first truthy answer of `predicate`, asked every 0.1 s.

    TimeoutError, naming `what`, after `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while not (answer := predicate()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout:g} s for {what}; last seen: {answer!r}")
        time.sleep(POLL)
    return answer


def stays_true(predicate: Callable[[], bool], seconds: float, what: str) -> None:
    """Look every 0.1 s for so many seconds that `predicate` holds. AssertionError, naming `what`, if not."""
    began = time.monotonic()
    while (elapsed := time.monotonic() - began) < seconds:
        assert predicate(), f"after {elapsed:.1f} s no longer: {what}"
        time.sleep(POLL)
