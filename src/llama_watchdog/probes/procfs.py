"""One process's folder in /proc: its files, read and parsed.

What belongs here is what the kernel says of one process, as it says it; not which process, nor what it means.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from llama_watchdog.core.observation import Thread

_TICK = 1.0 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SMALL = 16 * 1024
_LARGE = 1024 * 1024  # a command line or environment can hold whole chat templates
MAX_THREADS = 4096
_MAX_FDS = 16384


class Stat(NamedTuple):
    """/proc/PID/stat. Times in CPU seconds, of the whole process; `rss` in bytes."""

    comm: str
    state: str
    parent: int
    session: int  # the pid of its leader
    major_faults: int
    cpu: float
    start_ticks: int
    rss: int


class Io(NamedTuple):
    """/proc/PID/io: bytes that went to and from storage, the page cache's hits not counted."""

    read_bytes: int | None
    write_bytes: int | None


class ProcessFolder:
    """/proc/PID held open: once the process has ended reads fail, and none reaches the pid's next owner.

    Raises ProcessLookupError where there is no such process, or none that we may see.
    """

    def __init__(self, pid: int, root: str = "/proc") -> None:
        self.pid = pid
        try:
            self._fd = os.open(f"{root}/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ProcessLookupError(pid) from error

    def __enter__(self) -> ProcessFolder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def read(self, name: str, limit: int = _SMALL) -> bytes | None:
        """At most `limit` bytes of one file; None where it can't be read."""
        return _read(name, self._fd, limit)

    def stat(self) -> Stat:
        """Raises ProcessLookupError once the process has been reaped."""
        text = self.read("stat")
        if not text:
            raise ProcessLookupError(self.pid)
        comm = text[text.index(b"(") + 1 : text.rindex(b")")]
        f = text[text.rindex(b")") + 2 :].split()
        return Stat(
            comm=comm.decode(errors="replace"),
            state=f[0].decode(),
            parent=int(f[1]),
            session=int(f[3]),
            major_faults=int(f[9]),
            cpu=(int(f[11]) + int(f[12])) * _TICK,
            start_ticks=int(f[19]),
            rss=int(f[21]) * _PAGE,
        )

    def threads(self) -> tuple[Thread, ...] | None:
        """The first 4096 threads; None where they can't be listed.

        CPU seconds are the scheduler's nanoseconds where it keeps them (`schedstat`), else clock ticks.
        """
        try:
            task = os.open("task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._fd)
        except OSError:
            return None
        try:
            return tuple(_threads(task))
        except OSError:
            return None
        finally:
            os.close(task)

    def tracer(self) -> int:
        """The pid of the debugger that is attached, else 0."""
        found = re.search(rb"^TracerPid:\s*(\d+)", self.read("status") or b"", re.MULTILINE)
        return int(found[1]) if found else 0

    def users(self) -> frozenset[int]:
        """The real, effective, saved and file system uid."""
        found = re.search(rb"^Uid:\s*(.*)$", self.read("status") or b"", re.MULTILINE)
        return frozenset(int(uid) for uid in found[1].split()) if found else frozenset()

    def io(self) -> Io:
        """None for both without the right to read it."""
        text = self.read("io") or b""
        values = dict(re.findall(rb"^(read_bytes|write_bytes): (\d+)", text, re.MULTILINE))
        read, write = values.get(b"read_bytes"), values.get(b"write_bytes")
        return Io(None if read is None else int(read), None if write is None else int(write))

    def arguments(self) -> tuple[str, ...]:
        """The command line. It can hold an API key: for looking things up in, never for showing."""
        return _split(self.read("cmdline", _LARGE) or b"")

    def environment(self) -> dict[str, str] | None:
        """The environment it began with, as private as `arguments`; None without the right to read it."""
        text = self.read("environ", _LARGE)
        if text is None:
            return None
        return dict(entry.split("=", 1) for entry in _split(text) if "=" in entry)

    def program(self) -> str | None:
        """The base name of the executable, also of one that was replaced since; None without the right."""
        try:
            path = os.readlink("exe", dir_fd=self._fd)
        except OSError:
            return None
        return path.removesuffix(" (deleted)").rpartition("/")[2]

    def open_files(self) -> list[tuple[str, str]] | None:
        """Number and target of its open files, as ("3", "socket:[12]"); None without the right."""
        try:
            folder = os.open("fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._fd)
        except OSError:
            return None
        files = []
        try:
            for number in _names(folder)[:_MAX_FDS]:
                with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                    files.append((number, os.readlink(number, dir_fd=folder)))
        except OSError:
            return None
        finally:
            os.close(folder)
        return files

    def sockets(self) -> frozenset[int] | None:
        """Inodes of its open sockets; None without the right to know."""
        files = self.open_files()
        if files is None:
            return None
        return frozenset(int(target[8:-1]) for _, target in files if target.startswith("socket:["))


def pids() -> Iterator[int]:
    """Every process that we can see, but for ourselves."""
    own = os.getpid()
    for name in os.listdir("/proc"):  # noqa: PTH208 - names are enough
        if name.isdigit() and int(name) != own:
            yield int(name)


def _threads(task: int) -> Iterator[Thread]:
    for tid in _names(task)[:MAX_THREADS]:
        stat = _read(f"{tid}/stat", task, _SMALL)
        if not stat:
            continue  # ended meanwhile
        f = stat[stat.rindex(b")") + 2 :].split()
        run = (_read(f"{tid}/schedstat", task, _SMALL) or b"").split()
        nanoseconds = int(run[0]) if run else 0
        cpu = nanoseconds / 1e9 if nanoseconds else (int(f[11]) + int(f[12])) * _TICK
        yield Thread(int(tid), f[0].decode(), cpu)


def _names(folder: int) -> list[str]:
    return os.listdir(folder)


def _split(text: bytes) -> tuple[str, ...]:
    return tuple(part.decode(errors="replace") for part in text.rstrip(b"\0").split(b"\0") if text)


def _read(name: str, folder: int, limit: int) -> bytes | None:
    """At most `limit` bytes, in as many reads as the kernel wants; None where it can't be read."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    try:
        text = os.read(fd, min(limit, _SMALL))
        while limit > _SMALL and text and len(text) < limit:
            more = os.read(fd, limit - len(text))
            if not more:
                break
            text += more
    except OSError:
        return None
    finally:
        os.close(fd)
    return text
