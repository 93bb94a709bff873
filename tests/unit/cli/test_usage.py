"""The command line as a whole: usage, versions, readers that leave, disks that are full."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from llama_watchdog import __version__
from llama_watchdog.cli import main

NOBODY = "http://127.0.0.1:9"  # nobody listens there


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one line with which a command line is refused."""
    try:
        code: object = main(argv)
    except SystemExit as ended:
        code = ended.code
    told = capsys.readouterr()
    assert code == 2
    assert told.out == ""
    (line,) = told.err.splitlines()
    return line


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "required: COMMAND"),
        (["watch"], "invalid choice: 'watch'"),
        (["check", "--frobnicate"], "unrecognized arguments: --frobnicate"),
        (["check", "--watch", "soon"], "--watch: 'soon' is no duration"),
        (["check", "--url", ""], "--url: must begin with http://"),
        (["check", "--url", "localhost:8080"], "--url: must begin with http://"),
        (["check", "--unit", "a.socket"], "--unit: 'a.socket' is not a service"),
        (["run", "--url", "http://user:secret@127.0.0.1"], "--url: may hold no credentials"),
        (["run", "--config", "/no/such/file"], "/no/such/file"),
        (["record"], "-o"),
        (["record", "-o", "trace", "--for", "soon"], "--for: 'soon' is no duration"),
        (["replay"], "required: TRACE"),
    ],
)
def test_a_command_line_that_cannot_be_used_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str], argv: list[str], words: str
) -> None:
    line = refused(capsys, *argv)
    assert line.startswith("llama-watchdog")
    assert words in line
    assert "secret" not in line


def test_every_problem_of_a_configuration_has_a_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text('dry_rum = true\n[servers.chat]\nurl = "x"\nstall.blocked = "soon"\n')
    assert main(["run", "--config", str(config)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith(f"llama-watchdog: {config}: ") for line in lines)
    for key in ("dry_rum", "servers.chat.url", "servers.chat.stall.blocked"):
        assert any(key in line for line in lines)


def test_a_key_file_that_cannot_be_read_is_found_before_anything_is_watched(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'state_dir = "{tmp_path}"\n[servers.chat]\napi_key_file = "{tmp_path}/none"\n')
    for command in (["run"], ["check"], ["record", "-o", str(tmp_path / "trace")]):
        assert main([*command, "--config", str(config)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{tmp_path}/none: servers.chat.api_key_file: " in line
    assert not (tmp_path / "trace").exists()


def command(*argv: str, stdout: int) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "llama_watchdog", *argv],
        stdout=stdout,
        stderr=subprocess.PIPE,
        timeout=20,
        check=False,
    )


def test_it_says_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"llama-watchdog {__version__}\n"


def test_a_reader_that_has_gone_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ended = command("check", "--url", NOBODY, stdout=writing)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_full_disk_behind_the_output_is_told_in_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        ended = command("check", "--url", NOBODY, "--json", stdout=full.fileno())
    assert (ended.returncode, ended.stderr) == (1, b"llama-watchdog: No space left on device\n")
