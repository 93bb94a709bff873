"""At full defaults, on the real server: wedges are acted on soon, and healthy servers never, however slow."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.ground.events import actions, verdicts
from tests.e2e.ground.llama_client import prompt_of
from tests.e2e.ground.real_server import StartServer
from tests.e2e.ground.waiting import wait_until
from tests.e2e.ground.watchdog import running
from tests.e2e.ground.wedge import DECODE

# Minutes under watch for a sleeping server: the whole ten take CI's time only at night.
MINUTES_ASLEEP = 10 if os.environ.get("LLAMA_WATCHDOG_NIGHTLY") else 2


@pytest.mark.parametrize(("mode", "within"), [("block", 45.0), ("spin", 75.0)])
def test_a_wedge_while_decoding_is_acted_on_soon(
    server_factory: StartServer, tmp_path: Path, mode: str, within: float
) -> None:
    server = server_factory("--threads", "2")
    with running(tmp_path, "run", "--dry-run", "--url", server.url) as watchdog:
        watchdog.wait_for(10, verdict="idle")
        server.client.start_decoding().flow()
        watchdog.wait_for(15, verdict="busy")
        began = time.monotonic()
        server.wedge(mode, DECODE)
        watchdog.wait_for(within, event="action")
        assert time.monotonic() - began <= within


@contextmanager
def quota(pid: int, share: float) -> Iterator[None]:
    """That process gets so much of one core, by a control group of our own (version 1 or 2)."""
    name, period = f"llama-watchdog-e2e.{pid}", 100_000
    old = Path("/sys/fs/cgroup/cpu")
    group = (old if old.is_dir() else Path("/sys/fs/cgroup")) / name
    group.mkdir()
    try:
        if old.is_dir():
            (group / "cpu.cfs_quota_us").write_text(str(int(share * period)))
        else:
            (group / "cpu.max").write_text(f"{int(share * period)} {period}")
        (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        (group.parent / "cgroup.procs").write_text(str(pid))
        wait_until(lambda: not (group / "cgroup.procs").read_text(), 10.0, "the group to be empty")
        group.rmdir()


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_long_prefill_with_a_fifth_of_a_core_is_left_alone(
    server_factory: StartServer, tmp_path: Path, threads: str
) -> None:
    """Its threads get less CPU than any threshold: a step of its prefill takes minutes."""
    server = server_factory("--threads", threads)
    with running(tmp_path, "run", "--url", server.url) as watchdog, quota(server.pid, 0.2):
        watchdog.wait_for(15, verdict="idle")
        prefill = server.client.start(prompt_of(3500), n_predict=2)
        watchdog.wait_for(15, verdict="busy")
        time.sleep(60.0)
        assert not prefill.ended, "too quick to prove anything"
        events = watchdog.events()
    assert actions(events) == []
    assert set(verdicts(events)) <= {"idle", "busy", "loading"}


def test_asleep_under_watch_it_stays_asleep(server_factory: StartServer, tmp_path: Path) -> None:
    """`GET /slots` would wake it, and its log would show that."""
    server = server_factory("--threads", "1", "--sleep-idle-seconds", "10")
    with running(tmp_path, "run", "--url", server.url) as watchdog:
        watchdog.wait_for(60, verdict="sleeping")
        time.sleep(60.0 * MINUTES_ASLEEP)
        events = watchdog.events()
    log = server.log.read_text(errors="replace")
    assert "entering sleeping state" in log
    assert "exiting sleeping state" not in log
    assert verdicts(events)[-1] == "sleeping"
    assert actions(events) == []
