"""What scenes need of the machine: control groups of their own, and a disk that can be made slow."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.corpus.recording.stage import ON_DISK, Stage
from tests.e2e.ground.llama_root import MODEL, llama_root
from tests.e2e.ground.waiting import wait_until

CGROUPS = Path("/sys/fs/cgroup")
OWN_MODEL = "/mnt/model.gguf"  # a copy of the scene's own, whose pages can be dropped from the cache


@contextmanager
def cgroup(controller: str, **settings: str) -> Iterator[Path]:
    """A group of our own below that hierarchy (`unified`: version 2), removed in the end."""
    group = CGROUPS / controller / f"llama-watchdog-corpus.{os.getpid()}.{time.monotonic_ns()}"
    group.mkdir()
    try:
        for name, value in settings.items():
            (group / name.replace("__", ".")).write_text(value)
        yield group
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (CGROUPS / controller / "cgroup.procs").write_text(pid)
        with suppress(OSError):
            wait_until(lambda: not (group / "cgroup.procs").read_text(), 10.0, "the group to be empty")
            group.rmdir()


def own_copy(stage: Stage) -> None:
    """A copy of the model that nothing of is in the page cache."""
    mnt = stage.folder / "mnt"
    mnt.mkdir(exist_ok=True)
    shutil.copyfile(llama_root() / MODEL.lstrip("/"), mnt / "model.gguf")
    forget(stage)


def forget(stage: Stage) -> None:
    """Drop that copy from the page cache."""
    with (stage.folder / "mnt" / "model.gguf").open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def disk() -> str:
    """The disk that scenes are played on, as the blkio controller calls it."""
    number = ON_DISK.stat().st_dev
    return f"{os.major(number)}:{os.minor(number)}"
