"""An ordinary user's own llama-server: a unit of `systemctl --user`, and llama-watchdog as shipped for that.

Belongs here: the user, with a manager of his own that no login started, and `House` as it is below his roof.
The admin's two units are there too, under the same names, and never run.

There is no logind in the testbed. Of what it would do, Debian's user@.service lacks only XDG_RUNTIME_DIR. And
no session bus: `systemctl --user` speaks to the manager by its private socket, as where dbus-user-session is
missing.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tests.e2e.ground.events import Event, events_of
from tests.e2e.ground.house import SERVER, SERVER_DEFAULTS, WATCHDOG, House
from tests.e2e.ground.package import CHECKOUT, COMMAND, VENV
from tests.e2e.ground.testbed import Testbed
from tests.e2e.ground.waiting import wait_until

USER = "alice"
UID = 1000
HOME = f"/home/{USER}"
MANAGER = f"user@{UID}.service"
SHIPPED = CHECKOUT / "systemd/user" / WATCHDOG
_RUNTIME = f"/run/user/{UID}"
_UNITS = f"{HOME}/.config/systemd/user"
_CONFIG = f"{HOME}/.config/llama-watchdog/config.toml"
_STATE = f"{HOME}/.local/state/llama-watchdog"
_SAID = f"{HOME}/doctor.jsonl"
_SERVER_UNIT = "[Service]\nExecStart=/usr/bin/llama-server\n" + "".join(
    f"Environment={name}={value}\n" for name, value in SERVER_DEFAULTS.items()
)


class UsersHouse(House):
    """As `House`, but both services are the user's, and `systemctl` and `watchdog` are run by him."""

    def __init__(self, testbed: Testbed) -> None:
        super().__init__(testbed)
        testbed.write("/etc/sysusers.d/e2e-user.conf", f'u {USER} {UID} "An ordinary user" {HOME} /bin/sh\n')
        testbed.run("systemd-sysusers")
        testbed.run("install", "-d", f"--owner={USER}", f"--group={USER}", HOME)
        self.write(f"{_UNITS}/{SERVER}", _SERVER_UNIT)
        self.write(f"{_UNITS}/{WATCHDOG}", SHIPPED.read_text())
        self.run("mkdir", "-p", f"{HOME}/.local/share")
        self.run("ln", "-sfn", VENV, f"{HOME}/.local/share/llama-watchdog")
        instead_of_logind = "[Service]\nEnvironment=XDG_RUNTIME_DIR=/run/user/%i\n"
        testbed.write("/etc/systemd/system/user@.service.d/e2e.conf", instead_of_logind)
        testbed.run("systemctl", "daemon-reload")
        testbed.run("systemctl", "start", MANAGER)

    def run(self, *command: str, stdin: str | None = None, timeout: float = 60.0, check: bool = True) -> str:
        """What a command says that the user runs, in a shell of his; RuntimeError where it fails."""
        who = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups", "--inh-caps=-all"]
        where = ["env", f"HOME={HOME}", f"USER={USER}", f"XDG_RUNTIME_DIR={_RUNTIME}"]
        return self.testbed.run(*who, *where, *command, stdin=stdin, timeout=timeout, check=check).stdout

    def write(self, path: str, text: str) -> None:
        """Write a file as the user, its folder with it."""
        self.run("sh", "-c", 'mkdir -p "$(dirname "$1")" && cat >"$1"', "sh", path, stdin=text)

    def systemctl(self, *arguments: str, timeout: float = 60.0) -> str:
        return self.run("systemctl", "--user", *arguments, timeout=timeout)

    def watchdog(self, *arguments: str, timeout: float = 60.0) -> str:
        return self.run(COMMAND, *arguments, timeout=timeout)

    def fresh(self, config: str) -> None:
        self._stop()
        self.run("rm", "-rf", _STATE)
        self.start_server()
        self.mark()
        self.write(_CONFIG, config)
        self.systemctl("start", WATCHDOG)

    def start_server(self) -> None:
        self.systemctl("start", SERVER)
        try:
            wait_until(self.client.serves, 60.0, "the server to serve")
        except TimeoutError as error:
            status = self.run("systemctl", "--user", "status", "--full", SERVER, check=False)
            raise AssertionError(f"{error}\n{status}") from None

    def doctor(self) -> dict[str, str]:
        """The outcome of each check, from within the sandbox that the shipped unit makes for the daemon."""
        kept = r"(?m)^(?:NoNew|Protect|Private|Lock|MemoryDeny|Restrict|SystemCall|UMask)\w*=.*\n"
        sandbox = "".join(re.findall(kept, SHIPPED.read_text()))
        command = f"{COMMAND} doctor --config {_CONFIG} --json"
        text = f"[Service]\nType=oneshot\nExecStart={command}\nStandardOutput=truncate:{_SAID}\n{sandbox}"
        # A unit of its own: systemd-run would want a session bus.
        self.write(f"{_UNITS}/doctor.service", text)
        self.systemctl("daemon-reload")
        self.run("systemctl", "--user", "start", "doctor.service", check=False)
        checks = [json.loads(line) for line in self.run("cat", _SAID).splitlines()]
        return {check["check"]: check["outcome"] for check in checks}

    def events(self) -> list[Event]:
        said = self.journal(f"_UID={UID}", f"_SYSTEMD_USER_UNIT={WATCHDOG}")
        return events_of(str(entry["MESSAGE"]) for entry in said)

    def starts(self) -> int:
        """How often the user's manager has started the server since `mark`."""
        said = self.journal(f"_UID={UID}", f"USER_UNIT={SERVER}")
        return sum(str(entry["MESSAGE"]).startswith("Started ") for entry in said)

    def story(self) -> str:
        def tells(entry: dict[str, Any]) -> bool:
            return entry.get("_SYSTEMD_USER_UNIT") != SERVER

        entries = [entry for entry in self.journal() if tells(entry)]
        return "\n".join(f"{entry.get('SYSLOG_IDENTIFIER')}: {entry['MESSAGE']}" for entry in entries[-80:])

    def _stop(self) -> None:
        self.systemctl("stop", WATCHDOG)
        self.systemctl("stop", "--no-block", SERVER)
        self.run("systemctl", "--user", "kill", "--signal=KILL", SERVER, check=False)
        self.systemctl("stop", SERVER)
        self.systemctl("reset-failed")
