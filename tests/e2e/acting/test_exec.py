"""As llama-server's parent: Debian's llama-server.service with exec.conf and nothing else; and as process 1.

The unit stays, with its main process, which is llama-watchdog: what comes and goes is the server below it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.ground import forked
from tests.e2e.ground.events import Event, actions, events_of
from tests.e2e.ground.house import CONFIG, SERVER, SERVER_DEFAULTS, SERVER_NAME, WATCHDOG, House
from tests.e2e.ground.package import COMMAND
from tests.e2e.ground.testbed import Testbed
from tests.e2e.ground.waiting import stays_true, wait_until
from tests.e2e.ground.wedge import DECODE

# No url: the server's own port is in its environment, which is that of its parent, too.
SETTINGS = """
[servers.chat.probe]
interval = "1s"
[servers.chat.stall]
blocked = "4s"
spinning = "6s"
down = "3s"
"""
LADDER = ["cancel", "sigterm", "sigterm", "sigkill", "restart"]
LOAD = 60.0  # seconds; the small model takes a third of one, and ten on a machine that is busy otherwise
LIMITS = '[servers.chat.restart]\nmax_restarts = 2\nbackoff = "1s"\n'


class Parent(House):
    """The one unit, `unit`, in which llama-watchdog is the parent of llama-server."""

    unit = SERVER

    def begin(self, more: str = "") -> None:
        """The unit started anew, with nothing remembered; returns once it is seen idle."""
        self.clean(more)
        self.systemctl("start", self.unit, timeout=LOAD)
        self.wait_for(LOAD, verdict="idle")
        self.mark()

    def clean(self, more: str = "") -> None:
        """The unit is stopped, nothing is remembered, and these are the settings besides `SETTINGS`."""
        self._stop()
        self.testbed.run("rm", "-rf", f"/var/lib/llama-watchdog-{SERVER_NAME}")
        self.testbed.write(CONFIG, SETTINGS + more)
        self.mark()

    def events(self) -> list[Event]:
        return events_of(self.said())

    def said(self) -> list[str]:
        """The lines of the unit since `mark`: llama-watchdog's, and the server's among them."""
        return [str(entry["MESSAGE"]) for entry in self.journal(f"--unit={self.unit}")]

    def story(self) -> str:
        ours = [e for e in self.journal() if e.get("UNIT") or str(e["MESSAGE"]).startswith(("{", "llama-"))]
        return "\n".join(f"{entry.get('SYSLOG_IDENTIFIER')}: {entry['MESSAGE']}" for entry in ours[-80:])

    def server(self) -> int:
        """The pid inside of the one llama-server; 0 where there is none, or more than one."""
        pids = self.pids()
        return pids[0] if len(pids) == 1 else 0

    def pids(self) -> list[int]:
        """The pids inside of whatever has its name."""
        return list(
            map(int, self.testbed.run("pgrep", "--exact", "llama-server", check=False).stdout.split())
        )

    def life(self) -> tuple[str, str, str]:
        """What changes when systemd starts the unit again."""
        return (
            self.show(self.unit, "InvocationID"),
            self.show(self.unit, "MainPID"),
            self.show(self.unit, "NRestarts"),
        )

    def seen_outside(self) -> int:
        """The pid by which this machine knows llama-server."""
        procs = self.testbed.cgroup / "system.slice" / self.unit / "cgroup.procs"
        pids = procs.read_text().split()
        return next(int(pid) for pid in pids if Path(f"/proc/{pid}/comm").read_text() == "llama-server\n")

    def state(self) -> tuple[str, str, str]:
        """Of the unit: whether it runs, how it has ended, and its main process's exit status."""
        return (
            self.show(self.unit, "ActiveState"),
            self.show(self.unit, "Result"),
            self.show(self.unit, "ExecMainStatus"),
        )

    def is_cleared(self) -> bool:
        """Whether no llama-server is left, not even one that nobody has reaped, and its port is free."""
        names = self.testbed.run("ps", "-e", "-o", "comm=").stdout.split()
        listening = self.testbed.run("ss", "-Hltn", f"sport = :{self.client.port}").stdout
        return "llama-server" not in names and not listening


def healed_in_place(parent: Parent, *before: int, within: float) -> float:
    """Another server serves, below the same parent, and no further one comes; the seconds it took."""
    began, life = time.monotonic(), parent.life()
    try:
        wait_until(lambda: parent.server() not in (0, *before), within, "another server")
        wait_until(parent.client.serves, LOAD, "the server to serve again")
    except TimeoutError as error:
        pytest.fail(f"{error}\n{parent.story()}")
    took = time.monotonic() - began
    parent.wait_for(20, action="restart", outcome="healed")
    again = parent.server()
    stays_true(lambda: parent.server() == again, 4.0, "the one other server")
    assert actions(parent.events()).count("restart") == 1, parent.story()
    assert parent.life() == life, parent.story()
    return took


@pytest.fixture(scope="module")
def parent(testbed: Testbed) -> Parent:
    house = Parent(testbed)
    house.install_dropin("exec")
    return house


@contextmanager
def dropin(parent: Parent, text: str) -> Iterator[None]:
    """One more drop-in of the unit's for a while."""
    path = f"/run/systemd/system/{SERVER}.d/test.conf"
    parent.testbed.write(path, f"[Service]\n{text}")
    parent.systemctl("daemon-reload")
    try:
        yield
    finally:
        parent.testbed.run("rm", path)
        parent.systemctl("daemon-reload")


def behind(command: str) -> str:
    """For a drop-in: the server behind a wrapper that runs `command` first, and then becomes the server."""
    return f"ExecStart=\nExecStart={COMMAND} exec -- /bin/sh -c '{command}; exec /usr/bin/llama-server'\n"


# It serves again


@pytest.mark.parametrize(
    ("mode", "decoding", "evidence", "budget"),
    [("block", False, "blocked", 4.0), ("block", True, "blocked", 4.0), ("spin", True, "spinning", 6.0)],
)
def test_a_wedged_server_serves_again(
    parent: Parent, mode: str, decoding: bool, evidence: str, budget: float
) -> None:
    """In time, by one restart below the same parent, which climbs its own ladder."""
    parent.begin()
    if decoding:
        generation = parent.client.start_decoding()
        parent.wait_for(10, verdict="busy")
        generation.flow()
    before = parent.server()
    parent.wedge(mode, DECODE if decoding else "")
    took = healed_in_place(parent, before, within=budget + 20.0)
    assert parent.wait_for(1, verdict="wedged")["evidence"] == evidence, parent.story()
    order = actions(parent.events())
    # The first rung is said to be unsupported, without CAP_NET_ADMIN, and is left out where /slots hangs.
    rungs = LADDER[0 if decoding else 1 : -1]
    assert order[:-1] == rungs[: len(order) - 1], parent.story()
    assert order[-1] == "restart"
    assert parent.show(WATCHDOG, "ActiveState") == "inactive"
    print(f"{mode}, {'decoding' if decoding else 'idle'}: served again after {took:.1f} s")  # noqa: T201  a figure


def test_a_killed_server_serves_again(parent: Parent) -> None:
    parent.begin()
    before = parent.server()
    parent.testbed.run("kill", "-KILL", str(before))
    took = healed_in_place(parent, before, within=10.0)
    assert actions(parent.events()) == ["restart"], parent.story()
    print(f"killed: served again after {took:.1f} s")  # noqa: T201  a figure


def test_a_fork_with_the_listening_socket(parent: Parent) -> None:
    """It outlives the server that is killed, and would keep its port: it is killed, too."""
    parent.begin()
    before = parent.server()
    child = forked.fork(parent.seen_outside())
    wait_until(parent.client.serves, 15.0, "the server to serve, which has noticed nothing")
    parent.testbed.run("kill", "-KILL", str(before))
    healed_in_place(parent, before, child, within=20.0)
    assert parent.testbed.run("test", "-e", f"/proc/{child}", check=False).returncode == 1
    assert actions(parent.events()) == ["sigkill", "restart"], parent.story()


def test_our_own_death_costs_one_restart_and_leaves_nothing(parent: Parent) -> None:
    """Also beside a wedged server, which nobody could ask to end."""
    parent.begin()
    (_, main, _), server = parent.life(), parent.server()
    parent.wedge("block")
    parent.testbed.run("kill", "-KILL", main)
    began = time.monotonic()
    wait_until(lambda: parent.server() not in (0, server), 30.0, "systemd to start it again")
    wait_until(parent.client.serves, LOAD, "the server to serve again")
    print(f"killed ourselves: served again after {time.monotonic() - began:.1f} s")  # noqa: T201  a figure
    wait_until(lambda: parent.state()[0] == "active", LOAD, "the unit to be ready")
    life = parent.life()
    assert life[2] == "1"
    assert parent.testbed.run("test", "-e", f"/proc/{server}", check=False).returncode == 1
    stays_true(lambda: parent.life() == life, 5.0, "one start")
    assert actions(parent.events()) == [], parent.story()


# A start


def test_a_start_lasts_until_the_model_is_loaded(parent: Parent) -> None:
    """Also where that takes longer than systemd would wait for it."""
    parent.clean()
    with dropin(parent, "TimeoutStartSec=5\n" + behind("sleep 9")):
        began = time.monotonic()
        parent.systemctl("start", SERVER, timeout=LOAD)
        assert parent.client.healthy()
        assert time.monotonic() - began > 9.0
        parent.wait_for(LOAD, verdict="idle")
        wait_until(lambda: "chat: idle" in parent.show(SERVER, "StatusText"), 5.0, "the status line")
        assert "Status: " in parent.systemctl("status", SERVER)
        assert actions(parent.events()) == [], parent.story()
        parent.clean()


@pytest.mark.parametrize("served", [False, True], ids=["from-the-start", "later"])
def test_a_server_that_cannot_start_is_given_up(parent: Parent, served: bool) -> None:
    """After its limit, as a failure of the server's own, which systemd does not try again; a person can."""
    missing = "if test -e /run/missing; then export LLAMA_ARG_MODEL=/no/such.gguf; fi"
    parent.clean(LIMITS)
    with dropin(parent, behind(missing)):
        if served:
            parent.begin(LIMITS)
        parent.testbed.write("/run/missing", "")
        try:
            if served:
                parent.testbed.run("kill", "-KILL", str(parent.server()))
            else:
                parent.testbed.run("systemctl", "start", SERVER, timeout=LOAD, check=False)
            wait_until(lambda: parent.state()[0] == "failed", LOAD, "it to be given up")
            assert "exit status 1" in parent.wait_for(1, action="hold")["text"]
            assert parent.state() == ("failed", "exit-code", "1"), parent.story()
            stays_true(lambda: parent.state()[0] == "failed", 4.0, "the unit to stay failed")
            assert parent.show(SERVER, "NRestarts") == "0"
            assert actions(parent.events()) == ["restart", "restart", "hold"], parent.story()
            assert parent.is_cleared()
        finally:
            parent.testbed.run("rm", "/run/missing")
        parent.mark()
        parent.systemctl("start", SERVER, timeout=LOAD)  # the hold does not outlive a person's start
        parent.wait_for(LOAD, verdict="idle")
        assert parent.client.healthy()


# A stop


def test_a_stop_of_a_healthy_server_is_quick_and_clean(parent: Parent) -> None:
    parent.begin()
    began = time.monotonic()
    parent.systemctl("stop", SERVER)  # idle: with a stream open it takes llama-server itself 30 s to end
    took = time.monotonic() - began
    assert took < 10.0  # and not the 90 of TimeoutStopSec=
    assert parent.state()[:2] == ("inactive", "success"), parent.story()
    stays_true(lambda: parent.state()[0] == "inactive", 4.0, "it to stay stopped")
    assert actions(parent.events()) == [], parent.story()
    assert parent.is_cleared()
    print(f"stopped after {took:.1f} s")  # noqa: T201  a figure


def test_a_stop_of_a_wedged_server_is_quick(parent: Parent) -> None:
    """SIGKILL to what is known to hear nothing. Hands off before, or a second SIGTERM might do."""
    parent.begin()
    parent.watchdog("pause", "chat")
    wait_until(lambda: "paused by its admin" in parent.show(SERVER, "StatusText"), 5.0, "it to be heard")
    parent.wedge("block")
    parent.wait_for(30, verdict="wedged")
    began = time.monotonic()
    parent.systemctl("stop", SERVER, timeout=120)
    took = time.monotonic() - began
    assert took < 10.0, parent.story()
    stays_true(lambda: parent.server() == 0, 4.0, "it to stay stopped")
    assert actions(parent.events()) == [], parent.story()
    assert parent.is_cleared()
    print(f"stopped, wedged, after {took:.1f} s")  # noqa: T201  a figure


# As process 1


class Contained(Parent):
    """Process 1 of a pid namespace, as in a container; what is outside of it is a transient unit."""

    unit = "contained.service"
    # As many an image has it: a script around the server, with an exit status of its own.
    entrypoint = 'trap "exit 7" TERM; llama-server & wait $!'

    def start(self) -> None:
        """Start it, and wait until it is seen idle."""
        self.testbed.write(CONFIG, SETTINGS)
        self.mark()
        options = [f"--setenv={key}={value}" for key, value in SERVER_DEFAULTS.items()]
        options += [f"--unit={self.unit}", "--remain-after-exit", "--property=StateDirectory=contained"]
        options += ["--expand-environment=no"]
        inside = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", COMMAND, "exec", "--"]
        self.testbed.run("systemd-run", *options, *inside, "sh", "-c", self.entrypoint)
        self.wait_for(LOAD, verdict="idle")
        self.mark()

    def first(self) -> str:
        """The pid, outside of the namespace, of its process 1."""
        return self.testbed.run("pgrep", "--parent", str(self.main_pid(self.unit))).stdout.strip()

    def end(self) -> None:
        """Nothing of it is left."""
        for command in (["kill", "--signal=KILL"], ["stop"], ["reset-failed"]):
            self.testbed.run("systemctl", *command, self.unit, check=False)


@pytest.fixture
def contained(parent: Parent) -> Iterator[Contained]:
    parent.clean()
    contained = Contained(parent.testbed)
    try:
        contained.start()
        yield contained
    finally:
        contained.end()


def test_as_process_1_of_a_container(contained: Contained) -> None:
    """The server is brought back, what it has left is reaped, a SIGTERM passed on, and so the exit status."""
    before = contained.server()
    forked.fork(contained.seen_outside())
    (child,) = set(contained.pids()) - {before}
    contained.testbed.run("kill", "-KILL", str(before))
    took = healed_in_place(contained, before, child, within=20.0)
    print(f"killed, below process 1: served again after {took:.1f} s")  # noqa: T201  a figure
    states = contained.testbed.run("ps", "-e", "-o", "stat=").stdout.split()
    assert not [state for state in states if state.startswith("Z")]

    contained.testbed.run("kill", "-TERM", contained.first())
    wait_until(lambda: contained.state()[0] == "failed", 10.0, "its end")
    assert contained.state() == ("failed", "exit-code", "7"), contained.story()
    assert contained.is_cleared()
