"""pause, resume and release: what is said, and what the daemon will read."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from llama_watchdog.cli import main
from llama_watchdog.store import Wish, Wishes

TARGET = "127.0.0.1 port 9"


class Admin:
    """One who runs commands, and a look at what the daemon reads of them."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.config = folder / "config.toml"
        self.state = folder / "state"
        self.state.mkdir()
        self._capsys = capsys
        self.config.write_text(
            f'state_dir = "{self.state}"\n[servers.chat]\nurl = "http://localhost:9"\n'
            '[servers.code]\nurl = "http://127.0.0.1:10"\n'
        )

    def run(self, *words: str) -> tuple[int, str]:
        code = main([*words, "--config", str(self.config)])
        said = self._capsys.readouterr()
        return code, (said.out + said.err).strip()

    def read(self) -> dict[str, Wish]:
        async def read() -> dict[str, Wish]:
            wishes = Wishes(self.state, lambda _line: None)
            try:
                return await wishes.read()
            finally:
                await wishes.close()

        return asyncio.run(read())


@pytest.fixture
def admin(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Admin:
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    return Admin(tmp_path, capsys)


def test_a_pause_lasts_until_it_is_resumed(admin: Admin) -> None:
    code, said = admin.run("pause", "chat")
    assert code == 0
    assert said == (
        "chat: hands off until it is resumed (llama-watchdog resume chat ends it); "
        "no watchdog is at work on it now"
    )
    pause = admin.read()[TARGET].pause
    assert pause is not None
    assert pause.until is None

    assert admin.run("resume", "chat")[1].startswith("chat: hands on again")
    assert admin.read() == {}
    assert admin.run("resume", "chat")[1].startswith("chat: was not paused")


def test_a_pause_for_a_while(admin: Admin) -> None:
    code, said = admin.run("pause", "chat", "30m")
    assert code == 0
    assert "hands off until " in said
    pause = admin.read()[TARGET].pause
    assert pause is not None
    assert pause.left is not None
    assert 1790 < pause.left <= 1800


def test_a_release_is_one_wish_of_one_server(admin: Admin) -> None:
    code, said = admin.run("release", "code")
    assert code == 0
    assert "a hold is lifted" in said
    assert list(admin.read()) == ["127.0.0.1 port 10"]


def test_a_server_that_is_not_configured_is_said_in_one_line(admin: Admin) -> None:
    code, said = admin.run("pause", "nobody")
    assert code == 2
    assert said == "llama-watchdog: NAME: nobody is no server of the configuration; there are: chat, code"


def test_a_time_that_is_none_is_a_matter_of_usage(admin: Admin) -> None:
    with pytest.raises(SystemExit) as end:
        admin.run("pause", "chat", "soon")
    assert end.value.code == 2


def test_a_wish_that_cannot_be_kept_is_a_failure(admin: Admin) -> None:
    """The daemon would never hear of it."""
    admin.state.rmdir()
    code, said = admin.run("pause", "chat")
    assert code == 1
    assert str(admin.state) in said
    assert len(said.splitlines()) == 1


def test_the_wish_goes_to_where_the_running_watchdog_looks(admin: Admin, tmp_path: Path) -> None:
    """With exec and notify each unit has a state directory of its own."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    admin.config.write_text('[servers.chat]\nurl = "http://localhost:9"\n')
    script = (
        "import sys, time; from llama_watchdog.lock import TargetLock; lock = TargetLock(sys.argv[1]);"
        "print(lock.take() or 'mine', flush=True); time.sleep(60)"
    )
    environ = {**os.environ, "STATE_DIRECTORY": str(theirs)}
    command = [sys.executable, "-c", script, TARGET]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as watchdog:
        assert watchdog.stdout is not None
        assert watchdog.stdout.readline() == "mine\n"
        code, said = admin.run("pause", "chat")
        watchdog.kill()
    assert code == 0
    assert "no watchdog" not in said
    assert (theirs / "wishes.db").exists()
