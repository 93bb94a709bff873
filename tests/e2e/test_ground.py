"""The ground itself holds: the testbed shares nothing with this machine, and the wedges are what they say."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.e2e.ground import boot
from tests.e2e.ground.real_server import RealServer
from tests.e2e.ground.testbed import Testbed
from tests.e2e.ground.waiting import wait_until
from tests.e2e.ground.wedge import DECODE

MOUNTS = """\
89 47 0:54 / / rw,relatime - overlay overlay rw
90 89 0:57 / /proc rw,nosuid - proc proc rw
91 89 254:0 /usr /usr ro,relatime - ext4 /dev/vda rw
"""


def test_a_root_without_the_machines_files_may_boot() -> None:
    """A read-only mount of the machine is no danger."""
    boot.refuse_shared(MOUNTS)


@pytest.mark.parametrize(
    "mounts",
    [
        MOUNTS.replace("/usr ro,", "/home rw,"),
        MOUNTS.replace("overlay overlay", "ext4 /dev/vda"),
        MOUNTS.replace("/ / rw", "/ /mnt rw"),
    ],
    ids=["something of the machine is writable", "the root is the machine's", "no root"],
)
def test_a_root_that_could_harm_the_machine_does_not_boot(mounts: str) -> None:
    """The refusal comes before systemd could empty anything."""
    with pytest.raises(SystemExit, match="refusing to boot"):
        boot.refuse_shared(mounts)


def test_a_testbed_sees_and_leaves_nothing(tree: Path, tmp_path: Path) -> None:
    """Its /tmp is its own, its systemd sees only its own processes, and nothing of it remains."""
    (tmp_path / "precious").write_text("kept")
    before = _mounts()
    with Testbed(tree) as testbed:
        assert testbed.run("cat", "/proc/1/comm").stdout == "systemd\n"
        assert str(os.getpid()) not in testbed.run("ps", "-e", "-o", "pid").stdout.split()
        assert testbed.run("ls", str(tmp_path), check=False).returncode != 0
        testbed.run("sh", "-c", "rm -rf /tmp/* /usr/share/doc /models && systemd-tmpfiles --remove --create")
        assert (cgroup := testbed.cgroup).is_dir()
        assert _mounts() == before
    assert not cgroup.exists()
    assert (tmp_path / "precious").read_text() == "kept"
    assert (tree / "models").is_dir()
    with pytest.raises(RuntimeError, match="not up"):
        testbed.run("true")


def test_a_testbed_that_cannot_boot_says_why(tmp_path: Path) -> None:
    """Also then, nothing remains."""
    before = _mounts()
    testbed = Testbed(tmp_path)
    with pytest.raises(RuntimeError, match=r"did not come up(?s:.*)proc"):
        testbed.up(timeout=5)
    assert not testbed.cgroup.exists()
    assert _mounts() == before


@pytest.mark.parametrize(("mode", "state", "load"), [("block", "S", 0.0), ("spin", "R", 1.0)])
def test_a_wedge_is_what_it_says(real_server: RealServer, mode: str, state: str, load: float) -> None:
    """The main thread sleeps or spins, the counters stand, /health is fine, and SIGTERM is ignored."""
    stuck = real_server.client.start_decoding()
    real_server.wedge(mode, DECODE)
    decoded, cpu, began = real_server.client.decoded(), _cpu(real_server.pid), time.monotonic()
    time.sleep(1.0)
    used = (_cpu(real_server.pid) - cpu) / (time.monotonic() - began)
    assert real_server.client.decoded() == decoded
    assert real_server.client.healthy()
    assert _stat(real_server.pid)[0] == state
    assert load / 2 <= used <= load + 0.02  # a busy machine may give a spinning thread less than a whole core
    real_server.process.terminate()
    time.sleep(0.5)
    assert real_server.alive()
    assert not stuck.ended
    real_server.stop()
    wait_until(lambda: stuck.ended, 5.0, "the client to be told")


def test_an_idle_server_wedges_without_slots(real_server: RealServer) -> None:
    """/slots never answers again, /health does."""
    real_server.wedge("block")
    with pytest.raises(TimeoutError):
        real_server.client.slots()
    assert real_server.client.healthy()


def _mounts() -> str:
    return Path("/proc/self/mountinfo").read_text()


def _stat(pid: int) -> list[str]:
    """The main thread's line of /proc, from its state on."""
    return Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()


def _cpu(pid: int) -> float:
    """CPU seconds of the main thread."""
    return sum(map(int, _stat(pid)[11:13])) / os.sysconf("SC_CLK_TCK")
