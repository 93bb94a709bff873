"""A house whose watchdog has accidents: its unit runs `crash.py`, which a file tells what shall happen.

Belongs here: the outside of `crash.py`, and a bystander who would notice a signal that was meant for another.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e.ground import crash, wedge
from tests.e2e.ground.house import WATCHDOG, House
from tests.e2e.ground.package import VENV
from tests.e2e.ground.waiting import wait_until

USER = "llama-watchdog"
KEPT = "/var/lib/accident"  # apart from the state, which some tests break
SPEC = "/etc/llama-watchdog/accident.json"
_SCRIPT = "/opt/accident/crash.py"
_DROPIN_FILE = f"/run/systemd/system/{WATCHDOG}.d/accident.conf"
_DROPIN = f"""[Service]
ExecStart=
ExecStart={VENV}/bin/python {_SCRIPT} {SPEC}
ReadWritePaths={KEPT}
"""
# Of the server's name, as a script's is its file's. It is the watchdog's own user's: who may signal it.
_BYSTANDER = "/opt/bystander/llama-server"
_LISTENER = """#!/usr/bin/python3
import signal
def hear(number, frame):
    print("heard", signal.Signals(number).name, flush=True)
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
    signal.signal(number, hear)
print("listening", flush=True)
while True:
    signal.pause()
"""


class Accidents:
    """What happens to the watchdog of a house; nothing, until `plan` says so."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._testbed = house.testbed
        self._testbed.copy(Path(crash.__file__), _SCRIPT)
        self.plan()
        self._testbed.write(_DROPIN_FILE, _DROPIN)
        house.systemctl("daemon-reload")

    def end(self) -> None:
        """From its next start on, the watchdog is as it was."""
        self._testbed.run("rm", _DROPIN_FILE)
        self._house.systemctl("daemon-reload")

    def plan(self, at: str = "", *, deaf: bool = False) -> None:
        """For the lives to come; see `crash.py`. What was written down of former ones is gone."""
        self._testbed.run("rm", "-rf", KEPT)
        self._testbed.run("install", "--directory", f"--owner={USER}", KEPT)
        self._testbed.write(SPEC, json.dumps({"at": at, "deaf": deaf, "kept": KEPT}))

    def happened(self) -> str:
        """The point at which the watchdog was killed; "" before."""
        return self._testbed.run("cat", f"{KEPT}/crashed", check=False).stdout

    def orders(self) -> list[dict[str, Any]]:
        """Each order that was carried out, in the words of `crash.py`."""
        said = self._testbed.run("cat", f"{KEPT}/orders", check=False).stdout
        return [json.loads(line) for line in said.splitlines()]


class Bystander:
    """Another process by the name of llama-server, in no unit of the server's, that tells of each signal."""

    UNIT = "bystander.service"

    def __init__(self, house: House) -> None:
        self._house = house
        house.testbed.write(_BYSTANDER, _LISTENER, mode=0o755)
        house.testbed.run("systemd-run", f"--unit={self.UNIT}", f"--uid={USER}", _BYSTANDER)
        wait_until(lambda: "listening" in self._said(), 10.0, "the bystander to listen")
        assert house.testbed.run("cat", f"/proc/{house.main_pid(self.UNIT)}/comm").stdout == "llama-server\n"

    def unhurt(self) -> bool:
        """Whether it lives, and has got no signal at all."""
        return self._house.show(self.UNIT, "ActiveState") == "active" and "heard" not in self._said()

    def end(self) -> None:
        """It goes its way."""
        self._house.testbed.run("systemctl", "kill", "--signal=KILL", self.UNIT)
        self._house.testbed.run("systemctl", "stop", self.UNIT, check=False)
        self._house.testbed.run("systemctl", "reset-failed", self.UNIT, check=False)

    def _said(self) -> str:
        command = ["journalctl", "--boot", "--output=cat", f"--unit={self.UNIT}"]
        invocation = self._house.show(self.UNIT, "InvocationID")
        return self._house.testbed.run(*command, f"_SYSTEMD_INVOCATION_ID={invocation}").stdout


def wedge_in_decode(house: House, pid: int) -> None:
    """As `House.wedge`, also where another process has the server's name."""
    source = Path(wedge.__file__).read_text()
    house.testbed.run("python3", "-", str(pid), "block", wedge.DECODE, stdin=source)
