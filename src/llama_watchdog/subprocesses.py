"""Other programs, run once with a bound on their time and on what is kept of their output.

What belongs here is how a program is started, read and ended; never which program, nor what its answer means.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from llama_watchdog import privileges

_DATAGRAM = 256 * 1024  # more than one write can carry: net.core.wmem_default is 208 KiB
_LEFTOVERS = 1024  # datagrams read after the end: net.unix.max_dgram_qlen is 10, and with systemd 512
_REAP_SECONDS = 1.0


# What our own service manager, and whoever configured us, told us alone: a program that is started by us must
# not speak in our name (WATCHDOG=1, READY=1), nor see our keys.
_OURS = ("NOTIFY_SOCKET", "WATCHDOG_", "LISTEN_", "LLAMA_WATCHDOG_")

_spawning: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Finished:
    """How a program ended. `code` is its exit status, minus the signal that ended it, or None: out of time.

    `out` and `err` are the last part of its two outputs, undecodable bytes replaced.
    """

    code: int | None
    out: str
    err: str


async def run(
    argv: Sequence[str],
    *,
    timeout: float,  # noqa: ASYNC109 - kills, then returns
    keep: int = 64 * 1024,
    capability: str = "",
) -> Finished:
    """Run `argv` (no shell, nothing on standard input) for at most `timeout` seconds.

    Of our capabilities it gets `capability` alone, where we have it, and of our environment nothing that is
    meant for us only. Ends with the program itself: whatever it leaves running in the background is neither
    waited for nor ended. Out of time, or cancelled, its whole process group is killed. Of each output the
    last `keep` bytes are kept. Raises OSError where it can't be started.
    """
    with _Tail(keep) as out, _Tail(keep) as err:
        process = await start(
            argv, stdout=out.theirs.fileno(), stderr=err.theirs.fileno(), capability=capability
        )
        code: int | None = None
        try:
            async with asyncio.timeout(timeout):
                code = await process.wait()
        except TimeoutError:
            pass
        finally:
            if process.returncode is None:
                await _kill_group(process)
        return Finished(code, out.text(), err.text())


async def start(
    argv: Sequence[str],
    *,
    stdout: int | None = None,
    stderr: int | None = None,
    capability: str = "",
    environ: Mapping[str, str] | None = None,
) -> asyncio.subprocess.Process:
    """Start `argv` in a session of its own; outputs are ours where no file is given. As `run` otherwise.

    `environ`: what it gets, in place of what of ours is for all. Raises OSError where it can't be started.
    """
    # One at a time: what is started meanwhile would inherit the capability, too.
    async with _spawning.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        with privileges.ambient(capability) if capability else contextlib.nullcontext():
            return await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                env=environment() if environ is None else environ,
            )


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What a program started by us gets of our environment."""
    return {name: value for name, value in environ.items() if not name.startswith(_OURS)}


async def _kill_group(process: asyncio.subprocess.Process) -> None:
    """Kill the process and its group; one that the kernel won't let die is not waited for."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_REAP_SECONDS):
            await process.wait()


class _Tail:
    """Reads one output as it comes and keeps its end.

    A datagram socket and no pipe, since a program may leave a daemon behind that still holds it. Once nobody
    reads, a pipe would end that daemon with SIGPIPE; here its writes merely fail. As under systemd, a socket
    can't be opened again as /dev/stderr; and one write of more than net.core.wmem_default (208 KiB) fails.
    """

    def __init__(self, keep: int) -> None:
        self._ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ours.setblocking(False)
        self._keep = keep
        self._bytes = bytearray()

    def __enter__(self) -> _Tail:
        asyncio.get_running_loop().add_reader(self._ours, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._ours)
        self._ours.close()
        self.theirs.close()

    def _read(self) -> bool:
        """Take one datagram; False where none is waiting."""
        try:
            self._bytes += self._ours.recv(_DATAGRAM)
        except OSError:
            return False
        del self._bytes[: -self._keep]
        return True

    def text(self) -> str:
        """The end of what was written until now."""
        for _ in range(_LEFTOVERS):
            if not self._read():
                break
        return self._bytes.decode(errors="replace")
