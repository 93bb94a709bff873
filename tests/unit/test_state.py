"""What is learned outlives the watchdog; a state that can't be used costs nothing else."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from llama_watchdog import log
from llama_watchdog.core.pace import Learned
from llama_watchdog.state import StateFile

PACE = Learned(prefill=90.0, prefill_depth=3501)


def test_a_pace_is_known_again_after_a_restart(tmp_path: Path) -> None:
    StateFile(tmp_path / "state").keep("model", PACE)
    assert StateFile(tmp_path / "state").pace("model") == PACE


def test_another_models_pace_is_no_pace(tmp_path: Path) -> None:
    StateFile(tmp_path).keep("model", PACE)
    assert StateFile(tmp_path).pace("another") == Learned()


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b'{"model": 7}', b"[" * 100_000])
def test_a_damaged_state_is_learned_anew(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "pace.json").write_bytes(content)
    state = StateFile(tmp_path)
    assert state.pace("model") == Learned()
    state.keep("model", PACE)
    assert StateFile(tmp_path).pace("model") == PACE


def test_a_state_that_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    said = io.StringIO()
    log.configure(stream=said)
    (tmp_path / "file").touch()
    state = StateFile(tmp_path / "file" / "state")
    state.keep("model", PACE)
    state.keep("model", Learned(prefill=3.0))
    assert state.pace("model") == Learned(prefill=3.0)
    log.configure()
    assert said.getvalue().count("can't be") == 1


def test_no_more_is_kept_than_a_bounded_number_of_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest are forgotten."""
    monkeypatch.setattr("llama_watchdog.state._MAX_SERVERS", 8)
    state = StateFile(tmp_path)
    for number in range(12):
        state.keep(f"model {number}", PACE)
    assert StateFile(tmp_path).pace("model 3") == Learned()
    assert StateFile(tmp_path).pace("model 4") == PACE
