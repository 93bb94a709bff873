"""The real server while it loads: started within a control group, from a model that no memory holds yet."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.ground.llama_root import MODEL
from tests.e2e.ground.real_server import RealServer, free_port

# $0: the tree, $1: a folder that it sees as /mnt.
_ENTER = """
set -e
mount --bind "$0" "$0"
mount -o remount,bind,ro "$0"
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
mount -t tmpfs tmpfs "$0/tmp"
mount --bind "$1" "$0/mnt"
shift
exec chroot "$0" "$@"
"""
# $0: what to join a group by.
_JOIN = 'echo $$ >"$0" && exec "$@"'


@contextmanager
def loading(tree: Path, folder: Path, group: Path) -> Iterator[RealServer]:
    """A server that has just been started; it may not even listen yet. Ended in the end."""
    mnt = folder / "mnt"
    mnt.mkdir()
    _copy_to_disk(tree / MODEL.lstrip("/"), mnt / "model.gguf")
    port = free_port()
    llama = ["llama-server", "--model", "/mnt/model.gguf", "--host", "127.0.0.1", "--port", str(port)]
    llama += ["--threads", "1", "--ctx-size", "4096"]
    command = ["sh", "-c", _JOIN, str(group / "cgroup.procs"), "setpriv", "--pdeathsig", "KILL"]
    command += ["unshare", "--mount", "--propagation", "private", "--"]
    command += ["sh", "-c", _ENTER, str(tree), str(mnt), *llama]
    log = folder / "llama-server.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)
    server = RealServer(process, port, tree, log)
    try:
        yield server
    finally:
        server.stop()


def _copy_to_disk(source: Path, target: Path) -> None:
    """A copy of which nothing is left in the page cache."""
    shutil.copyfile(source, target)
    with target.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
