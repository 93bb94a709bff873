"""`--dry-run`: the same story, told in the conditional, and the process untouched."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.ground.events import actions
from tests.e2e.ground.real_server import StartServer
from tests.e2e.ground.watchdog import running
from tests.e2e.ground.wedge import DECODE

CONFIG = """
[servers.chat]
url = "{url}"
[servers.chat.probe]
interval = "1s"
[servers.chat.stall]
blocked = "6s"
spinning = "8s"
[servers.chat.escalation]
cancel_grace = "1s"
sigterm_grace = "1s"
sigkill_grace = "1s"
[servers.chat.restart]
via = "command"
command = ["touch", "{marker}"]
"""


@pytest.mark.parametrize(
    ("mode", "decoding", "ladder"),
    [
        ("block", False, ["sigterm", "sigterm", "sigkill", "restart"]),
        ("block", True, ["cancel", "sigterm", "sigterm", "sigkill", "restart"]),
        ("spin", True, ["cancel", "sigterm", "sigterm", "sigkill", "restart"]),
    ],
)
def test_the_process_is_untouched(
    server_factory: StartServer, tmp_path: Path, mode: str, decoding: bool, ladder: list[str]
) -> None:
    """All rungs and the restart are told with "would have", and none of them happens."""
    server, marker = server_factory("--threads", "2"), tmp_path / "restarted"
    config = tmp_path / "config.toml"
    config.write_text(CONFIG.format(url=server.url, marker=marker))
    with running(tmp_path, "run", "--dry-run", "--config", config) as watchdog:
        watchdog.wait_for(10, verdict="idle")
        stuck = server.client.start_decoding() if decoding else None
        if stuck is not None:
            watchdog.wait_for(10, verdict="busy")
            stuck.flow()
        before = server.start_ticks

        server.wedge(mode, DECODE if decoding else "")
        watchdog.wait_for(26, verdict="wedged")
        watchdog.wait_for(40, action="restart")
        done = [event for event in watchdog.events() if event["event"] == "action"]

        assert actions(done) == ladder
        assert all(event["dry_run"] and "would have" in event["text"] for event in done), done
        assert server.alive()
        assert server.start_ticks == before
        assert stuck is None or not stuck.ended
        assert "interrupt" not in server.log.read_text(errors="replace")  # no SIGTERM came
        assert not marker.exists()
