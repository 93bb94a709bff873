"""The admin's restart command: what is said of each way it can end, and what it may leave behind."""

from __future__ import annotations

import asyncio
import os
import select
import sys
from pathlib import Path

from llama_watchdog.actions import restart_command
from llama_watchdog.core.action import Done, Result


def run(*command: str, timeout: float = 10.0) -> Result:
    return asyncio.run(restart_command.run(command, timeout=timeout))


def ends(pid: int) -> bool:
    """Whether that process is gone, or about to be: SIGKILL takes a moment."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([pidfd], [], [], 5.0)[0])
    finally:
        os.close(pidfd)


def test_exit_0_is_done() -> None:
    assert run("true") == Result(Done.DONE, "ran true")


def test_a_failure_says_its_status_and_last_words() -> None:
    result = run("sh", "-c", "echo starting; echo 'no such model' >&2; exit 3")
    assert result == Result(Done.FAILED, "sh failed with exit status 3: no such model")


def test_a_death_by_signal_is_a_failure() -> None:
    assert run("sh", "-c", "kill -KILL $$") == Result(Done.FAILED, "sh was ended by signal 9")


def test_last_words_are_one_short_line_without_escapes() -> None:
    result = run("sh", "-c", r"printf '\033[31m%0999d\033[0m\n\n' 7; exit 1")
    assert result.text.startswith("sh failed with exit status 1: [31m000")
    assert len(result.text) < 300
    assert result.text.isprintable()


def test_arguments_are_not_shown() -> None:
    """They may hold an API key."""
    for result in (
        run("sh", "-c", "exit 1", "s3cret"),
        run("sh", "-c", "exit 0", "s3cret"),
        run("/nowhere", "s3cret"),
    ):
        assert "s3cret" not in result.text


def test_no_shell_is_between() -> None:
    assert run("test", "$HOME", "=", "$" + "HOME").outcome is Done.DONE


def test_standard_input_is_empty(tmp_path: Path) -> None:
    """A command that asks something gets no answer from the watchdog's own terminal."""
    (tmp_path / "typed").write_text("yes", encoding="utf-8")
    before = os.dup(0)
    typed = os.open(tmp_path / "typed", os.O_RDONLY)
    os.dup2(typed, 0)
    try:
        assert run(sys.executable, "-c", "import sys; sys.exit(len(sys.stdin.read()))").outcome is Done.DONE
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(typed)


def test_a_missing_program_says_so() -> None:
    result = run("/nowhere/restart")
    assert result.outcome is Done.UNSUPPORTED
    assert "/nowhere/restart is not there" in result.text


def test_a_file_that_is_no_program_says_so(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("x", encoding="utf-8")
    result = run(str(tmp_path / "notes"))
    assert result.outcome is Done.UNSUPPORTED
    assert "Permission denied" in result.text


def test_out_of_time_the_whole_group_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    result = run("sh", "-c", f"sleep 60 & echo $! >{pid_file}; wait", timeout=0.2)
    assert result == Result(Done.FAILED, "sh took longer than 0.2 s and was killed")
    assert ends(int(pid_file.read_text(encoding="utf-8")))


def test_a_daemon_left_behind_is_not_waited_for_and_outlives_its_own_output(tmp_path: Path) -> None:
    """It writes on to an output that nobody reads any more: with a pipe, SIGPIPE would end it."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    daemon = (
        "import os, signal\n"
        "signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n"
        f"fifo = open({str(fifo)!r}, 'w')\n"  # until the test opens it, after the command has ended
        "for _ in range(2000):\n"
        "    try: os.write(1, b'x' * 200)\n"
        "    except OSError: pass\n"
        "print(os.getpid(), file=fifo)\n"
    )
    result = run("sh", "-c", '"$0" -c "$1" & exit 0', sys.executable, daemon)
    assert result.outcome is Done.DONE
    assert int(fifo.read_text(encoding="utf-8")) > 1


def test_a_flood_of_output_is_bounded_and_its_end_kept() -> None:
    result = run("sh", "-c", "yes | head -c 2000000; echo the end; exit 1")
    assert result.text.endswith(": the end")


def test_cancelled_it_leaves_nothing_running(tmp_path: Path) -> None:
    """The watchdog itself may be stopped while the command runs."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    async def cancelled() -> int:
        command = ["sh", "-c", f"echo $$ >{fifo}; exec sleep 60"]
        task = asyncio.create_task(restart_command.run(command))
        pid = int(await asyncio.to_thread(fifo.read_text, "utf-8"))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return pid

    assert ends(asyncio.run(cancelled()))


def test_ctrl_c_at_the_watchdogs_terminal_does_not_end_it_half_way() -> None:
    """It runs in a session of its own."""
    script = f"import os, sys; sys.exit(os.getsid(0) == {os.getsid(0)})"
    assert run(sys.executable, "-c", script).outcome is Done.DONE
