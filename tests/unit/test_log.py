"""What comes out where: JSON lines, journal priorities, text for people; and that writing never hurts."""

from __future__ import annotations

import errno
import io
import json
import logging
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import SecretStr

from llama_watchdog import log
from llama_watchdog.log import sink

VERDICT = (
    '{"v":1,"event":"verdict","at":"2026-11-30T15:00:05Z","elapsed":1160.0,"server":"chat","verdict":"wedged",'
    '"reason":"frozen","evidence":"blocked","stalled_for":31.2,"budget":30.0,"slots":[0],'
    '"text":"slot 0 stood still for 31 s, no CPU, no GPU"}'
)
ACTION = (
    '{"v":1,"event":"action","at":"2026-11-30T15:00:06Z","elapsed":1161.0,"server":"chat","action":"cancel",'
    '"dry_run":false,"outcome":"started","incident":"7","text":"2 connections closed"}'
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing that a test sets up outlives it."""
    root, level = logging.getLogger(), logging.getLogger().level
    handlers = root.handlers[:]
    for name in ("NO_COLOR", "JOURNAL_STREAM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("TZ", "UTC-1")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
    log.configure(stream=sys.stderr)
    root.handlers[:] = handlers
    root.setLevel(level)


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize("line", [VERDICT, ACTION])
def test_events_come_out_as_the_contracts_line(line: str) -> None:
    out = io.StringIO()
    log.configure("info", stream=out)
    log.emit_event(json.loads(line))
    assert out.getvalue() == line + "\n"
    assert log.event_json(json.loads(line)) == line


def test_log_lines_are_objects_beside_the_events() -> None:
    out = io.StringIO()
    log.configure("info", stream=out)
    log.get_logger(server="chat").warning("the trace can't be written", path=Path("/x"), v=2, level="?")
    entry = json.loads(out.getvalue())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", entry.pop("at"))
    assert list(entry.items())[:3] == [("v", 1), ("event", "log"), ("level", "warning")]
    assert entry["message"] == "the trace can't be written"
    assert (entry["server"], entry["path"], entry["v_"], entry["level_"]) == ("chat", "/x", 2, "?")


def test_levels_are_those_of_the_last_configure() -> None:
    """A logger made and bound before a reload follows it."""
    first, second = io.StringIO(), io.StringIO()
    logger = log.get_logger(server="chat")
    log.configure("warning", stream=first)
    logger.info("too quiet")
    logger.error("heard")
    log.configure("debug", stream=second)
    logger.debug("now heard")
    assert [json.loads(line)["message"] for line in first.getvalue().splitlines()] == ["heard"]
    assert json.loads(second.getvalue())["message"] == "now heard"


@pytest.mark.parametrize(
    ("event", "level"),
    [
        ({"event": "verdict", "verdict": "busy"}, "info"),
        ({"event": "verdict", "verdict": "suspect"}, "notice"),
        ({"event": "verdict", "verdict": "blind"}, "warning"),
        ({"event": "verdict", "verdict": "held"}, "error"),
        ({"event": "action", "outcome": "healed"}, "warning"),
        ({"event": "action", "outcome": "failed"}, "error"),
        ({"event": "log", "level": "debug"}, "debug"),
        ({"event": "summary"}, "info"),
    ],
)
def test_events_have_levels(event: dict[str, object], level: str) -> None:
    """At log_level = "warning" the daemon still tells that it acts, and no longer that all is well."""
    out = io.StringIO()
    log.configure("warning", stream=out)
    log.emit_event(event)
    assert log.level_of(event) == level
    assert bool(out.getvalue()) == (level in ("warning", "error"))


def test_long_values_are_cut() -> None:
    entry = json.loads(
        log.event_json({"text": "ä" * 5000, "slots": list(range(256)), "body": [["x" * 99] * 99]})
    )
    assert len(entry["text"].encode()) <= 2048
    assert entry["text"].endswith("ä…")
    assert entry["slots"] == list(range(256))
    assert len(entry["body"].encode()) <= 2048


def test_what_json_lacks_becomes_null_or_text() -> None:
    loop: list[object] = []
    loop.append(loop)
    event = {"a": math.nan, "b": [math.inf], "c": SecretStr("hush"), "d": "a\nb\x1b\udcff\u2028", "e": loop}
    line = log.event_json({**event, "f": {1: None}})
    assert line.isascii()
    assert line.isprintable()
    assert "hush" not in line
    entry = json.loads(line)
    assert (entry["a"], entry["b"], entry["f"]) == (None, [None], {"1": None})


def test_journal_lines_carry_priorities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "journal").open("w+") as stream:
        where = os.fstat(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{where.st_dev}:{where.st_ino}")
        log.configure("debug", stream=stream)
        logger = log.get_logger()
        logger.debug("a")
        logger.info("b")
        log.emit_event({"event": "verdict", "verdict": "suspect"})
        logger.warning("c")
        log.emit_event(json.loads(VERDICT))
        log.configure("info", "console", stream=stream)
        logger.error("d", exc_info=RuntimeError("x\ny"))
        stream.seek(0)
        lines = stream.read().splitlines()
    assert [line[:3] for line in lines[:5]] == ["<7>", "<6>", "<5>", "<4>", "<3>"]
    assert lines[4] == "<3>" + VERDICT
    assert len(lines) > 6
    assert {line[:3] for line in lines[5:]} == {"<3>"}


def test_another_streams_journal_is_not_ours(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as stream:
        inode = os.fstat(stream.fileno()).st_ino
        assert not sink.is_journal(stream, {"JOURNAL_STREAM": f"0:{inode}"})
        assert not sink.is_journal(stream, {"JOURNAL_STREAM": "nonsense"})
        assert not sink.is_journal(stream, {})
    assert not sink.is_journal(stream, {"JOURNAL_STREAM": "1:2"})


def test_console_tells_the_story_in_columns() -> None:
    out = Terminal()
    log.configure("info", stream=out)
    log.emit_event(json.loads(VERDICT.replace("wedged", "busy")))
    log.emit_event(json.loads(VERDICT.replace('"chat"', '"embeddings"')))
    log.emit_event(json.loads(ACTION))
    log.emit_event({**json.loads(ACTION), "dry_run": True, "text": "would have: closed 2 connections"})
    log.emit_event({"event": "verdict", "elapsed": 12, "server": "chat", "verdict": "idle", "text": "idle"})
    assert "\x1b[1;31mWEDGED" in out.getvalue()
    assert plain(out.getvalue()).splitlines() == [
        "16:00:05  chat  busy        slot 0 stood still for 31 s, no CPU, no GPU",
        "16:00:05  embeddings  WEDGED      slot 0 stood still for 31 s, no CPU, no GPU",
        "16:00:06  chat        cancel      started: 2 connections closed",
        "16:00:06  chat        cancel      would have: closed 2 connections",
        "    12.0s  chat        idle        idle",
    ]


def test_console_shows_log_lines_and_tracebacks() -> None:
    out = Terminal()
    log.configure("info", stream=out)
    logger = log.get_logger()
    logger.info("watching 1 server", config="/etc/x y", n=[1])
    logger.warning("the trace is full", server="chat")
    logger.error("the round has failed", exc_info=RuntimeError("broken\nin two"))
    lines = [line[10:] for line in plain(out.getvalue()).splitlines()]
    assert lines[0] == 'watching 1 server  config="/etc/x y" n=[1]'
    assert lines[1] == "chat  warning     the trace is full"
    assert lines[2] == 'error       the round has failed  error="RuntimeError: broken\\nin two"'
    assert lines[3:] == ["RuntimeError: broken", "in two"]


def test_nothing_in_a_value_reaches_the_terminal_raw() -> None:
    """A server's answer may hold newlines and terminal codes, to fake a line or worse."""
    out = Terminal()
    log.configure("info", "console", stream=out)
    nasty = "\n\x1b[2J\x07\r\u202e"
    log.get_logger().error(nasty, **{f"k{nasty}": nasty}, server=nasty)
    log.emit_event(dict.fromkeys(("at", "server", "verdict", "text"), nasty) | {"event": "verdict"})
    log.emit_event(dict.fromkeys(("server", "action", "outcome", "text"), nasty) | {"event": "action"})
    assert len(out.getvalue().splitlines()) == 3
    assert plain(out.getvalue()).replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("name", "value", "coloured"),
    [("NO_COLOR", "1", False), ("NO_COLOR", "", True), ("TERM", "dumb", False)],
)
def test_colour_only_where_it_is_welcome(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, coloured: bool
) -> None:
    monkeypatch.setenv(name, value)
    out, no_terminal = Terminal(), io.StringIO()
    for stream in (out, no_terminal):
        log.configure("info", "console", stream=stream)
        log.emit_event(json.loads(VERDICT))
    assert ("\x1b" in out.getvalue()) is coloured
    assert "\x1b" not in no_terminal.getvalue()


def test_json_can_be_had_on_a_terminal() -> None:
    out = Terminal()
    log.configure("info", "json", stream=out)
    log.emit_event(json.loads(VERDICT))
    assert out.getvalue() == VERDICT + "\n"


def test_libraries_come_out_the_same_way_and_only_warn() -> None:
    out = io.StringIO()
    logging.getLogger("uvicorn").addHandler(logging.StreamHandler(out))
    logging.getLogger("uvicorn.error").setLevel(logging.INFO)
    log.configure("debug", stream=out)
    for name in ("httpx", "asyncio", "uvicorn.error"):
        logging.getLogger(name).info("each request")
        logging.getLogger(name).critical("%s failed", name)
    logging.getLogger("other").warning("%d", "no number")
    entries = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(entry["logger"], entry["level"], entry["message"]) for entry in entries] == [
        ("httpx", "error", "httpx failed"),
        ("asyncio", "error", "asyncio failed"),
        ("uvicorn.error", "error", "uvicorn.error failed"),
        ("other", "warning", "%d"),
    ]


def test_traceback_keeps_its_end() -> None:
    out = io.StringIO()
    log.configure("info", stream=out)
    error = RuntimeError("the first cause")
    for n in range(200):
        error, error.__cause__ = RuntimeError(f"the very end, {n}"), error
    log.get_logger().error("x", exc_info=error)
    entry = json.loads(out.getvalue())
    assert entry["error"] == "RuntimeError: the very end, 199"
    assert entry["traceback"].endswith("the very end, 199\n")
    assert len(entry["traceback"]) <= 2048


def broken(fault: Exception) -> Callable[..., int]:
    def write(*_: object) -> int:
        raise fault

    return write


@pytest.mark.parametrize(
    "fault", [BrokenPipeError(), OSError(errno.ENOSPC, "full"), ValueError("I/O operation on closed file")]
)
def test_write_errors_never_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    """And once writing works again, the gap is told."""
    with (tmp_path / "log").open("w+") as stream:
        log.configure("info", stream=stream)
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", broken(fault))
            log.get_logger().info("lost")
            log.emit_event(json.loads(VERDICT))
        log.emit_event(json.loads(VERDICT))
        log.emit_event(json.loads(ACTION))
        lines = (tmp_path / "log").read_text().splitlines()
    assert json.loads(lines[0])["message"] == "2 lines before this one could not be written, and are lost"
    assert lines[1:] == [VERDICT, ACTION]


def test_a_closed_stream_a_reader_gone_and_none_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    closed = (tmp_path / "closed").open("w")
    closed.close()
    with os.fdopen(writer, "w") as gone:
        for stream in (closed, gone, None):
            monkeypatch.setattr(sys, "stderr", stream)
            log.configure("info")
            log.get_logger().info("x")
            log.emit_event(json.loads(VERDICT))


def test_a_reader_that_stalls_stalls_nobody() -> None:
    """Were the write to wait, the watch would, too; and a line torn by it must not spoil the next."""
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as read, os.fdopen(writer, "w") as stream:
        log.configure("info", stream=stream)
        began = time.monotonic()
        for n in range(100):
            log.emit_event({"event": "summary", "n": n, **{f"k{i}": "x" * 2000 for i in range(9)}})
        assert time.monotonic() - began < 2  # it waits once, not for each line
        os.set_blocking(reader, False)
        whole, _, torn = read.read().rpartition(b"\n")
        log.emit_event(json.loads(VERDICT))
        after = read.read().decode()
    written = [json.loads(line)["n"] for line in whole.splitlines()]
    assert written == list(range(len(written)))
    assert torn
    rest, notice, verdict = after.splitlines()
    assert rest == ""
    assert json.loads(notice)["message"].startswith(f"{100 - len(written)} lines before this one")
    assert verdict == VERDICT


def test_a_reader_at_work_loses_nothing_of_a_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    """The burst is larger than the pipe, so every line here waits a little for its reader."""
    monkeypatch.setattr(sink, "PATIENCE", 10_000)  # a busy machine may run the reader late
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as read, ThreadPoolExecutor(1) as readers:
        got = readers.submit(read.read)
        with os.fdopen(writer, "w") as stream:
            log.configure("info", stream=stream)
            for n in range(200):
                log.emit_event({"event": "summary", "n": n, "text": "x" * 2000})
        lines = got.result(10).splitlines()
    assert [json.loads(line)["n"] for line in lines] == list(range(200))


def test_terminal_that_knows_no_unicode_gets_escapes() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    log.configure("info", "console", stream=out)
    log.get_logger().info("naïve")
    out.flush()
    assert b"na\\xefve" in raw.getvalue()


def test_before_anybody_configures_lines_go_to_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(log, "_output", None)
    log.get_logger().warning("early")
    captured = capsys.readouterr()
    assert json.loads(captured.err)["message"] == "early"
    assert captured.out == ""
