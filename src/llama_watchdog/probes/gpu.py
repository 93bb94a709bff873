"""The GPU behind the server: its load, and how much of that is the server's own.

What belongs here is joining what the drivers tell: NVIDIA's by its library, the others by /proc and /sys.
"""

from __future__ import annotations

from functools import partial

from llama_watchdog.core.observation import Gpu, Outcome
from llama_watchdog.probes.gpu_drm import Drm
from llama_watchdog.probes.gpu_nvml import Nvml
from llama_watchdog.worker import StillBusyError, Worker


class GpuProbe:
    """Asks every driver that is here, in a thread of its own: a stuck driver can hang whoever asks.

    Then the outcome is TIMEOUT, and PENDING for as long as it lasts. UNSUPPORTED: nothing tells a load here.
    `own` None: this process's share can't be told, so `busy` is all there is: of the devices that it is known
    to be on, else the busiest of all.
    """

    def __init__(self, *, nvml: Nvml | None = None, drm: Drm | None = None, timeout: float = 2.0) -> None:
        self._nvml = nvml or Nvml()
        self._drm = drm or Drm()
        self._timeout = timeout
        self._worker = Worker("gpu")

    async def look(self, pid: int) -> Gpu:
        """The load since the last look, or over the driver's own last second."""
        try:
            return await self._worker.run(partial(self._look, pid), self._timeout)
        except StillBusyError:
            return Gpu(Outcome.PENDING)
        except TimeoutError:
            return Gpu(Outcome.TIMEOUT)
        except (OSError, ValueError):
            return Gpu(Outcome.ERROR)

    async def holds(self, pid: int) -> bool:
        """Whether a driver still books memory to a process that has ended; also where it doesn't answer."""
        try:
            look = await self._worker.run(partial(self._nvml.look, pid), self._timeout)
        except (StillBusyError, TimeoutError):
            return True
        except (OSError, ValueError):
            return False
        return look is not None and look.knows

    def _look(self, pid: int) -> Gpu:
        looks = [look for look in (self._nvml.look(pid), self._drm.look(pid)) if look is not None]
        if not looks:
            return Gpu(Outcome.UNSUPPORTED)
        # A driver that doesn't know the process tells only of its neighbours.
        told = [look.gpu for look in looks if look.knows] or [look.gpu for look in looks]
        return told[0] if len(told) == 1 else _join(*told)


def _join(one: Gpu, other: Gpu) -> Gpu:
    """A process on two drivers' devices works where either works, and idles where both are known to."""
    memory = [gpu.memory for gpu in (one, other) if gpu.memory is not None]
    return Gpu(
        Outcome.OK if one.outcome is other.outcome is Outcome.OK else Outcome.ERROR,
        busy=None if one.busy is None or other.busy is None else max(one.busy, other.busy),
        own=None if one.own is None or other.own is None else max(one.own, other.own),
        memory=sum(memory) if memory else None,
    )
