"""`llama-watchdog demo`: the whole story in under a minute, with nothing but the package."""

from __future__ import annotations

import time
from pathlib import Path

from tests.e2e.ground.testbed import Testbed
from tests.e2e.ground.watchdog import command


def test_demo_tells_the_story_in_under_a_minute(tmp_path: Path) -> None:
    """On this machine, with this Python."""
    began = time.monotonic()
    demo = command(tmp_path, "demo", timeout=70)
    assert time.monotonic() - began < 60.0
    assert demo.returncode == 0, demo.stderr
    for word in ("wedged", "SIGKILL", "restart"):
        assert word.lower() in demo.stdout.lower()


def test_demo_needs_nothing_but_the_package(testbed: Testbed) -> None:
    """As a user without any rights, in a system without a network, where only the wheel is installed."""
    user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--no-new-privs"]
    demo = testbed.run(
        *user, "env", "HOME=/nowhere", "/opt/llama-watchdog/bin/llama-watchdog", "demo", timeout=70
    )
    assert "wedged" in demo.stdout.lower()
