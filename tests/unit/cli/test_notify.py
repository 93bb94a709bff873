"""`notify`: which server it takes itself to stand beside, what it refuses, and that it leaves no trace."""

from __future__ import annotations

import argparse
import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llama_watchdog import log, signals
from llama_watchdog.cli import main as command
from llama_watchdog.cli import notify as room
from llama_watchdog.core.policy import Rung
from llama_watchdog.settings import ConfigError
from llama_watchdog.supervisors.trigger import Trigger

UNIT = "chat.service"
URL = "http://127.0.0.1:9"  # nobody listens there
LISTENS = (
    "import socket, time; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); "
)


@pytest.fixture
def main() -> Iterator[subprocess.Popen[bytes]]:
    """The unit's main process."""
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        yield process
        process.kill()


@pytest.fixture
def manager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, main: subprocess.Popen[bytes]
) -> Iterator[socket.socket]:
    """Where systemd listens, and what it tells an ExecStartPost=."""
    where = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", where)
    monkeypatch.setenv("MAINPID", str(main.pid))
    monkeypatch.setattr(log, "_output", None)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(where)
        listening.setblocking(False)
        yield listening


def configured(folder: Path, text: str) -> Path:
    path = folder / "config.toml"
    path.write_text(f'state_dir = "{folder}"\n{text}', encoding="utf-8")
    return path


def options(config: Path, *, url: str | None = None, dry_run: bool = False) -> argparse.Namespace:
    return argparse.Namespace(config=config, url=url, dry_run=dry_run)


def trigger_of(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> Trigger:
    identity = signals.identify(process.pid)
    assert identity is not None
    return Trigger(identity, None, trigger=bool, complain=print)


# What is refused, in the foreground


@pytest.mark.parametrize(
    ("environ", "text", "said"),
    [
        ({"NOTIFY_SOCKET": ""}, "", "NOTIFY_SOCKET is not set: the server's unit needs NotifyAccess=all"),
        ({"MAINPID": ""}, "", "MAINPID is not set: to be started by ExecStartPost="),
        ({"MAINPID": "4194305"}, "", "has already ended"),  # above the kernel's largest
        ({}, "dry_rum = true", "dry_rum"),
        ({}, "[servers.a]\n[servers.b]\nurl = 'http://127.0.0.1:9'", 'Of a, b one needs unit = "'),
        ({}, "[servers.a]\napi_key_file = '/no/key'", "/no/key: servers.a.api_key_file"),
    ],
)
def test_what_cannot_be_watched_is_said_in_one_line(
    manager: socket.socket,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    environ: dict[str, str],
    text: str,
    said: str,
) -> None:
    assert manager
    monkeypatch.setattr(os, "fork", pytest.fail)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert command(["notify", "--config", str(configured(tmp_path, text))]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("llama-watchdog: ")
    assert said in line


def test_the_start_of_the_unit_is_not_held_up(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And what is started from here on has nowhere to speak for the service."""
    assert manager
    monkeypatch.setattr(os, "fork", lambda: 4711)
    assert command(["notify", "--config", str(configured(tmp_path, ""))]) == 0
    assert "NOTIFY_SOCKET" not in os.environ


# Which server


@pytest.mark.parametrize(
    ("cgroup", "group"),
    [
        ("0::/system.slice/chat.service\n", "/system.slice/chat.service"),
        ("0::/system.slice/chat.service/.control\n", "/system.slice/chat.service"),
        ("1:name=systemd:/\n0::/system.slice/chat.service\n", "/system.slice/chat.service"),
        ("4:cpu:/\n1:name=systemd:/system.slice/chat.service\n", "/system.slice/chat.service"),
        (
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/chat.service\n",
            "/user.slice/user-1000.slice/user@1000.service/app.slice/chat.service",
        ),
        ("0::/\n", None),
        ("0::/user.slice/session-1.scope\n", None),
    ],
)
def test_the_unit_is_the_one_that_we_are_in(tmp_path: Path, cgroup: str, group: str | None) -> None:
    (tmp_path / "cgroup").write_text(cgroup)
    assert room.own_group(tmp_path / "cgroup") == group


TWO = '[servers.a]\nurl = "http://127.0.0.1:81"\n[servers.b]\nurl = "http://127.0.0.1:82"\n'


@pytest.mark.parametrize(
    ("text", "unit", "name"),
    [
        ("", UNIT, "default"),
        ("", "", "default"),
        ("[servers.a]", UNIT, "a"),
        (f"{TWO}unit = '{UNIT}'", UNIT, "b"),
        (f"{TWO}unit = 'other.service'", UNIT, "a"),
    ],
)
def test_the_server_is_that_of_our_unit(tmp_path: Path, text: str, unit: str, name: str) -> None:
    settings = room.settings_of(options(configured(tmp_path, text)), unit)
    assert list(settings.servers) == [name]


@pytest.mark.parametrize("text", ["[servers.a]\nunit = 'other.service'", TWO])
def test_another_units_server_is_not_ours(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=rf'config.toml: which server .*unit = "{UNIT}"'):
        room.settings_of(options(configured(tmp_path, text)), UNIT)


@pytest.mark.parametrize(
    ("text", "flag", "found", "url"),
    [
        ("", None, None, "http://127.0.0.1:8080"),
        ("", None, URL, URL),
        ("[servers.a]\nurl = 'http://127.0.0.1:81'", None, URL, "http://127.0.0.1:81"),
        ("[servers.a]\nurl = 'http://127.0.0.1:81'", "http://LOCALHOST:82/", URL, "http://localhost:82"),
    ],
)
def test_the_url_is_the_flags_then_the_configurations_then_the_servers_own(
    tmp_path: Path, text: str, flag: str | None, found: str | None, url: str
) -> None:
    settings = room.settings_of(options(configured(tmp_path, text), url=flag), UNIT, found)
    (server,) = settings.servers.values()
    assert server.url == url


def test_a_url_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--url: must begin with"):
        room.settings_of(options(configured(tmp_path, ""), url="x"), UNIT)


def test_there_is_no_rung_below_the_restart(tmp_path: Path) -> None:
    """The server's processes are systemd's to end; a configuration for `run` may say otherwise."""
    text = "[servers.a]\npid_file = '/run/a.pid'\n[servers.a.restart]\nvia = 'command'\ncommand = ['x']\n"
    (server,) = room.settings_of(options(configured(tmp_path, text), dry_run=True), UNIT).servers.values()
    assert server.policy().escalation.ladder == ()
    assert Rung.SIGTERM not in server.escalation.ladder
    assert (server.restart.via, server.pid_file) == ("auto", None)


def test_whoever_wants_no_restart_gets_none(tmp_path: Path) -> None:
    text = "[servers.a.restart]\nvia = 'none'"
    (server,) = room.settings_of(options(configured(tmp_path, text)), UNIT).servers.values()
    assert server.restart.via == "none"


# Where it serves


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_server_shows_where_it_serves(wrapped: bool) -> None:
    """Also where the unit's main process is a wrapper around it."""
    server = [sys.executable, "-c", LISTENS + "time.sleep(60)"]
    wrapper = ["/bin/sh", "-c", '"$@"; exit', "sh"] if wrapped else []
    with subprocess.Popen(
        [*wrapper, *server], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        trigger = trigger_of(process)
        name = Path(sys.executable).resolve().name
        assert room._look_for_url(trigger, name) == f"http://127.0.0.1:{port}"
        assert room._look_for_url(trigger, "llama-server") is None
        os.killpg(process.pid, signal.SIGKILL)


def test_a_unit_that_ends_before_it_serves_is_not_waited_for(
    main: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    trigger = trigger_of(main)
    main.kill()
    main.wait()
    asked = options(configured(tmp_path, ""))
    assert asyncio.run(room.watch(asked, room.settings_of(asked, ""), trigger)) == 0


# In the background


def test_it_watches_in_silence_and_ends_with_the_main_process(
    manager: socket.socket, main: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """Whatever it said to systemd, the service would have said."""
    config = configured(tmp_path, f"[servers.a]\nurl = '{URL}'\nprobe.interval = '250ms'\n")
    with subprocess.Popen(
        [sys.executable, "-m", "llama_watchdog", "notify", "--config", str(config)], stderr=subprocess.PIPE
    ) as foreground:
        assert foreground.stderr is not None
        assert foreground.wait(timeout=20) == 0
        lines = read(foreground.stderr.fileno(), until='"event":"verdict"')
        assert f"watching a at {URL}" in lines
        main.kill()
        main.wait()
        lines = read(foreground.stderr.fileno())  # to its end: nobody has the pipe open any more
    assert "the main process of its unit has ended: what follows is systemd's" in lines
    assert "error of our own" not in lines
    with pytest.raises(BlockingIOError):
        manager.recv(4096)


def read(pipe: int, until: str | None = None) -> str:
    """What comes out of it by then, or to its end."""
    text = b""
    while until is None or until.encode() not in text:
        ready, _, _ = select.select([pipe], [], [], 20.0)
        assert ready, f"nothing more after: {text.decode()}"
        part = os.read(pipe, 65536)
        if not part:
            break
        text += part
    return text.decode()
