"""`replay`: traces judged in no time, and what is no trace told in one line."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llama_watchdog.cli import main
from llama_watchdog.cli import replay as room
from llama_watchdog.core.observation import Outcome, Slots
from llama_watchdog.core.pace import Learned
from llama_watchdog.core.policy import Policy, StallPolicy
from llama_watchdog.core.trace import Header, header_line, poll_line
from tests.support.facts import CPU_SERVER, seen


def trace_lines(*, policy: Policy | None = None) -> Iterator[str]:
    """Idle for 20 s, then a slot that stands still for 50 s."""
    yield header_line(Header(CPU_SERVER, policy or Policy(), Learned()), recorded="2026-11-30T15:00:00Z")
    for n in range(15):
        token = [{"n_decoded": 30, "n_remain": -1}]
        body = [{"id": 0, "is_processing": n > 3, "id_task": 1, "next_token": token}]
        yield poll_line(seen(5.0 * n, slots=Slots(Outcome.OK, 0.001, body=body), cpu=(20.0, 20.0)))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "wedge.jsonl"
    path.write_text("".join(f"{line}\n" for line in trace_lines()))
    return path


def events(capsys: pytest.CaptureFixture[str], *argv: str) -> list[dict[str, Any]]:
    assert main(["replay", "--json", *argv]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def refusal(capsys: pytest.CaptureFixture[str], *argv: object) -> str:
    assert main(["replay", *map(str, argv)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line.removeprefix("llama-watchdog: ")


def test_events_as_json_end_with_a_summary(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = events(capsys, str(trace))
    assert [e["verdict"] for e in told if e["event"] == "verdict"] == ["idle", "busy", "suspect", "wedged"]
    assert all(e["v"] == 1 and "at" not in e for e in told)
    assert all(e["dry_run"] for e in told if e["event"] == "action")
    summary = told[-1]
    assert list(summary) == [
        "v", "event", "trace", "observations", "seconds", "verdicts", "first_action",
    ]  # fmt: skip
    assert (summary["event"], summary["trace"]) == ("summary", str(trace))
    assert (summary["observations"], summary["seconds"]) == (15, 70.0)
    assert sum(summary["verdicts"].values()) == 70.0
    first = summary["first_action"]
    assert (first["action"], first["reason"], first["evidence"]) == ("cancel", "frozen", "blocked")
    assert 50.0 <= first["elapsed"] <= 60.0


def test_a_trace_without_a_wedge_has_no_first_action(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace.write_text("\n".join(trace.read_text().splitlines()[:4]))
    assert events(capsys, str(trace))[-1]["first_action"] is None


def test_for_people_each_change_has_a_line_and_each_trace_a_row(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(trace)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert "0.0s  default  idle" in out[0]
    assert "wedged" in "".join(out)
    assert main(["replay", "--summary", str(trace), str(trace)]) == 0
    summary = capsys.readouterr().out
    assert "first action" in summary.splitlines()[0]
    assert summary.count("cancel at") == 2
    assert "stood still" not in summary


def test_only_summaries_as_json(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = events(capsys, "--summary", str(trace), str(trace))
    assert [event["event"] for event in told] == ["summary", "summary"]


def test_standard_input(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = os.dup(0)
    try:
        with trace.open() as file:
            os.dup2(file.fileno(), 0)
            (summary,) = events(capsys, "--summary", "-")
    finally:
        os.dup2(before, 0)
        os.close(before)
    assert (summary["trace"], summary["observations"]) == ("-", 15)


# Compressed


def test_a_compressed_trace_is_read_as_it_is(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = trace.with_suffix(".jsonl.gz")
    packed.write_bytes(gzip.compress(trace.read_bytes()))
    told, plain = events(capsys, str(packed)), events(capsys, str(trace))
    assert told[:-1] == plain[:-1]


@pytest.mark.parametrize("cut", [5, -20, -4])
def test_half_a_compressed_trace_is_refused(
    trace: Path, capsys: pytest.CaptureFixture[str], cut: int
) -> None:
    packed = trace.with_suffix(".gz")
    packed.write_bytes(gzip.compress(trace.read_bytes())[:cut])
    capsys.readouterr()
    assert refusal(capsys, "--summary", packed) == f"{packed}: damaged: no whole gzip file"


def test_what_is_not_compressed_though_it_says_so(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    renamed = trace.rename(trace.with_suffix(".gz"))
    assert refusal(capsys, renamed) == f"{renamed}: damaged: no whole gzip file"


@pytest.mark.parametrize("bomb", [b"\n" * (1 << 20), b"x" * (8 << 20)], ids=["lines", "one line"])
def test_a_bomb_is_not_unpacked_without_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, bomb: bytes
) -> None:
    monkeypatch.setattr(room, "LARGEST", 1 << 16)
    packed = tmp_path / "bomb.gz"
    packed.write_bytes(gzip.compress(bomb))
    assert refusal(capsys, packed) == f"{packed}: larger than 0 MB"


# What is no trace


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty, where a trace is expected"),
        (b"\n\n", "is empty, where a trace is expected"),
        (bytes(range(256)) * 40, "not UTF-8 text, so no trace"),
        (b"dear diary\n", "line 1: no JSON"),
        (b"dear diary", "line 1: no JSON"),
        (b"[]\n", "line 1: no JSON object"),
        (b'{"at":0.0}\n', "line 1: the first line must describe the watch"),
        (b'{"trace":9}\n', "line 1: trace: version 9 is not known"),
        (b'{"trace":1}\nnonsense\n{"at":1.0}\n', "line 2: no JSON"),
        (b'{"trace":1}\n{"at":5.0}\n{"at":1.0}\n', "line 3: at: 1 comes after 5"),
    ],
)
def test_what_is_no_trace_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, words: str
) -> None:
    path = tmp_path / "trace"
    path.write_bytes(content)
    line = refusal(capsys, path)
    assert line.startswith(f"{path}: ")
    assert words in line


def test_a_missing_file_and_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(capsys, tmp_path / "none") == f"{tmp_path / 'none'}: No such file or directory"
    assert refusal(capsys, tmp_path) == f"{tmp_path}: Is a directory"


def test_a_last_line_that_was_cut_off_is_left_out_and_said(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A killed `record` and a full disk leave one; what stands before it is as good as ever."""
    whole = trace.read_text()
    trace.write_text(whole[:-20])
    assert main(["replay", "--json", "--summary", str(trace)]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["observations"] == 14
    assert told.err == f"{trace}: its last line is cut off, and left out\n"
    trace.write_text(whole.rstrip("\n"))  # whole, but for its end of line
    assert main(["replay", "--json", "--summary", str(trace)]) == 0
    assert json.loads(capsys.readouterr().out)["observations"] == 15


# By which settings


def acts_at(capsys: pytest.CaptureFixture[str], *argv: object) -> float:
    elapsed: float = events(capsys, "--summary", *map(str, argv))[-1]["first_action"]["elapsed"]
    return elapsed


def test_by_the_trace_s_own_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace"
    hasty = Policy(stall=StallPolicy(blocked=10.0))
    path.write_text("\n".join(trace_lines(policy=hasty)))
    assert acts_at(capsys, path) < 40.0


@pytest.mark.parametrize("name", ["default", "chat"])
def test_by_the_only_server_of_a_configuration_whatever_its_name(
    trace: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'[servers.{name}]\nstall.blocked = "10s"\n')
    assert acts_at(capsys, "--config", config, trace) < 40.0 < acts_at(capsys, trace)


def test_of_several_servers_by_the_one_of_that_name(
    trace: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    more = '[servers.code]\nurl = "http://127.0.0.1:9"\n'
    config.write_text(f'{more}[servers.default]\nstall.blocked = "10s"\n')
    assert acts_at(capsys, "--config", config, trace) < 40.0
    config.write_text(f"{more}[servers.chat]\n")
    line = refusal(capsys, "--config", config, trace)
    assert line == "--config: has no server 'default', of which the trace is, but code, chat"
