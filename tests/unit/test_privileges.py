"""Capabilities and the programs we start: none is handed on but to the one program that needs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from llama_watchdog.privileges import CAPABILITIES, ambient, drop_ambient

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv to give capabilities"
)
NET_ADMIN, SYS_PTRACE = 1 << CAPABILITIES["net_admin"], 1 << CAPABILITIES["sys_ptrace"]
# What a program that is started may do, and then what the starting process may.
HELPERS = """
import subprocess, sys
from llama_watchdog.privileges import ambient, drop_ambient

def effective(status):
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff")), 16)

def child():
    return effective(subprocess.run(["cat", "/proc/self/status"], stdout=-1, text=True, timeout=10).stdout)
"""


def ran(script: str, *setpriv: str) -> list[str]:
    """What `script` prints as root without root's privileges (noroot), started by `setpriv` with options."""
    command = ["setpriv", "--securebits", "+noroot", *setpriv, sys.executable, "-c", HELPERS + script]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def given(*capabilities: str) -> list[str]:
    """As systemd does with AmbientCapabilities= and CapabilityBoundingSet=."""
    names = ",".join(f"+{name}" for name in capabilities)
    return [
        "--inh-caps",
        f"-all,{names}",
        "--ambient-caps",
        f"-all,{names}",
        "--bounding-set",
        f"-all,{names}",
    ]


@needs_root
def test_without_a_word_every_program_inherits() -> None:
    """What the rest is for; and the proof that these tests give what they mean to give."""
    assert ran("print(child())", *given("net_admin")) == [str(NET_ADMIN)]


@needs_root
def test_once_dropped_no_program_inherits_and_we_keep_ours() -> None:
    script = "print(drop_ambient(), child(), effective(open('/proc/self/status').read()))"
    assert ran(script, *given("net_admin", "sys_ptrace")) == ["True", "0", str(NET_ADMIN | SYS_PTRACE)]


@needs_root
def test_one_capability_is_raised_for_one_program() -> None:
    """The other one, which was given as well, stays dropped; after it nothing is inherited again."""
    script = "drop_ambient()\nwith ambient('net_admin') as raised: print(raised, child())\nprint(child())"
    assert ran(script, *given("net_admin", "sys_ptrace")) == ["True", str(NET_ADMIN), "0"]


@needs_root
def test_several_are_raised_for_one_program() -> None:
    """As for a tool that shows stacks, which needs two."""
    script = "drop_ambient()\nwith ambient('net_admin', 'sys_ptrace') as raised: print(raised, child())"
    script += "\nprint(child())"
    assert ran(script, *given("net_admin", "sys_ptrace")) == ["True", str(NET_ADMIN | SYS_PTRACE), "0"]
    assert ran(script, *given("net_admin")) == ["False", str(NET_ADMIN), "0"]


@needs_root
def test_it_is_lowered_again_after_an_error() -> None:
    script = (
        "drop_ambient()\ntry:\n    with ambient('net_admin'): 1 / 0\nexcept ZeroDivisionError: print(child())"
    )
    assert ran(script, *given("net_admin")) == ["0"]


@needs_root
def test_within_itself_the_outer_one_decides() -> None:
    script = "drop_ambient()\nwith ambient('net_admin'):\n with ambient('net_admin'): pass\n print(child())"
    assert ran(script, *given("net_admin")) == [str(NET_ADMIN)]


@needs_root
@pytest.mark.parametrize(
    "rights", [["--bounding-set", "-all"], given("sys_ptrace")], ids=["none at all", "another one"]
)
def test_what_was_not_given_is_not_raised(rights: list[str]) -> None:
    script = "drop_ambient()\nwith ambient('net_admin') as raised: print(raised, child())"
    assert ran(script, *rights) == ["False", "0"]


@needs_root
def test_another_thread_does_not_inherit_what_is_raised_meanwhile() -> None:
    """A probe's thread that runs beside it starts nothing by our rights."""
    script = """
import threading
drop_ambient()
with ambient("net_admin"):
    pass
seen, go = [], threading.Event()
thread = threading.Thread(target=lambda: (go.wait(10), seen.append(child())))
thread.start()
with ambient("net_admin"):
    go.set()
    thread.join()
print(*seen)
"""
    assert ran(script, *given("net_admin")) == ["0"]


def test_harmless_for_whoever_runs_it() -> None:
    """As root, in a container, as a user without any right: programs are started as ever."""
    drop_ambient()
    with ambient("net_admin"):
        assert subprocess.run(["true"], check=False, timeout=10).returncode == 0


def test_a_capability_that_nothing_needs_is_an_error_of_ours() -> None:
    with pytest.raises(KeyError), ambient("sys_admin"):
        pass
