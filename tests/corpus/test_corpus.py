"""Every trace of the corpus, judged as `llama-watchdog replay` judges it, with the default policy."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from typing import Any

import pytest

from llama_watchdog.cli.replay import replay
from llama_watchdog.core.policy import Policy
from tests.corpus.corpus import KINDS, TABLE
from tests.corpus.entry import JITTER, POLLS_LATE, RECORDED, Acts, Entry, Never, Recorded, words

DEFAULTS = {"default": Policy(), "simulated": Policy()}
HOUR = 3600.0


@cache
def judged(name: str) -> tuple[dict[str, Any], frozenset[str], float]:
    """Of one trace: the summary, every verdict, and how many of its seconds the host was awake."""
    entry = next(entry for entry in TABLE if entry.name == name)
    slept = 0.0

    def lines() -> Any:
        nonlocal slept
        for line in entry.lines():
            if '"suspended":0.0' not in line and '"suspended":' in line:
                slept += json.loads(line)["suspended"]
            yield line

    events = list(replay(entry.name, lines(), DEFAULTS))
    verdicts = frozenset(event["verdict"] for event in events if event["event"] == "verdict")
    return events[-1], verdicts, events[-1]["seconds"] - slept


def parameters() -> list[Any]:
    """The table; an entry that the judge does not live up to yet is marked so."""
    return [
        pytest.param(
            entry,
            id=f"{entry.kind}-{entry.name}",
            marks=[pytest.mark.xfail(reason=entry.bug, strict=True)] if entry.bug else [],
        )
        for entry in TABLE
    ]


@pytest.mark.parametrize("entry", parameters())
def test_what_must_and_must_not_happen(entry: Entry) -> None:
    summary, verdicts, _ = judged(entry.name)
    first = summary["first_action"]
    if isinstance(entry.expect, Never):
        assert first is None
    else:
        acts_in_time(entry, entry.expect, first)
    assert entry.seen <= verdicts
    assert not entry.unseen & verdicts
    if entry.lasting is not None:
        verdict, seconds = entry.lasting
        assert summary["verdicts"].get(verdict, 0.0) >= seconds


def acts_in_time(entry: Entry, expect: Acts, first: dict[str, Any] | None) -> None:
    """Neither before anything was wrong, nor before the budget was over, nor later than it must be."""
    assert first is not None, "it never acted"
    fault_at = entry.fault_at()
    assert fault_at is not None
    latest = fault_at + expect.budget + POLLS_LATE * entry.interval + JITTER
    # The budget runs from when a token last moved, which was before the fault by up to a poll.
    earliest = max(fault_at, fault_at + expect.budget - entry.interval - expect.early - JITTER)
    assert earliest <= first["elapsed"] <= latest
    assert (first["reason"], first["evidence"]) == (expect.reason, expect.evidence)


def test_each_name_is_given_once() -> None:
    assert [name for name, times in Counter(entry.name for entry in TABLE).items() if times > 1] == []


def test_every_kind_has_a_trace() -> None:
    assert {entry.kind for entry in TABLE} == set(KINDS)


def test_the_healthy_half_is_long() -> None:
    """Hours awake under watch, in which nothing was done."""
    well = [entry for entry in TABLE if isinstance(entry.expect, Never) and entry.expect.healthy]
    assert sum(judged(entry.name)[2] for entry in well) >= 24 * HOUR


def test_a_sleeping_server_is_not_asked_for_its_slots() -> None:
    """Asking would wake it, and keep it from falling asleep."""
    sleepers = [entry for entry in TABLE if entry.lasting is not None or entry.name == "real-sleep"]
    asleep = asked = 0
    for entry in sleepers:
        for line in entry.lines():
            poll = json.loads(line)
            if poll.get("props", {}).get("sleeping"):
                asleep += 1
                asked += poll.get("slots", {"outcome": "skipped"})["outcome"] != "skipped"
    assert asleep > 1000
    assert asked == 0


def test_every_recording_is_in_the_table() -> None:
    files = {path.name.removesuffix(".jsonl.gz") for path in RECORDED.glob("*.gz")}
    assert files == {entry.source.scene for entry in TABLE if isinstance(entry.source, Recorded)}


def test_recordings_hold_nothing_that_users_wrote() -> None:
    """Their only texts are the words of the format, and the names of builds and of the model."""
    scenes = [entry for entry in TABLE if isinstance(entry.source, Recorded)]
    texts = {text for entry in scenes for line in entry.lines() for text in _texts(json.loads(line))}
    assert {text for text in texts if len(text) > 24} == set()
    assert texts <= KNOWN_WORDS | {text for text in texts if text.startswith(("20", "b1"))}


KNOWN_WORDS = words(
    "ok pending timeout loading refused unreachable unauthorized unsupported malformed error skipped gone "
    "R S D T t Z I default none cancel sigterm sigkill /models/smollm2.gguf /mnt/model.gguf"
)


def _texts(value: object) -> set[str]:
    if isinstance(value, str):
        return {value}
    if isinstance(value, dict):
        return {text for part in value.values() for text in _texts(part)}
    if isinstance(value, list):
        return {text for part in value for text in _texts(part)}
    return set()
