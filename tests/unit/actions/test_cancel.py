"""Closing clients' connections: by the real `ss` where this machine lets us, and each way it can refuse."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llama_watchdog.actions import cancel
from llama_watchdog.core.action import Done, Result

CAP_NET_ADMIN = 1 << 12
LISTING = "0 0 127.0.0.1:8080 127.0.0.1:41000\n0 0 [::ffff:127.0.0.1]:8080 [::ffff:127.0.0.1]:41001\n"


def effective_capabilities() -> int:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("CapEff:")[2].split()[0], 16)


needs_ss = pytest.mark.skipif(shutil.which("ss") is None, reason="no ss here")
needs_net_admin = pytest.mark.skipif(
    not effective_capabilities() & CAP_NET_ADMIN, reason="no CAP_NET_ADMIN here"
)


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """A listening socket: its backlog takes connections in, and nothing else is needed of a server."""
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listening:
        yield listening


class Client:
    """A connection that belongs to another process, as every real client's does."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        script = (
            f"import socket; c = socket.create_connection(({host!r}, {port}))\n"
            "print('connected', flush=True)\n"
            "try: c.recv(1)\n"
            "except ConnectionResetError: print('reset')"
        )
        self.process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.output = self.process.stdout
        assert self.output.readline() == "connected\n"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.output.close()


def close(port: int, timeout: float = 5.0) -> Result:
    return asyncio.run(cancel.close_clients(port, timeout=timeout))


def fake_ss(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """An `ss` of which `$*` are the arguments; what the real one was seen to say comes from the script."""
    tool = folder / "ss"
    tool.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@needs_ss
@needs_net_admin
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_every_client_gets_a_reset(server: socket.socket, host: str) -> None:
    port = server.getsockname()[1]
    with Client(port, host) as one, Client(port, host) as two:
        result = close(port)
        assert (one.output.readline(), two.output.readline()) == ("reset\n", "reset\n")
    assert result == Result(Done.DONE, "closed 2 connections")


@needs_ss
@needs_net_admin
def test_our_own_probes_are_left_alone_and_not_counted(server: socket.socket) -> None:
    port = server.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)) as probe, Client(port) as client:
        assert close(port) == Result(Done.DONE, "closed 1 connection")
        assert client.output.readline() == "reset\n"
        probe.setblocking(False)
        with pytest.raises(BlockingIOError):
            probe.recv(1)


@needs_ss
def test_only_our_own_probe_is_no_client(server: socket.socket) -> None:
    port = server.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)):
        assert close(port) == Result(Done.UNSUPPORTED, f"no client is connected to port {port}")


@needs_ss
def test_another_port_is_left_alone(server: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, Client(server.getsockname()[1]) as client:
        assert close(other.getsockname()[1]).outcome is Done.UNSUPPORTED
        assert client.process.poll() is None


@needs_ss
def test_ss_that_reads_proc_closes_nothing_and_is_not_believed(
    server: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it has no netlink, `ss -K` prints the connections as if closed. PROC_NET_TCP makes it do so."""
    monkeypatch.setenv("PROC_NET_TCP", "/proc/net/tcp")
    monkeypatch.setenv("PROC_NET_TCP6", "/proc/net/tcp6")
    with Client(server.getsockname()[1]) as client:
        result = close(server.getsockname()[1])
        assert client.process.poll() is None
    assert result.outcome is Done.UNSUPPORTED


@needs_ss
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a right to drop here")
def test_without_the_right_it_says_which_one(
    server: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real `ss`, and the real kernel's refusal."""
    fake_ss(tmp_path, monkeypatch, f'exec setpriv --bounding-set=-net_admin -- {shutil.which("ss")} "$@"')
    with Client(server.getsockname()[1]) as client:
        result = close(server.getsockname()[1])
        assert client.process.poll() is None
    assert result.outcome is Done.UNSUPPORTED
    assert "CAP_NET_ADMIN" in result.text


@pytest.mark.parametrize(
    ("killing", "said"),
    [
        pytest.param("echo 'SOCK_DESTROY answers: Operation not permitted' >&2", "CAP_NET_ADMIN", id="right"),
        pytest.param("", "CONFIG_INET_DIAG_DESTROY", id="kernel"),
        pytest.param("echo \"ss: invalid option -- 'K'\" >&2; exit 255", "invalid option", id="old ss"),
        pytest.param("echo 'SOCK_DESTROY answers: No buffer space available' >&2", "No buffer", id="other"),
    ],
)
def test_each_refusal_is_told_apart(
    killing: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_ss(tmp_path, monkeypatch, f"case $1 in *K) {killing} ;; *) printf '{LISTING}' ;; esac")
    result = close(8080)
    assert result.outcome is Done.UNSUPPORTED
    assert said in result.text
    assert "\n" not in result.text


@pytest.mark.parametrize(
    ("listing", "said"),
    [
        ("echo 'Cannot open netlink socket: Permission denied' >&2; exit 1", "netlink"),
        ("exit 0", "no client"),
    ],
)
def test_without_a_listing_nothing_is_closed(
    listing: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_ss(tmp_path, monkeypatch, f"case $1 in *K) touch {tmp_path}/killed ;; *) {listing} ;; esac")
    result = close(8080)
    assert result.outcome is Done.UNSUPPORTED
    assert said in result.text
    assert not (tmp_path / "killed").exists()


def test_without_ss_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = close(8080)
    assert result.outcome is Done.UNSUPPORTED
    assert "iproute2" in result.text


def test_a_hanging_ss_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_ss(tmp_path, monkeypatch, "exec sleep 60")
    result = close(8080, timeout=0.05)
    assert result.outcome is Done.FAILED
    assert "0.05 s" in result.text
