"""`record`: what a watch sees, written down; and `replay` of it, which says the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

import httpx
import pytest

from llama_watchdog.cli import main, record
from llama_watchdog.cli.record import TraceEndsError, Writer
from llama_watchdog.core.observation import Observation
from llama_watchdog.core.trace import read
from llama_watchdog.settings import ServerSettings
from llama_watchdog.simulator.faults import Fault
from llama_watchdog.simulator.launch import Simulated
from tests.support.facts import CPU_SERVER, process, seen, slot

NOBODY = "http://127.0.0.1:9"  # nobody listens there
KEY, PROMPT = "sk-not-for-your-eyes", "a private matter"


@pytest.fixture(scope="module")
def server() -> Iterator[Simulated]:
    """One that shows the users' prompts, as builds of 2024 do, and has a key."""
    with Simulated("--threads", "0", "--format", "2024-late", "--api-key", KEY, "--slots", "2") as simulated:
        yield simulated


@pytest.fixture
def config(server: Simulated, tmp_path: Path) -> str:
    path = tmp_path / "config.toml"
    path.write_text(
        f'[servers.chat]\nurl = "{server.url}"\napi_key = "{KEY}"\nprobe.interval = "250ms"\n'
        'stall.blocked = "250ms"\n'
    )
    return str(path)


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def verdicts(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    keys = ("elapsed", "server", "verdict", "reason", "evidence", "text")
    return [tuple(event.get(key) for key in keys) for event in events if event["event"] == "verdict"]


def test_a_recorded_wedge_is_replayed_to_the_same_verdicts_at_the_same_times(
    server: Simulated, config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing of the prompt or the key is in the trace, whatever the server shows."""
    trace = tmp_path / "trace"

    body = {"prompt": PROMPT, "n_predict": -1, "stream": True}
    head = {"Authorization": f"Bearer {KEY}"}
    wedge = threading.Timer(0.1, server.strike, [Fault.FREEZE])
    with httpx.stream("POST", f"{server.url}/completion", json=body, headers=head, timeout=10) as stream:
        lines = stream.iter_lines()  # closes the connection once it is forgotten
        next(lines)
        assert PROMPT in httpx.get(f"{server.url}/slots", headers=head).text
        wedge.start()
        assert main(["record", "--config", config, "--for", "1.6s", "--json", "-o", str(trace)]) == 0
    wedge.join()
    server.strike(Fault.NONE)
    told = capsys.readouterr()
    recorded = verdicts(lines_of(told.out))
    assert recorded[-1][2] == "wedged"
    assert told.err.startswith(f"{trace}: ")
    text = trace.read_text()
    for secret in (KEY, PROMPT, "private"):
        assert secret not in text + told.out + told.err
    assert trace.stat().st_mode & 0o007 == 0
    assert main(["replay", "--json", str(trace)]) == 0
    events = lines_of(capsys.readouterr().out)
    assert verdicts(events) == recorded
    assert events[-1]["event"] == "summary"


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_end_it_cleanly(config: str, tmp_path: Path, end: signal.Signals) -> None:
    trace = tmp_path / "trace"
    argv = [sys.executable, "-m", "llama_watchdog", "record", "--config", config, "-o", str(trace)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        deadline = time.monotonic() + 15
        while not trace.exists() or not trace.stat().st_size:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        child.send_signal(end)
        _, told = child.communicate(timeout=15)
    assert child.returncode == 0
    (line,) = told.splitlines()
    assert line.startswith(f"{trace}: ")
    assert len(list(read(trace.read_text().splitlines()))) >= 2


def refusal(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    code = main(["record", "--url", NOBODY, "--for", "1h", *argv])
    (line,) = capsys.readouterr().err.splitlines()
    return code, line


def test_what_exists_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace"
    trace.write_text("precious")
    code, line = refusal(capsys, "-o", str(trace))
    assert (code, line) == (2, f"llama-watchdog: -o {trace}: exists already; choose a new name")
    assert trace.read_text() == "precious"


@pytest.mark.parametrize(
    ("name", "reason"), [("none/trace", "No such file"), ("file/trace", "Not a directory")]
)
def test_where_nothing_can_be_written_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, reason: str
) -> None:
    (tmp_path / "file").touch()
    code, line = refusal(capsys, "-o", str(tmp_path / name))
    assert code == 2
    assert line.startswith(f"llama-watchdog: -o {tmp_path / name}: {reason}")


def test_a_full_disk_ends_it_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    made = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *how: full if path == tmp_path / "trace" else made(path, *how)
    )
    code, line = refusal(capsys, "-o", str(tmp_path / "trace"))
    assert (code, line) == (1, f"llama-watchdog: -o {tmp_path / 'trace'}: No space left on device")


def test_several_servers_are_not_recorded_into_one_trace(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path(config).open("a") as more:
        more.write(f'[servers.code]\nurl = "{NOBODY}"\n')
    trace = tmp_path / "trace"
    assert main(["record", "--config", config, "-o", str(trace)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "several servers are configured (chat, code); say which by its url" in line
    assert not trace.exists()
    assert main(["record", "--config", config, "--url", NOBODY, "--for", "50ms", "-o", str(trace)]) == 0
    assert json.loads(trace.read_text().splitlines()[0])["server"] == "code"


# The writer


def written(tmp_path: Path, *looks: tuple[Any, Any]) -> list[dict[str, Any]]:
    with FileIO(tmp_path / "trace", "w") as file:
        writer = Writer(file, ServerSettings(name="chat"))
        for watch, observation in looks:
            writer.keep(watch, observation)
        assert writer.polls == len(looks)
    return lines_of((tmp_path / "trace").read_text())


def test_each_incarnation_has_a_header_of_its_own(tmp_path: Path) -> None:
    first, second = process(start=1), process(start=2)
    looks = [(CPU_SERVER, seen(float(n), slot(), process=p)) for n, p in enumerate((first, first, second))]
    kinds = ["trace" in line for line in written(tmp_path, *looks)]
    assert kinds == [True, False, False, True, False]


def test_a_trace_does_not_grow_without_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FileIO(tmp_path / "trace", "w") as file:
        writer = Writer(file, ServerSettings(name="chat"))
        writer.keep(CPU_SERVER, seen(0.0, slot()))
        writer.keep(CPU_SERVER, seen(1.0, slot()))
        monkeypatch.setattr(record, "MAX_BYTES", file.tell() + 100)
        with pytest.raises(TraceEndsError, match="recorded no further"):
            writer.keep(CPU_SERVER, seen(2.0, slot()))
    assert [type(fact) for fact in read((tmp_path / "trace").read_text().splitlines())][1:] == [
        Observation
    ] * 2
