"""A machine as an admin has it: Debian's llama-server.service as it comes, and llama-watchdog beside it.

Belongs here: configuring the two services inside a testbed, wedging the server, and reading what the machine
says of them. The services talk on the testbed's loopback; `client` is a user there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e.ground import package, wedge
from tests.e2e.ground.events import Event, events_of
from tests.e2e.ground.llama_client import LlamaClient, connect_in
from tests.e2e.ground.llama_root import MODEL
from tests.e2e.ground.package import CHECKOUT, COMMAND
from tests.e2e.ground.testbed import Testbed
from tests.e2e.ground.waiting import wait_until

SERVER = "llama-server.service"
WATCHDOG = "llama-watchdog.service"
SERVER_NAME = SERVER.removesuffix(".service")
PORT = 8080
CONFIG = "/etc/llama-watchdog/config.toml"
# llama-server takes all of its options from the environment, too: that is how Debian's unit is configured.
SERVER_DEFAULTS = {
    "LLAMA_ARG_MODEL": MODEL,
    "LLAMA_ARG_HOST": "127.0.0.1",
    "LLAMA_ARG_PORT": str(PORT),
    "LLAMA_ARG_THREADS": "2",
    "LLAMA_ARG_CTX_SIZE": "4096",
}


class House:
    """The two services in a testbed. Times are as the journal's, in seconds."""

    def __init__(self, testbed: Testbed) -> None:
        self.testbed = testbed
        self.client = LlamaClient(PORT, connect_in(testbed.network))
        self._cursor = ""
        testbed.write("/etc/default/llama-server", "".join(f"{k}={v}\n" for k, v in SERVER_DEFAULTS.items()))
        package.install_service(testbed)

    def systemctl(self, *arguments: str, timeout: float = 60.0) -> str:
        """Run systemctl as the admin."""
        return self.testbed.run("systemctl", *arguments, timeout=timeout).stdout

    def show(self, unit: str, name: str) -> str:
        """One property of a unit."""
        return self.systemctl("show", unit, f"--property={name}", "--value").strip()

    def install_dropin(self, name: str) -> None:
        """One of the drop-ins shipped in systemd/, by its name alone, as "exec"; both services are stopped.

        It takes the place of any other of the same unit, and stays until `remove_dropins`.
        """
        (source,) = (CHECKOUT / "systemd").glob(f"*.service.d/{name}.conf")
        self._stop()
        self.testbed.copy(source, f"/etc/systemd/system/{source.parent.name}/llama-watchdog.conf")
        self.systemctl("daemon-reload")

    def remove_dropins(self) -> None:
        """The units as they were; both services are stopped."""
        self._stop()
        for unit in (SERVER, WATCHDOG):
            self.testbed.run("rm", "-rf", f"/etc/systemd/system/{unit}.d")
        self.systemctl("daemon-reload")

    def main_pid(self, unit: str = SERVER) -> int:
        """The pid inside of a unit's main process; 0 where none runs."""
        return int(self.show(unit, "MainPID"))

    def server_pid(self) -> int:
        """The pid inside of the one llama-server, wherever in its unit it runs."""
        return int(self.testbed.run("pgrep", "--exact", "llama-server").stdout)

    def fresh(self, config: str) -> None:
        """Both services started anew, with nothing remembered, and that configuration of llama-watchdog."""
        self._stop()
        self.testbed.run("rm", "-rf", "/var/lib/llama-watchdog", f"/var/lib/llama-watchdog-{SERVER_NAME}")
        self.start_server()
        self.mark()
        self.testbed.write(CONFIG, config)
        self.systemctl("start", WATCHDOG)

    def _stop(self) -> None:
        self.systemctl("stop", WATCHDOG)
        # A wedged server would keep a stop waiting for TimeoutStopSec= of 90 s. The stop is asked for first,
        # or a unit with Restart= would start again.
        self.systemctl("stop", "--no-block", SERVER)
        self.testbed.run("systemctl", "kill", "--signal=KILL", SERVER, check=False)
        self.systemctl("stop", SERVER)
        self.systemctl("reset-failed")

    def start_server(self) -> None:
        """Start the server's unit, and wait until a completion is answered."""
        self.systemctl("start", SERVER)
        try:
            wait_until(self.client.serves, 60.0, "the server to serve")
        except TimeoutError as error:
            status = self.testbed.run("systemctl", "status", "--lines=40", "--full", SERVER, check=False)
            raise AssertionError(f"{error}\n{status.stdout}") from None

    def wedge(self, mode: str, within: str = "") -> None:
        """As `RealServer.wedge`."""
        source = Path(wedge.__file__).read_text()
        self.testbed.run("python3", "-", str(self.server_pid()), mode, within, stdin=source)

    def watchdog(self, *arguments: str, timeout: float = 60.0) -> str:
        """Run a command of llama-watchdog as the admin."""
        return self.testbed.run(COMMAND, *arguments, timeout=timeout).stdout

    def mark(self) -> None:
        """From now on, `journal` and `events` begin here."""
        out = self.testbed.run("journalctl", "--lines=1", "--output=json").stdout
        self._cursor = json.loads(out)["__CURSOR"]

    def journal(self, *filters: str) -> list[dict[str, Any]]:
        """Entries of the journal since `mark`, as journalctl's JSON."""
        options = ["--output=json", "--all", f"--after-cursor={self._cursor}", *filters]
        return [json.loads(line) for line in self.testbed.run("journalctl", *options).stdout.splitlines()]

    def events(self) -> list[Event]:
        """The events of llama-watchdog since `mark`."""
        return events_of(str(entry["MESSAGE"]) for entry in self.journal(f"--unit={WATCHDOG}"))

    def wait_for(self, timeout: float, **wanted: object) -> Event:
        """The first event since `mark` that has all of these values, once it comes."""

        def find() -> Event | None:
            return next((event for event in self.events() if wanted.items() <= event.items()), None)

        try:
            return wait_until(find, timeout, f"the event {wanted}")
        except TimeoutError as error:
            raise AssertionError(f"{error}; the journal says:\n{self.story()}") from None

    def starts(self) -> int:
        """How often systemd has started the server since `mark`."""
        said = [entry["MESSAGE"] for entry in self.journal("_PID=1") if entry.get("UNIT") == SERVER]
        return sum(str(message).startswith("Started ") for message in said)

    def story(self) -> str:
        """Everything the journal says since `mark` but for the server's own chatter: for failing tests."""
        entries = [entry for entry in self.journal() if entry.get("_SYSTEMD_UNIT") != SERVER]
        return "\n".join(f"{entry.get('SYSLOG_IDENTIFIER')}: {entry['MESSAGE']}" for entry in entries[-80:])
