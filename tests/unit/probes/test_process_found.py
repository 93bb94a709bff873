"""Which of a machine's processes is taken for the server, and which are strangers."""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llama_watchdog.core.action import Identity
from llama_watchdog.probes import finding, place
from llama_watchdog.probes.finding import Found, Group, NotFoundError, Wanted
from llama_watchdog.probes.procfs import ProcessFolder
from tests.support.llama_process import NAME, SERVER, python, run, server
from tests.support.supervisor import own_cgroup

NOWHERE = Group("/system.slice/other.service")
UNIT = "llama-server.service"


def ours(main_pid: int | None = None) -> Group:
    """A unit with the cgroup that the tests, and so their children, run in."""
    return Group(own_cgroup(), main_pid)


def find(
    port: int,
    *,
    process_name: str = NAME,
    group: Group | None = None,
    pid_file: Path | None = None,
) -> Found:
    where = place.parse(f"http://127.0.0.1:{port}")
    addresses = place.always_here(where)
    assert addresses is not None
    unit = UNIT if group is not None else None
    wanted = Wanted(where, process_name, unit, pid_file)
    return finding.find(wanted, finding.look_at_door(where, addresses), group)


def why_none(port: int, *, group: Group | None = None, pid_file: Path | None = None) -> str:
    with pytest.raises(NotFoundError) as refusal:
        find(port, group=group, pid_file=pid_file)
    return str(refusal.value)


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that nobody listens on, and that nobody else gets."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_the_listener_on_the_port() -> None:
    with server() as child, server():
        found = find(child.port)
        with ProcessFolder(child.pid) as folder:
            assert found.identity == Identity(child.pid, folder.stat().start_ticks)


def test_a_proxy_on_the_port_is_named_and_not_taken() -> None:
    """Although a llama-server runs as well: the proxy's answers need not be that one's."""
    with server(), server(name="nginx") as proxy:
        why = why_none(proxy.port)
    assert why == f"port {proxy.port} is served by nginx (pid {proxy.pid}), not by {NAME}"


def test_a_wrapper_script_of_the_same_name_is_no_server(tmp_path: Path) -> None:
    """The kernel names a script's process after the script. It waits for ever: stillness itself."""
    wrapper = tmp_path / NAME
    wrapper.write_text('#!/bin/sh\n"$@"\nexit $?\n')
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    pid_file = tmp_path / "pid"
    with run(str(wrapper), sys.executable, "-IS", "-c", SERVER.format(then=""), NAME, "0") as shell:
        assert Path(f"/proc/{shell.pid}/comm").read_text() == f"{NAME}\n"
        server_pid = int(Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text())
        try:
            assert find(shell.port).identity.pid == server_pid
            assert find(shell.port, group=ours(main_pid=shell.pid)).identity.pid == server_pid
            pid_file.write_text(str(shell.pid))
            assert f"not {NAME}" in why_none(shell.port, pid_file=pid_file)
        finally:
            os.kill(server_pid, 9)


def test_a_program_is_known_by_its_file_too() -> None:
    """A server may rename its main thread."""
    with server(name="worker-0") as child:
        program = Path(f"/proc/{child.pid}/exe").readlink().name
        assert find(child.port, process_name=program).identity.pid == child.pid


def test_a_replaced_program_is_known_by_its_old_name(tmp_path: Path) -> None:
    """After an upgrade of the package the running server's file is "… (deleted)"."""
    program = tmp_path / NAME
    program.write_bytes(Path("/bin/sleep").read_bytes())
    program.chmod(0o755)
    with run("/bin/sh", "-c", f"echo ready; exec {program} 60") as child:
        while Path(f"/proc/{child.pid}/exe").readlink() != program:
            pass
        program.unlink()
        with ProcessFolder(child.pid) as folder:
            assert folder.program() == NAME


def test_a_long_name_is_compared_as_far_as_the_kernel_keeps_it() -> None:
    with server(name="llama-server-cuda-12") as child:
        assert find(child.port, process_name="llama-server-cuda-12").identity.pid == child.pid


def test_of_forks_that_share_the_socket_the_parent_is_the_server() -> None:
    with server(then="if os.fork() == 0: time.sleep(60)") as child:
        assert find(child.port).identity.pid == child.pid
        for fork in Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split():
            os.kill(int(fork), 9)


def test_a_server_outside_of_the_unit_is_not_the_units() -> None:
    with server() as child:
        assert find(child.port, group=ours()).identity.pid == child.pid
        why = why_none(child.port, group=NOWHERE)
    assert why == (f"port {child.port} is served by {NAME} (pid {child.pid}), not by {NAME} of {UNIT}")


def test_while_it_does_not_listen_yet_a_unit_tells_which_it_is(silent: int) -> None:
    """A download before the load can take an hour."""
    with server(port=-1) as child, server(name="other"):
        found = find(silent, group=ours())
        assert (found.identity.pid, found.sockets) == (child.pid, frozenset())
        assert why_none(silent) == f"nothing listens on port {silent}"


def test_a_units_server_on_another_port_is_not_loading(silent: int) -> None:
    """A url with the wrong port: to wait for that server to come up, and then to act, would be wrong."""
    with server() as child:
        why = why_none(silent, group=ours())
        assert why == f"{NAME} (pid {child.pid}) does not listen on port {silent}"


def test_of_several_in_a_unit_its_main_process_is_the_server(silent: int) -> None:
    with server(port=-1) as one, server(port=-1) as two:
        assert find(silent, group=ours(main_pid=two.pid)).identity.pid == two.pid
        why = why_none(silent, group=ours())
        assert why.startswith(f"2 {NAME} processes could be it: ")
        assert str(one.pid) in why


def test_without_a_cgroup_the_server_is_below_what_its_supervisor_started() -> None:
    """Such as a child of ours: itself, or behind a wrapper that did not exec."""
    behind = f"import subprocess, sys; code = {SERVER.format(then='')!r}\n"
    behind += "sys.exit(subprocess.call([sys.executable, '-IS', '-c', code, *sys.argv[1:]]))"
    with server() as child, python(behind, NAME, "0") as wrapper:
        pid = int(Path(f"/proc/{wrapper.pid}/task/{wrapper.pid}/children").read_text())
        try:
            assert find(child.port, group=Group(None, child.pid)).identity.pid == child.pid
            assert find(wrapper.port, group=Group(None, wrapper.pid)).identity.pid == pid
            assert find(wrapper.port, group=Group(None, os.getpid())).identity.pid == pid
            why = why_none(child.port, group=Group(None, wrapper.pid))
            assert why == f"port {child.port} is served by {NAME} (pid {child.pid}), not by {NAME} of {UNIT}"
            assert "is served by" in why_none(wrapper.port, group=Group(None, child.pid))
        finally:
            os.kill(pid, 9)


def test_a_supervisor_that_runs_nothing_has_no_server() -> None:
    with server() as child:
        assert "is served by" in why_none(child.port, group=Group(None, None))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file or directory"),
        ("", "holds no pid"),
        ("llama-server", "holds no pid"),
        ("4194305", f"names a process that has ended (pid 4194305), not {NAME}"),  # above the largest pid
    ],
)
def test_a_pid_file_that_says_nothing(content: str | None, why: str, tmp_path: Path) -> None:
    pid_file = tmp_path / "llama.pid"
    if content is not None:
        pid_file.write_text(content)
    with server() as child:
        assert why in why_none(child.port, pid_file=pid_file)


def test_a_pid_file_whose_pid_is_another_program_now(tmp_path: Path) -> None:
    pid_file = tmp_path / "llama.pid"
    with server() as child, server(name="postgres") as other:
        pid_file.write_text(f"{other.pid}\n")
        assert f"names postgres (pid {other.pid}), not {NAME}" in why_none(child.port, pid_file=pid_file)


def test_a_pid_file_of_another_server(tmp_path: Path, silent: int) -> None:
    """Right by its name, but the port is another's: both while that one serves and when nobody does."""
    pid_file = tmp_path / "llama.pid"
    with server() as child, server() as other:
        pid_file.write_text(str(other.pid))
        assert f"is served by {NAME} (pid {child.pid})" in why_none(child.port, pid_file=pid_file)
        assert "does not listen on" in why_none(silent, pid_file=pid_file)


def test_a_right_pid_file(tmp_path: Path) -> None:
    pid_file = tmp_path / "llama.pid"
    with server() as child:
        pid_file.write_text(f"{child.pid}\n")
        assert find(child.port, pid_file=pid_file).identity.pid == child.pid


class TestWithoutTheRightToReadOpenFiles:
    """As an ordinary user: the command line and the socket's owner are all there is."""

    @pytest.fixture(autouse=True)
    def _ordinary_user(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ProcessFolder, "open_files", lambda _: None)
        monkeypatch.setattr(ProcessFolder, "environment", lambda _: None)
        monkeypatch.setattr(ProcessFolder, "program", lambda _: None)

    def test_the_command_line_names_the_port(self) -> None:
        with (
            server(name="other") as door,  # any listener will do: who it is can't be seen
            server("--port", str(door.port), port=-1) as child,
            server("--port", "1", port=-1),
        ):
            assert find(door.port).identity.pid == child.pid

    def test_a_unit_tells_which_it_is(self) -> None:
        with server() as child:
            assert find(child.port, group=ours()).identity.pid == child.pid
            assert "that we may not look into" in why_none(child.port)

    def test_a_listener_of_another_user_is_not_the_units_server(self) -> None:
        """A proxy in front, of another user: its port's answers aren't known to be the server's."""
        wanted = Wanted(place.parse("http://127.0.0.1:8080"), NAME, UNIT)
        with server(port=-1) as child:
            own = finding.Door(frozenset([1]), users=frozenset([os.getuid()]))
            assert finding.find(wanted, own, ours()).identity.pid == child.pid
            other = finding.Door(frozenset([1]), users=frozenset([os.getuid() + 1]))
            with pytest.raises(NotFoundError, match="may not look into"):
                finding.find(wanted, other, ours())

    def test_a_unit_whose_command_line_says_another_port(self) -> None:
        with server("--port", "1") as child:
            assert "served by a process that we may not look into" in why_none(child.port, group=ours())


def test_a_unix_socket_is_found_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "llama.sock"
    listening = (
        f"listener = socket.socket(socket.AF_UNIX)\nlistener.bind({str(path)!r}); listener.listen(); port = 0"
    )
    with server(port=-1, then=listening) as child:
        where = place.parse(f"unix://{path}")
        door = finding.look_at_door(where, frozenset())
        assert finding.find(Wanted(where, NAME), door, None).identity.pid == child.pid
        assert door.clients is None
