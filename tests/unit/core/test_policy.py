"""Durations as people write them."""

from __future__ import annotations

import pytest

from llama_watchdog.core.policy import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25),
        ("30s", 30.0),
        ("5m", 300.0),
        ("1h", 3600.0),
        ("1.5h", 5400.0),
        ("7", 7.0),
        (7, 7.0),
        (0, 0.0),
    ],
)
def test_durations(text: object, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "soon", "-1s", "1 week", "1h30m", -1, float("inf"), float("nan"), True, None, []]
)
def test_what_is_no_duration_is_refused_with_what_is_allowed(text: object) -> None:
    with pytest.raises(ValueError, match="no duration"):
        parse_duration(text)
