"""A small disk of a folder's own inside a testbed, and what happens to disks.

Belongs here: mounting it, with what the folder holds; filling it, making it read-only, spoiling its files.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from tests.e2e.ground.testbed import Testbed

# The tree has no mount(8). <sys/mount.h>: TARGET FLAGS OPTIONS, or TARGET alone to take it away.
_MOUNT = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
target, *rest = sys.argv[1:]
if rest:
    failed = libc.mount(b"tmpfs", target.encode(), b"tmpfs", ctypes.c_ulong(int(rest[0])), rest[1].encode())
else:
    failed = libc.umount(target.encode())
if failed:
    sys.exit(f"{target}: {os.strerror(ctypes.get_errno())}")
"""
_RDONLY, _REMOUNT = 1, 32


class Disk:
    """`with Disk(testbed, folder) as disk`: in memory, with the folder's files, owner and mode."""

    def __init__(self, testbed: Testbed, folder: str, kib: int = 128) -> None:
        self._testbed = testbed
        self._folder = folder
        self._options = f"size={kib}k"

    def __enter__(self) -> Self:
        files = self._sh("tar --create . | base64")
        owner, group, mode = self._sh("stat --format='%u %g %a' .").split()
        self._options += f",uid={owner},gid={group},mode={mode}"
        self._mount("0", self._options)
        self._sh("base64 --decode | tar --extract", stdin=files)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._mount()

    def fill(self) -> None:
        """Not a byte is left."""
        self._sh("dd if=/dev/zero of=filler bs=1k 2>/dev/null || test -s filler")

    def make_read_only(self) -> None:
        """As the kernel does after an error. No file may be open for writing."""
        self._mount(str(_REMOUNT | _RDONLY), self._options)

    def spoil(self) -> None:
        """Garbage in place of what its databases began with."""
        self._sh("for file in *.db; do dd if=/dev/urandom of=$file bs=4k count=2 conv=notrunc; done")

    def _mount(self, *arguments: str) -> None:
        self._testbed.run("python3", "-", self._folder, *arguments, stdin=_MOUNT)

    def _sh(self, script: str, stdin: str | None = None) -> str:
        return self._testbed.run("sh", "-c", f'cd "$0" && {script}', self._folder, stdin=stdin).stdout
