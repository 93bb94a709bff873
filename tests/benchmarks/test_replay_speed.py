"""How fast traces are judged, and in how much memory: `pytest tests/benchmarks`, outside of the normal run.

Figures are CPU time on one core. What they come to depends on the machine, so what must hold is a ratio to a
yardstick of the same run: `json.loads` of the same lines, the least that any reader of them can do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from llama_watchdog.cli.replay import replay
from llama_watchdog.core.judge import Judge
from llama_watchdog.core.policy import StallPolicy
from tests.benchmarks.polls import Mix, lines_of, mix

Capture: TypeAlias = pytest.CaptureFixture[str]

POLLS = 4000
ROUNDS = 9
# On a core that decodes 120,000 of these lines a second: 100,000 judged, 20,000 replayed.
JUDGING = 1.2
REPLAYING = 6.0
# Of polls that are idle, moving or still, none may be too rare to count; as a share.
RARE = 0.05
WEEK_TO_DAY = 1.1  # in peak memory; a week has 104,000 polls more

CPU_TIME = pytest.mark.benchmark(timer=time.process_time, disable_gc=False, warmup=False)


@pytest.fixture(scope="module")
def polls() -> Mix:
    """The polls, with enough of each kind."""
    built = mix(POLLS)
    assert min(built.idle, built.moving, built.still) > RARE * POLLS
    return built


@pytest.fixture(scope="module")
def lines(polls: Mix) -> list[str]:
    """The same as lines of a trace."""
    return list(lines_of(polls.watch, iter(polls.polls)))


@CPU_TIME
def test_judging(benchmark: BenchmarkFixture, capsys: Capture, polls: Mix, lines: list[str]) -> None:
    """Observations that are there already, through the judge."""

    def judge() -> None:
        observe = Judge(StallPolicy(), polls.watch).observe
        for poll in polls.polls:
            observe(poll)

    ratio = _against_yardstick(benchmark, capsys, judge, lines)
    assert ratio < JUDGING


@CPU_TIME
def test_replaying(benchmark: BenchmarkFixture, capsys: Capture, lines: list[str]) -> None:
    """All of `replay`: lines in, events out."""

    def play() -> None:
        for _ in replay("trace", iter(lines), None):
            pass

    ratio = _against_yardstick(benchmark, capsys, play, lines)
    assert ratio < REPLAYING


def _against_yardstick(
    benchmark: BenchmarkFixture, capsys: Capture, work: Callable[[], None], lines: list[str]
) -> float:
    """Time of `work` in units of the yardstick's, each at its best of several rounds, taken by turns."""
    yardstick: list[float] = []

    def measure_yardstick() -> None:
        began = time.process_time()
        for line in lines:
            json.loads(line)
        yardstick.append(time.process_time() - began)

    benchmark.pedantic(work, setup=measure_yardstick, rounds=ROUNDS)  # type: ignore[no-untyped-call]  # its own
    assert benchmark.stats is not None
    best = float(benchmark.stats.stats.min)
    ratio = best / min(yardstick)
    benchmark.extra_info.update(polls_per_second=round(POLLS / best), ratio=round(ratio, 2))
    with capsys.disabled():
        figures = f"{POLLS / best:,.0f} polls/s, json.loads {POLLS / min(yardstick):,.0f} lines/s"
        sys.stdout.write(f"\n{work.__name__}: {figures}, ratio {ratio:.2f}\n")
    return ratio


def test_memory_does_not_grow_with_the_trace(capsys: Capture) -> None:
    """A week takes what a day takes, through the whole command; half a minute."""
    day, week = _peak_of_replay(1), _peak_of_replay(7)
    with capsys.disabled():
        sys.stdout.write(f"\npeak memory: {day:,} kB for a day, {week:,} kB for a week\n")
    assert week < WEEK_TO_DAY * day


# The command, and its own peak of resident memory: that of ru_maxrss includes what was forked.
_REPLAY = """
import sys
from llama_watchdog.cli import main
code = main(["replay", "-", "--json", "--summary"])
status = open("/proc/self/status").read()
print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")))
sys.exit(code)
"""


def _peak_of_replay(days: int) -> int:
    """Peak memory, in kB, of replaying a trace that comes through a pipe."""
    write = [sys.executable, "-m", "tests.benchmarks.polls", str(days)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(write, stdout=subprocess.PIPE, cwd=root, env=os.environ) as writer:
        out = subprocess.run(
            [sys.executable, "-c", _REPLAY],
            stdin=writer.stdout,
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        ).stdout.splitlines()
    summary, peak = json.loads(out[0]), int(out[1])
    assert summary["seconds"] == pytest.approx(days * 86_400, abs=10)
    assert summary["first_action"] is None
    return peak
