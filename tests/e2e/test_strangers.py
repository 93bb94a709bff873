"""Processes that are not the server: never signalled, and the server is never judged by their stillness."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.ground import reborn
from tests.e2e.ground.events import actions, verdicts
from tests.e2e.ground.house import SERVER, House
from tests.e2e.ground.llama_client import LlamaClient, prompt_of
from tests.e2e.ground.real_server import RealServer, free_port
from tests.e2e.ground.waiting import stays_true, wait_until
from tests.e2e.ground.watchdog import running

CONFIG = """
[servers.chat]
url = "{url}"
{target}
[servers.chat.probe]
interval = "1s"
[servers.chat.stall]
blocked = "3s"
spinning = "3s"
down = "3s"
[servers.chat.restart]
via = "none"
"""
# A TCP forwarder, as docker-proxy, ssh -L or socat would be: `PORT TARGET`.
FORWARDER = """
import asyncio, sys
async def pump(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
async def serve(reader, writer):
    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[2]))
    await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer), return_exceptions=True)
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()
asyncio.run(main())
"""
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts processes that end with the test."""
    with ExitStack() as stack:

        def begin(*command: str) -> subprocess.Popen[bytes]:
            process = stack.enter_context(subprocess.Popen(command, stdin=subprocess.DEVNULL))
            stack.callback(process.kill)
            return process

        yield begin


def test_a_wrong_pid_file(real_server: RealServer, start: Start, tmp_path: Path) -> None:
    """The pid file names a stranger: no evidence, and nobody is signalled, though the server is wedged."""
    stranger = start("sleep", "1000")
    pid_file, config = tmp_path / "server.pid", tmp_path / "config.toml"
    pid_file.write_text(f"{stranger.pid}\n")
    config.write_text(CONFIG.format(url=real_server.url, target=f'pid_file = "{pid_file}"'))
    with running(tmp_path, "run", "--config", config) as watchdog:
        watchdog.wait_for(10, verdict="idle")
        real_server.wedge("block")
        alive = lambda: stranger.poll() is None and real_server.alive()
        stays_true(alive, 12.0, "both run")
        assert "wedged" not in verdicts(watchdog.events())
        assert actions(watchdog.events()) == []


def test_a_pid_that_another_process_has_now(real_server: RealServer, start: Start, tmp_path: Path) -> None:
    """The watched server dies, and before the next look its pid is a stranger's. The stranger lives on."""
    pid_file, config, pid = tmp_path / "server.pid", tmp_path / "config.toml", real_server.pid
    pid_file.write_text(f"{pid}\n")
    config.write_text(CONFIG.format(url=real_server.url, target=f'pid_file = "{pid_file}"'))
    with running(tmp_path, "run", "--config", config) as watchdog:
        watchdog.wait_for(10, verdict="idle")
        real_server.stop()
        stranger = ["setpriv", "--pdeathsig", "KILL", "sleep", "1000"]
        reuse = start(sys.executable, reborn.__file__, str(pid), *stranger)
        wait_until(lambda: _name(pid) == "sleep", 5.0, "the pid to be taken")
        watchdog.wait_for(15, verdict="down")
        stays_true(lambda: _name(pid) == "sleep", 12.0, "the stranger runs")
        told = [event for event in watchdog.events() if event["event"] == "action"]
        assert not [
            event for event in told if event["action"].startswith("sig") and event["outcome"] == "done"
        ]
        assert reuse.poll() is None


def test_a_port_that_a_proxy_serves(real_server: RealServer, start: Start, tmp_path: Path) -> None:
    """The proxy sleeps through a prefill: that is no standstill. Behind a real wedge, it is not signalled."""
    port = free_port()
    proxy = start(sys.executable, "-c", FORWARDER, str(port), str(real_server.port))
    user = LlamaClient(port)
    wait_until(user.healthy, 10.0, "the proxy to serve")
    config = tmp_path / "config.toml"
    config.write_text(CONFIG.format(url=f"http://127.0.0.1:{port}", target=""))
    with running(tmp_path, "run", "--config", config) as watchdog:
        watchdog.wait_for(10, verdict="idle")
        prefill = user.start(prompt_of(1900), n_predict=2)
        prefill.wait(90.0)
        assert prefill.error is None
        real_server.wedge("block")
        alive = lambda: proxy.poll() is None and real_server.alive()
        stays_true(alive, 12.0, "both run")
        assert not {"wedged", "down"} & set(verdicts(watchdog.events()))
        assert actions(watchdog.events()) == []


def test_a_unit_whose_main_process_is_a_shell(house: House) -> None:
    """The shell waits, the server in its unit works: that is work. A wedge of the server is still seen."""
    dropin = "[Service]\nExecStart=\nExecStart=/bin/sh -c '/usr/bin/llama-server & wait'\n"
    house.testbed.write(f"/run/systemd/system/{SERVER}.d/wrapper.conf", dropin)
    house.systemctl("daemon-reload")
    house.fresh(
        CONFIG.format(url="http://127.0.0.1:8080", target=f'unit = "{SERVER}"').replace("none", "auto")
    )
    house.wait_for(10, verdict="idle")
    shell, server = house.main_pid(), house.server_pid()
    assert shell != server

    house.client.start(prompt_of(1900), n_predict=2).wait(90.0)
    house.wait_for(10, verdict="busy")
    assert not {"suspect", "wedged"} & set(verdicts(house.events())), house.story()
    assert (house.main_pid(), house.server_pid()) == (shell, server)

    house.wedge("block")
    wait_until(house.client.serves, 40.0, "the server to serve again")
    assert house.starts() == 1, house.story()
    assert house.server_pid() not in (shell, server)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
