"""Scenes of the real server asleep, slowed down, stopped: never to be acted upon."""

from __future__ import annotations

import subprocess
import threading
import time
from pathlib import Path

from tests.corpus.recording.machine import OWN_MODEL, cgroup, disk, forget, own_copy
from tests.corpus.recording.scene import BOOK, scene
from tests.corpus.recording.stage import Stage
from tests.e2e.ground.llama_client import prompt_of

QUOTA = {"cpu__cfs_period_us": "100000"}


@scene("sleep", interval="2s")
def sleep(stage: Stage) -> None:
    """It falls asleep, stays asleep under watch, is woken by a request, and sleeps again."""
    stage.start("--sleep-idle-seconds", "15")
    stage.watch(3)
    stage.client.complete(n_predict=30)
    stage.rest(90.0)
    stage.mark("woken")
    stage.client.complete(n_predict=30, timeout=60.0)
    stage.rest(50.0)


@scene("load-from-a-slow-disk", interval="2s")
def load_from_a_slow_disk(stage: Stage) -> None:
    """Nothing of the model is in memory, and the disk gives 1.5 MB a second."""
    throttle = f"{disk()} 1500000"
    with cgroup("blkio", blkio__throttle__read_bps_device=throttle) as slow:
        own_copy(stage)
        stage.launch(groups=(slow,), model=OWN_MODEL)
        stage.watch(1)
        while not stage.client.healthy():
            time.sleep(0.5)
        stage.mark("loaded")
        stage.client.complete(n_predict=20, timeout=300.0)
        stage.polls(3)


@scene("waking-from-a-slow-disk", interval="2s")
def waking_from_a_slow_disk(stage: Stage) -> None:
    """It wakes for a request, and has to read all of its model from a disk of 1.5 MB a second."""
    throttle = f"{disk()} 1500000"
    with cgroup("blkio") as slow:
        own_copy(stage)
        stage.start("--sleep-idle-seconds", "10", groups=(slow,), model=OWN_MODEL)
        stage.watch(2)
        stage.client.complete(n_predict=20)
        stage.rest(25.0)
        forget(stage)
        (slow / "blkio.throttle.read_bps_device").write_text(throttle)
        stage.mark("woken")
        stage.client.complete(n_predict=40, timeout=170.0)
        stage.mark("awake")
        stage.rest(20.0)


@scene("paging", interval="2s")
def paging(stage: Stage) -> None:
    """Less memory than the model takes, and a disk of 30 MB a second: 6 s for the weights of a token."""
    throttle = f"{disk()} 30000000"
    with (
        cgroup("memory") as small,
        cgroup("blkio", blkio__throttle__read_bps_device=throttle) as slow,
    ):
        own_copy(stage)
        lean = ("--ctx-size", "512", "--parallel", "1", "--cache-ram", "0", "--no-warmup", "--no-repack")
        stage.start(*lean, groups=(small, slow), model=OWN_MODEL)
        stage.client.complete()
        (small / "memory.limit_in_bytes").write_text(str(85 << 20))
        stage.watch(3)
        generation = stage.client.start(prompt_of(20), 30)
        stage.rest(110.0)
        generation.close()
        stage.rest(20.0)


@scene("stopped", interval="2s")
def stopped(stage: Stage) -> None:
    """SIGSTOP while it decodes, and SIGCONT later."""
    stage.start()
    stage.watch(3)
    generation = stage.client.start_decoding(BOOK)
    stage.rest(8.0)
    stage.server.process.send_signal(19)
    stage.mark("stopped")
    stage.rest(80.0)
    stage.server.process.send_signal(18)
    stage.mark("continued")
    stage.rest(15.0)
    generation.close()
    stage.polls(3)


@scene("debugged", interval="2s")
def debugged(stage: Stage) -> None:
    """gdb holds it while it decodes."""
    stage.start()
    stage.watch(3)
    generation = stage.client.start_decoding(BOOK)
    stage.rest(8.0)
    stage.mark("stopped")
    gdb = ["gdb", "-p", str(stage.server.pid), "-nx", "-batch", "-iex", "set auto-solib-add off"]
    subprocess.run([*gdb, "-ex", "shell sleep 80"], capture_output=True, check=False, timeout=170)
    stage.mark("continued")
    stage.rest(15.0)
    generation.close()
    stage.polls(3)


@scene("frozen-cgroup-v2", interval="2s")
def frozen_v2(stage: Stage) -> None:
    """As a paused container: the group is frozen while it decodes, and thawed later."""
    with cgroup("unified") as group:
        stage.start(groups=(group,))
        _freeze(stage, group / "cgroup.freeze", "1", "0")


@scene("frozen-cgroup-v1", interval="1s")
def frozen_v1(stage: Stage) -> None:
    """The same with the freezer of old."""
    with cgroup("freezer") as group:
        stage.start(groups=(group,))
        _freeze(stage, group / "freezer.state", "FROZEN", "THAWED")


def _freeze(stage: Stage, switch: Path, on: str, off: str) -> None:
    stage.watch(3)
    generation = stage.client.start_decoding(BOOK)
    stage.rest(8.0)
    switch.write_text(on)
    stage.mark("stopped")
    stage.rest(80.0)
    switch.write_text(off)
    stage.mark("continued")
    stage.rest(15.0)
    generation.close()
    stage.polls(3)


@scene("quota-of-a-fifth", interval="2s")
def quota_of_a_fifth(stage: Stage) -> None:
    """20 % of a core for two threads: a long prefill, then tokens."""
    with cgroup("cpu", **QUOTA, cpu__cfs_quota_us="20000") as group:
        stage.start(threads=2)
        (group / "cgroup.procs").write_text(str(stage.server.pid))
        stage.watch(3)
        generation = stage.client.start(prompt_of(2600), 60)
        stage.rest(230.0)
        generation.close()
        stage.polls(3)


@scene("quota-of-a-fiftieth", interval="5s")
def quota_of_a_fiftieth(stage: Stage) -> None:
    """2 % of a core for two threads: a token in seconds."""
    with cgroup("cpu", **QUOTA, cpu__cfs_quota_us="2000") as group:
        stage.start(threads=2)
        stage.client.complete()
        (group / "cgroup.procs").write_text(str(stage.server.pid))
        stage.watch(3)
        generation = stage.client.start(prompt_of(60), 30)
        stage.rest(170.0)
        generation.close()
        stage.polls(3)


@scene("starved-watchdog", interval="2s")
def starved_watchdog(stage: Stage) -> None:
    """The watchdog does not run for 70 s, the server for a part of them neither, in mid-decode."""
    stage.start()
    stage.watch(3)
    generation = stage.client.start_decoding(BOOK)
    stage.rest(6.0)
    stage.server.process.send_signal(19)
    threading.Timer(55.0, stage.server.process.send_signal, (18,)).start()
    stage.recording.starve(70.0)
    stage.rest(15.0)
    generation.close()
    stage.polls(3)
