"""A slow server is not a wedged one: a long prefill on one CPU core is work, whatever the budgets."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.e2e.ground.events import actions, verdicts
from tests.e2e.ground.llama_client import prompt_of
from tests.e2e.ground.real_server import StartServer
from tests.e2e.ground.watchdog import running

TIGHT = """
[servers.default]
url = "{url}"
[servers.default.probe]
interval = "1s"
[servers.default.stall]
blocked = "6s"
spinning = "8s"
"""


@pytest.mark.parametrize(("tight", "threads"), [(False, "1"), (True, "1"), (True, "2")])
def test_a_long_prefill_is_busy_throughout(
    server_factory: StartServer, tmp_path: Path, tight: bool, threads: str
) -> None:
    """3,500 tokens of prompt, whose counters stand still for 10 s and more at a time, and no token before.

    At full defaults and at tight ones; by one thread, which looks as one that spins, and by two.
    """
    real_server = server_factory("--threads", threads)
    config = tmp_path / "config.toml"
    config.write_text(TIGHT.format(url=real_server.url) if tight else "")
    where = ["--config", config] if tight else ["--url", real_server.url]
    before = real_server.start_ticks
    with running(tmp_path, "run", *where) as watchdog:
        watchdog.wait_for(10, verdict="idle")
        began = time.monotonic()
        prefill = real_server.client.start(prompt_of(3500), n_predict=2)
        watchdog.wait_for(10, verdict="busy")
        prefill.wait(150.0)
        took = time.monotonic() - began
        events = watchdog.events()

    assert prefill.error is None
    assert took > 4.0, "too quick to prove anything"
    assert verdicts(events) in (["idle", "busy"], ["idle", "busy", "idle"])
    assert actions(events) == []
    assert real_server.alive()
    assert real_server.start_ticks == before
