"""What the end-to-end tests share: the tree, servers on this machine, a machine of its own with systemd.

They need root, Linux on x86-64, and the tools that `.ci/run` installs. Where these are missing they are
skipped with the reason, but never in CI.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.ground import package
from tests.e2e.ground.house import House
from tests.e2e.ground.llama_root import llama_root
from tests.e2e.ground.real_server import RealServer, StartServer, start_server
from tests.e2e.ground.testbed import Testbed


def _missing() -> str:
    if platform.machine() != "x86_64" or sys.platform != "linux":
        return "the wedge is written in x86-64 code"
    if os.geteuid() != 0:
        return "needs root: namespaces, ptrace, systemd"
    tools = ("mmdebstrap", "unshare", "nsenter", "setpriv", "ss")
    return " ".join(f"{tool} is not installed" for tool in tools if shutil.which(tool) is None)


@pytest.fixture(scope="session")
def tree() -> Path:
    """The folder with Debian sid, the real llama-server and the model. Only ever read."""
    if reason := _missing():
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return llama_root()


@pytest.fixture
def server_factory(tree: Path, tmp_path: Path) -> Iterator[StartServer]:
    """Starts real servers on this machine, with options of the test's own; all end with the test."""
    servers: list[RealServer] = []

    def start(*options: str, port: int | None = None, env: dict[str, str] | None = None) -> RealServer:
        log = tmp_path / f"llama-server-{len(servers)}.log"
        servers.append(start_server(tree, log, *options, port=port, env=env))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def real_server(server_factory: StartServer) -> RealServer:
    """One real server on this machine."""
    return server_factory()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """llama-watchdog of this checkout as it would be published."""
    return package.build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def testbed(tree: Path, wheel: Path) -> Iterator[Testbed]:
    """A real systemd with llama-watchdog installed."""
    with Testbed(package.dependency_layer(tree), tree) as bed:
        package.install(bed, wheel)
        yield bed


@pytest.fixture(scope="module")
def house(testbed: Testbed) -> House:
    """Debian's llama-server.service and llama-watchdog.service in it, both still to be started."""
    return House(testbed)
