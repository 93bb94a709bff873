"""`doctor`: what it prints, and its exit code."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from llama_watchdog import privileges
from llama_watchdog.cli import doctor, main
from llama_watchdog.doctor.finding import Finding, missing, ok, unknown
from llama_watchdog.settings import Settings

FINE = ok("state", "", "/var/lib/llama-watchdog can be written")
SLIGHT = missing("io", "chat", "its reads can't be seen", "UNIT, [Service]: CAP", matters=False)
DOWN = unknown("sigkill", "chat", "not to be tried: the server is down")
LACK = missing("restart", "chat", "no right", 'rules: if (x["y"]) [z];')


@pytest.fixture(autouse=True)
def dropped(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Noted and not done: this process is to keep what it has."""
    drops: list[str] = []
    monkeypatch.setattr(privileges, "drop_ambient", lambda: drops.append("ambient"))
    return drops


def told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], found: list[Finding], *argv: str
) -> tuple[int, str]:
    async def examine(_settings: Settings) -> list[Finding]:
        await asyncio.sleep(0)
        return found

    monkeypatch.setattr(doctor, "examine", examine)
    code = main(["doctor", *argv])
    told = capsys.readouterr()
    assert told.err == ""
    return code, told.out


@pytest.mark.parametrize(
    ("found", "code"),
    [([FINE], 0), ([FINE, SLIGHT], 0), ([FINE, DOWN], 3), ([FINE, DOWN, LACK], 1), ([FINE, SLIGHT, LACK], 1)],
)
def test_the_exit_code_is_that_of_the_worst_that_matters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], found: list[Finding], code: int
) -> None:
    assert told(monkeypatch, capsys, found)[0] == code
    assert told(monkeypatch, capsys, found, "--json")[0] == code


def test_for_people(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A remedy is a line to be copied: neither wrapped nor taken for markup."""
    _, out = told(monkeypatch, capsys, [FINE, SLIGHT, DOWN, LACK])
    assert out.splitlines() == [
        "state    ok       /var/lib/llama-watchdog can be written",
        "",
        "chat",
        "io       missing  its reads can't be seen",
        "                  UNIT, [Service]: CAP",
        "sigkill  unknown  not to be tried: the server is down",
        "restart  missing  no right",
        '                  rules: if (x["y"]) [z];',
    ]


def test_as_json_a_line_a_check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], dropped: list[str]
) -> None:
    _, out = told(monkeypatch, capsys, [FINE, LACK], "--json")
    assert [json.loads(line) for line in out.splitlines()] == [
        {"check": "state", "server": "", "outcome": "ok", "text": FINE.text, "remedy": ""},
        {
            "check": "restart",
            "server": "chat",
            "outcome": "missing",
            "text": "no right",
            "remedy": LACK.remedy,
        },
    ]
    assert dropped == ["ambient"]


def test_a_bad_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[servers.chat]\nurl = 'ftp://x'\n")
    assert main(["doctor", "--config", str(config)]) == 2
    assert "url" in capsys.readouterr().err


def test_a_real_look_at_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.toml"
    config.write_text(
        f'state_dir = "{tmp_path}"\ndry_run = true\n[servers.chat]\nurl = "http://127.0.0.1:9"\n'
    )
    assert main(["doctor", "--config", str(config)]) == 1
    out = capsys.readouterr().out
    assert "process  unknown  the server is down: nothing listens on port 9" in out
    assert "restart  missing  left to whoever started it" in out
