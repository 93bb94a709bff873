"""The GPUs of the kernel's own drivers, by trees as /proc and /sys show them."""

from __future__ import annotations

from pathlib import Path

import pytest

from llama_watchdog.core.observation import Gpu, Outcome
from llama_watchdog.probes.gpu_drm import Drm
from llama_watchdog.probes.gpu_look import GpuLook

PID = 4711
SECOND = 1_000_000_000

AMD = """\
pos:\t0
flags:\t02100002
drm-driver:\tamdgpu
drm-client-id:\t{client}
drm-pdev:\t0000:03:00.0
drm-memory-vram:\t1024 KiB
drm-resident-vram:\t1024 KiB
drm-memory-gtt: \t512 KiB
drm-engine-gfx:\t{busy} ns
drm-engine-compute:\t0 ns
"""
XE = """\
drm-driver:\txe
drm-client-id:\t7
drm-pdev:\t0000:04:00.0
drm-total-vram0:\t2 MiB
drm-resident-vram0:\t1 MiB
drm-cycles-ccs:\t{busy}
drm-total-cycles-ccs:\t{total}
drm-engine-capacity-ccs:\t2
"""


class Machine:
    """A /proc and a /sys, and the time in them in nanoseconds."""

    def __init__(self, root: Path) -> None:
        self.now = 0
        self.proc = root / "proc"
        self.sysfs = root / "sys"
        (self.proc / str(PID) / "fd").mkdir(parents=True)
        (self.proc / str(PID) / "fdinfo").mkdir()
        self.drm = Drm(proc=str(self.proc), sysfs=self.sysfs, clock=lambda: self.now)

    def opened(self, number: int, target: str, fdinfo: str = "pos:\t0\n") -> None:
        """The process has `target` open as `number`, and the kernel tells `fdinfo` of it."""
        link = self.proc / str(PID) / "fd" / str(number)
        if not link.is_symlink():
            link.symlink_to(target)
        (self.proc / str(PID) / "fdinfo" / str(number)).write_text(fdinfo)

    def tells(self, path: str, content: str) -> None:
        """A file in /sys."""
        file = self.sysfs / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)

    def look(self) -> Gpu:
        """The process, that must be known."""
        look = self.drm.look(PID)
        assert look is not None
        assert look.knows
        return look.gpu


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_processs_share_needs_two_looks(machine: Machine) -> None:
    machine.opened(5, "/dev/dri/renderD128", AMD.format(client=1, busy=5 * SECOND))
    assert machine.look() == Gpu(Outcome.OK, busy=None, own=None, memory=1536 * 1024)
    machine.now += 2 * SECOND
    machine.opened(5, "/dev/dri/renderD128", AMD.format(client=1, busy=6 * SECOND))
    assert machine.look() == Gpu(Outcome.OK, busy=None, own=0.5, memory=1536 * 1024)
    machine.now += 2 * SECOND
    assert machine.look().own == 0.0


def test_descriptors_of_one_client_are_counted_once(machine: Machine) -> None:
    for busy in (0, SECOND):
        for number in (5, 6):
            machine.opened(number, "/dev/dri/renderD128", AMD.format(client=1, busy=busy))
        machine.opened(7, "/dev/dri/renderD128", AMD.format(client=2, busy=busy))
        gpu = machine.look()
        machine.now += 4 * SECOND
    assert gpu.own == 0.5  # two clients, each a quarter of the time
    assert gpu.memory == 2 * 1536 * 1024


def test_engines_that_count_cycles(machine: Machine) -> None:
    machine.opened(5, "/dev/dri/renderD128", XE.format(busy=100, total=1000))
    machine.look()
    machine.now += 1  # no clock of ours is needed
    machine.opened(5, "/dev/dri/renderD128", XE.format(busy=600, total=2000))
    assert machine.look() == Gpu(
        Outcome.OK, busy=None, own=0.25, memory=1024 * 1024
    )  # two engines by one name


def test_the_load_of_the_processs_own_device(machine: Machine) -> None:
    machine.opened(5, "/dev/dri/renderD128", AMD.format(client=1, busy=0))
    machine.tells("bus/pci/devices/0000:03:00.0/gpu_busy_percent", "35\n")
    machine.tells("class/drm/card1/device/gpu_busy_percent", "99\n")
    assert machine.look().busy == 0.35
    machine.opened(6, "/dev/dri/renderD129", XE.format(busy=0, total=1))
    assert machine.look().busy is None  # Intel's doesn't tell: it may be the busier one


def test_a_rocm_process_works_past_the_counters(machine: Machine) -> None:
    """Its compute queues are not in fdinfo, so that its share of 0 there would be a lie."""
    machine.opened(5, "/dev/dri/renderD128", AMD.format(client=1, busy=0))
    machine.opened(6, "/dev/kfd")
    machine.tells(f"class/kfd/kfd/proc/{PID}/vram_1234", "8589934592\n")
    machine.tells("bus/pci/devices/0000:03:00.0/gpu_busy_percent", "100\n")
    for _ in range(2):
        assert machine.look() == Gpu(Outcome.OK, busy=1.0, own=None, memory=8589934592)
        machine.now += SECOND


def test_rocm_tells_of_a_process_whose_files_we_may_not_read(machine: Machine) -> None:
    machine.tells(f"class/kfd/kfd/proc/{PID}/vram_1234", "1000\n")
    machine.tells("class/drm/card0/device/gpu_busy_percent", "3\n")
    assert machine.look() == Gpu(Outcome.OK, busy=0.03, own=None, memory=1000)


def test_of_an_unknown_process_only_the_busiest_device_is_told(machine: Machine) -> None:
    machine.tells("class/drm/card0/device/gpu_busy_percent", "3\n")
    machine.tells("class/drm/card1/device/gpu_busy_percent", "40\n")
    assert machine.drm.look(PID) == GpuLook(Gpu(Outcome.OK, busy=0.4), knows=False)


@pytest.mark.parametrize("opened", [[], [("/dev/null", "pos:\t0\n")], [("/dev/dri/renderD128", "pos:\t0\n")]])
def test_where_no_driver_tells_anything(opened: list[tuple[str, str]], machine: Machine) -> None:
    """The last as with NVIDIA's own driver, which has such a device but no counters."""
    for number, (target, text) in enumerate(opened):
        machine.opened(number, target, text)
    assert machine.drm.look(PID) is None


def test_another_process_is_not_measured_against_the_last_one(machine: Machine) -> None:
    machine.opened(5, "/dev/dri/renderD128", AMD.format(client=1, busy=0))
    machine.look()
    machine.now += SECOND
    (machine.proc / str(PID)).rename(machine.proc / "4712")
    look = machine.drm.look(4712)
    assert look is not None
    assert look.gpu.own is None


def test_a_process_that_has_ended(machine: Machine) -> None:
    assert machine.drm.look(1) is None
