"""The simulator's command line."""

from __future__ import annotations

import shlex

import pytest

from llama_watchdog.simulator.__main__ import parse_options
from llama_watchdog.simulator.faults import Fault


def test_defaults_are_a_healthy_server_of_today() -> None:
    options = parse_options([])
    assert (options.host, options.port, options.form.name) == ("127.0.0.1", 8080, "b11669")
    assert (options.fault, options.threads, options.config.slots) == (Fault.NONE, 1, 4)
    assert options.config.answers_mid_step


def test_a_pasted_command_line_of_llama_server_works() -> None:
    options = parse_options(
        shlex.split(
            "-m /models/big.gguf -c 8192 -t 8 -ngl 99 -fa on --jinja -np 2 -b 512 -ub 256 --metrics --slots"
            " --host 0.0.0.0 --port 9000 --api-key sesame --sleep-idle-seconds 600 --alias big --no-mmap"
        )
    )
    config = options.config
    assert (config.context, config.slots, config.batch_size) == (8192, 2, 512)
    assert (options.threads, options.api_key, config.sleep_idle_seconds) == (8, "sesame", 600.0)
    assert config.endpoint_metrics
    assert config.endpoint_slots


def test_a_format_brings_its_habits_and_a_fault_its_time() -> None:
    options = parse_options(["--format", "ik", "--slots", "3", "--fault", "spin", "--after-tokens", "20"])
    assert (options.form.name, options.config.slots) == ("ik", 3)
    assert options.config.health_in_queue
    assert (options.fault, options.after_tokens) == (Fault.SPIN, 20)
    assert parse_options(["--fault", "block", "--after", "2m"]).after == 120.0


def test_a_load_fault_has_a_load_to_hang() -> None:
    assert parse_options(["--fault", "load-hang"]).config.load_seconds > 0


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--nonsense", "--nonsense"),
        ("--metric", "--metric"),
        ("--fault sleepy", "frozen-until-cancel"),
        ("--fault stopped", "stopped"),
        ("--port 70000", "--port"),
        ("--port many", "--port"),
        ("--slots 0", "--slots"),
        ("--decode-rate nan", "--decode-rate"),
        ("--load-seconds soon", "--load-seconds"),
        ("--format b1", "--format"),
        ("--after 5", "--fault"),
        ("--fault spin --after 5 --after-tokens 5", "--after"),
        ("--second-sigterm maybe", "--second-sigterm"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_exit_code_2(
    flags: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_options(flags.split())
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert says in error
