"""`exec`: where the server is, what is refused before it is started, and one whole life of it."""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from llama_watchdog.cli import main
from llama_watchdog.cli.exec import settings_of, url_of
from llama_watchdog.settings import ConfigError
from tests.support import llama_process

SERVER = "/usr/bin/llama-server"


@pytest.mark.parametrize(
    ("argv", "environ", "url"),
    [
        (["--port", "8081"], {}, "http://127.0.0.1:8081"),
        (["--port=8081", "--host=0.0.0.0"], {}, "http://127.0.0.1:8081"),
        (["--port", "8081", "--host", "::"], {}, "http://[::1]:8081"),
        (["--host", "10.0.0.7"], {"LLAMA_ARG_PORT": "8082"}, "http://10.0.0.7:8082"),
        ([], {"LLAMA_ARG_PORT": "8082", "LLAMA_ARG_HOST": "::1"}, "http://[::1]:8082"),
        (["--port", "8081"], {"LLAMA_ARG_PORT": "8082"}, "http://127.0.0.1:8081"),
        (["--host", "/run/llama/chat.sock"], {}, "unix:///run/llama/chat.sock"),
    ],
)
def test_the_url_is_told_from_the_servers_own_words(
    argv: list[str], environ: Mapping[str, str], url: str
) -> None:
    assert url_of([SERVER, *argv], environ) == url


@pytest.mark.parametrize("argv", [[], ["--host", "127.0.0.1"], ["--port", "0"], ["--port", "many"]])
def test_where_nothing_says_it_the_url_is_asked_for(argv: list[str]) -> None:
    with pytest.raises(ConfigError, match="--url: not said, nor is there a --port"):
        url_of([SERVER, *argv], {})


def given(argv: list[str], **flags: object) -> argparse.Namespace:
    return argparse.Namespace(
        **{"config": None, "url": None, "dry_run": False, "argv": ["--", SERVER, *argv]} | flags
    )


Configure = Callable[[str], Path]


@pytest.fixture
def configure(tmp_path: Path) -> Configure:
    def write(text: str) -> Path:
        path = tmp_path / "config.toml"
        path.write_text(text)
        return path

    return write


def test_a_url_that_is_given_is_the_one(configure: Configure) -> None:
    config = configure('[servers.chat]\nurl = "http://127.0.0.1:1234"\n')
    port = ["--port", "8081"]
    (flag,) = settings_of(given(port, url="http://[::1]:77"), {}).servers.values()
    (key,) = settings_of(given(port, config=config), {}).servers.values()
    assert (flag.url, key.url, key.name) == ("http://[::1]:77", "http://127.0.0.1:1234", "chat")


def test_who_runs_it_elsewhere_is_no_matter(configure: Configure) -> None:
    """A configuration that was written for the sidecar serves as well."""
    config = configure(
        '[servers.chat]\nunit = "llama-server.service"\n[servers.chat.stall]\nblocked = "9s"\n'
    )
    (server,) = settings_of(given(["--port", "8081"], config=config), {}).servers.values()
    assert (server.unit, server.url, server.stall.blocked) == ("", "http://127.0.0.1:8081", 9.0)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[servers.chat]\n[servers.code]\nurl = "http://127.0.0.1:9"\n', "several servers are configured"),
        ('[servers.chat.restart]\nvia = "none"\n', "restart.via: 'none' is not for exec"),
    ],
)
def test_a_configuration_that_is_not_for_exec(configure: Configure, text: str, line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        settings_of(given(["--port", "8081"], config=configure(text)), {})


# What is refused


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_WATCHDOG_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("LLAMA_ARG_PORT", raising=False)


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    code = main(["exec", *argv])
    told = capsys.readouterr()
    assert told.out == ""
    (line,) = told.err.splitlines()
    return code, line


@pytest.mark.parametrize(
    "argv", [[], ["--"], [SERVER, "--port", "8081"], ["--url", "http://127.0.0.1:1", SERVER]]
)
def test_without_a_command_behind_two_dashes(capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    code, line = refused(capsys, *argv)
    assert code == 2
    assert line == (
        "llama-watchdog: exec: the server's command is missing: llama-watchdog exec -- llama-server ARG…"
    )


@pytest.mark.parametrize(("mode", "code"), [(None, 127), (0o644, 126)])
def test_a_command_that_cant_be_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, mode: int | None, code: int
) -> None:
    """As a shell would have it."""
    program = tmp_path / "llama-server"
    if mode is not None:
        program.write_text("#!/bin/sh\n")
        program.chmod(mode)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # and doesn't listen
        port = str(free.getsockname()[1])
        status, line = refused(capsys, "--", str(program), "--port", port)
    assert status == code
    assert re.search(rf"{program}: [A-Z][a-z ]+: nothing is started", line)


def test_beside_another_server_nothing_is_started(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with llama_process.server() as other:
        started = ("touch", str(tmp_path / "started"), "--port", str(other.port))
        code, line = refused(capsys, "--", *started)
    who = f"{llama_process.NAME} (pid {other.pid})"
    assert line == f"llama-watchdog: port {other.port} is served by {who} already: nothing is started"
    assert code == 1
    assert not (tmp_path / "started").exists()


# One life


def test_a_server_lives_within_it(tmp_path: Path) -> None:
    """Ready once it serves, brought back, ended with its own status; in a process of its own."""
    where = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, socket.socket() as free:
        manager.bind(where)
        manager.settimeout(20)
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
        free.close()
        environ = {
            **os.environ,
            "NOTIFY_SOCKET": where,
            "LLAMA_WATCHDOG_DEFAULTS__PROBE__INTERVAL": "250ms",
            "LLAMA_WATCHDOG_LOG_FORMAT": "json",
        }
        simulator = [sys.executable, "-m", "llama_watchdog.simulator", "--threads", "0", "--port", port]
        ours = subprocess.Popen(
            [sys.executable, "-m", "llama_watchdog", "exec", "--", *simulator],
            env=environ,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_for(manager, "READY=1")
            (server,) = Path(f"/proc/{ours.pid}/task/{ours.pid}/children").read_text().split()
            os.kill(int(server), signal.SIGKILL)
            wait_for(manager, "STATUS=default: idle · started again 1×, last after exit status 137")
            ours.terminate()
            assert ours.wait(20) == 0
        finally:
            ours.kill()
            ours.wait()


def wait_for(manager: socket.socket, message: str) -> None:
    while manager.recv(65536).decode() != message:
        pass
