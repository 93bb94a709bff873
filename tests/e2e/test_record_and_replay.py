"""What was recorded of the real server is judged again, in no time, as it was judged then."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.e2e.ground.events import events_of
from tests.e2e.ground.llama_client import prompt_of
from tests.e2e.ground.real_server import RealServer
from tests.e2e.ground.waiting import wait_until
from tests.e2e.ground.watchdog import command, running
from tests.e2e.ground.wedge import DECODE

CONFIG = """
[servers.chat]
url = "{url}"
[servers.chat.probe]
interval = "1s"
[servers.chat.stall]
blocked = "6s"
"""
PROMPT = "a secret that nobody may read"


def test_a_wedge_is_replayed_as_it_was_seen(real_server: RealServer, tmp_path: Path) -> None:
    """The verdicts of `replay` are those of `record`, at the same times and for the same reasons.

    The trace holds nothing of what the user wrote.
    """
    config, trace = tmp_path / "config.toml", tmp_path / "wedge.trace"
    config.write_text(CONFIG.format(url=real_server.url))
    record: list[str | Path] = ["record", "--config", config, "--json", "-o", trace]
    with running(tmp_path, *record, end=signal.SIGINT) as recording:
        recording.wait_for(10, verdict="idle")
        generation = real_server.client.start(PROMPT)
        recording.wait_for(10, verdict="busy")
        generation.flow()
        real_server.wedge("block", DECODE)
        recording.wait_for(20, verdict="wedged")
        polls = len(trace.read_text().splitlines())
        wait_until(lambda: len(trace.read_text().splitlines()) > polls + 3, 10.0, "some polls of the wedge")
        seen = recording.events()
    assert real_server.alive(), "record acts never"
    assert [verdict["verdict"] for verdict in seen] == ["idle", "busy", "suspect", "wedged"]

    replayed = command(tmp_path, "replay", trace, "--json")
    assert replayed.returncode == 0, replayed.stderr
    *events, summary = events_of(replayed.stdout.splitlines())
    without_time = [{key: value for key, value in verdict.items() if key != "at"} for verdict in seen]
    assert [event for event in events if event["event"] == "verdict"] == without_time
    assert summary["event"] == "summary"
    assert summary["first_action"]["action"] == "cancel"
    assert summary["first_action"]["evidence"] == "blocked"
    assert PROMPT not in trace.read_text()


def test_a_prefill_is_replayed_as_work(real_server: RealServer, tmp_path: Path) -> None:
    """A recorded healthy prefill yields no action, at the recorded budgets and at tighter ones."""
    trace, config = tmp_path / "prefill.trace", tmp_path / "config.toml"
    config.write_text(CONFIG.format(url=real_server.url).replace('"6s"', '"2s"'))
    with running(tmp_path, "record", "--url", real_server.url, "-o", trace, end=signal.SIGINT):
        wait_until(trace.exists, 10.0, "the trace to begin")
        real_server.client.start(prompt_of(1500), n_predict=2).wait(60.0)
    tighter: list[str | Path] = ["--config", config]
    for options in ([], tighter):
        replayed = command(tmp_path, "replay", trace, "--json", "--summary", *options)
        assert replayed.returncode == 0, replayed.stderr
        assert events_of(replayed.stdout.splitlines())[-1]["first_action"] is None
