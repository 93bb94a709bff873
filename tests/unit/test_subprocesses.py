"""Running other programs: what is kept of their output, and how they end."""

from __future__ import annotations

import asyncio

import pytest

from llama_watchdog import subprocesses
from llama_watchdog.subprocesses import Finished


def run(*argv: str, timeout: float = 10.0, keep: int = 1000) -> Finished:
    return asyncio.run(subprocesses.run(argv, timeout=timeout, keep=keep))


def test_both_outputs_and_the_exit_status_come_back_apart() -> None:
    assert run("sh", "-c", "echo one; echo two >&2; exit 7") == Finished(7, "one\n", "two\n")


def test_a_signal_is_told_from_an_exit_status() -> None:
    assert run("sh", "-c", "kill -TERM $$").code == -15


def test_the_end_of_a_long_output_is_kept() -> None:
    assert run("sh", "-c", "seq 100000; echo end >&2", keep=6) == Finished(0, "00000\n", "end\n")


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert run("printf", r"a\377b").out == "a\N{REPLACEMENT CHARACTER}b"


def test_what_was_said_before_time_ran_out_is_kept() -> None:
    assert run("sh", "-c", "echo waiting; exec sleep 60", timeout=0.1) == Finished(None, "waiting\n", "")


def test_a_program_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        run("/nowhere/tool")


def test_nothing_is_lost_of_what_a_program_says_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have ended before the event loop gets round to reading: here, it never does."""
    monkeypatch.setattr(asyncio.SelectorEventLoop, "add_reader", lambda *_: None)
    assert run("sh", "-c", "for n in 0 1 2 3 4 5 6 7; do echo $n; done").out.split() == list("01234567")
