"""The one adapter for container engines: Docker's Engine API on a unix socket, as Podman has it, too.

What belongs here is where the socket is and how it is asked; what it answers is read in `engine_answers`, and
what to do about that is decided elsewhere.

Paths carry no version: each engine then speaks its own latest, whose answers have not changed in what is read
of them, while any fixed version is too old or too new for some (Docker 29 takes none before 1.40).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from llama_watchdog.core.observation import Outcome
from llama_watchdog.supervisors import engine_answers
from llama_watchdog.supervisors.engine_answers import Inspected, StopEvent

_ANSWER_BYTES = 1024 * 1024  # an inspect is 10 kB, an event 0.5 kB, and Docker keeps 256 of those
_TELLS_WHO_STOPPED = (4, 7)  # Podman, in its own inspect alone
_NO_SOCKET = (
    "no container engine's socket is there: is Docker running, or Podman's socket enabled "
    "(systemctl --user enable --now podman.socket)? Another path goes into DOCKER_HOST=unix:///PATH"
)


class EngineError(Exception):
    """Why there is no answer, in one line with the remedy; `outcome` is TIMEOUT where it was too late."""

    def __init__(self, outcome: Outcome, text: str) -> None:
        super().__init__(text)
        self.outcome = outcome


def sockets(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Where an engine may listen, at least one; only the one that a variable names, where it does.

    Raises EngineError where there is none.
    """
    for name in ("DOCKER_HOST", "CONTAINER_HOST"):
        if environ.get(name, "").startswith("unix://"):
            return [Path(environ[name].removeprefix("unix://"))]
    usual = ["/run/docker.sock", "/var/run/docker.sock", "/run/podman/podman.sock"]
    if environ.get("XDG_RUNTIME_DIR"):
        usual.append(f"{environ['XDG_RUNTIME_DIR']}/podman/podman.sock")
    found: dict[str, Path] = {}  # /var/run is mostly a link to /run, and docker.sock may be one to Podman's
    for path in map(Path, usual):
        if _is_socket(path):
            found.setdefault(os.path.realpath(path), path)
    if not found:
        raise EngineError(Outcome.UNSUPPORTED, _NO_SOCKET)
    return list(found.values())


class EngineApi:
    """One engine. Each call has a timeout in seconds for each request, and raises EngineError only."""

    def __init__(self, socket: Path, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        """`transport`: another way than the socket."""
        self.socket = socket
        self._transport = transport

    async def inspect(self, name: str, *, timeout: float) -> Inspected | None:  # noqa: ASYNC109 - EngineError
        """The container of this name or id; None: there is none."""
        path = f"/containers/{quote(name, safe='')}/json"
        answer = await self._ask("GET", path, timeout)
        if answer.status == 404:
            return None
        body = answer.json()
        stopped_by_user = None
        if answer.podman >= _TELLS_WHO_STOPPED and not engine_answers.part(body, "State").get("Pid"):
            native = await self._ask("GET", f"/v4.0.0/libpod{path}", timeout)
            state = engine_answers.part(native.json(), "State")
            stopped_by_user = state.get("StoppedByUser") is True  # left out where it is false
        return engine_answers.inspected(body, podman=bool(answer.podman), stopped_by_user=stopped_by_user)

    async def stop_events(
        self,
        container: Inspected,
        *,
        since: float,
        until: float,
        timeout: float,  # noqa: ASYNC109 - EngineError
    ) -> list[StopEvent]:
        """Which kills and stops of it were asked of the engine between two times, oldest first.

        Docker tells those of its last 256 events of whatever kind, and none from before its own start.
        """
        kinds = ["kill", "stop", "cleanup"] if container.podman else ["kill", "stop"]
        query = {
            "since": f"{since:.6f}",
            "filters": json.dumps({"container": [container.id], "event": kinds}),
        }
        # Docker ends its answer at `until`. Podman 4.3 with its events in a file tells nothing once that
        # has passed (measured), but ends at the latest event where it is told not to stream.
        query |= {"stream": "false"} if container.podman else {"until": f"{until:.6f}"}
        answer = await self._ask("GET", "/events", timeout, query)
        return engine_answers.stop_events(answer.json_lines())

    async def kill(self, container: str, sig: signal.Signals, *, timeout: float) -> None:  # noqa: ASYNC109 - EngineError
        """Send a signal to its first process. With SIGKILL the engine answers once that has ended."""
        await self._order(container, "kill", timeout, {"signal": sig.name})

    async def start(self, container: str, *, timeout: float) -> None:  # noqa: ASYNC109 - EngineError
        """Start it; no error where it runs already."""
        await self._order(container, "start", timeout)

    async def restart(self, container: str, *, timeout: float) -> None:  # noqa: ASYNC109 - EngineError
        """Kill what runs in it, without a grace, and start it."""
        await self._order(container, "restart", timeout, {"t": "0"})

    async def _order(
        self, container: str, verb: str, within: float, query: Mapping[str, str] | None = None
    ) -> None:
        answer = await self._ask("POST", f"/containers/{quote(container, safe='')}/{verb}", within, query)
        if answer.status not in (204, 304):  # 304: it is so already
            raise EngineError(Outcome.ERROR, answer.said())

    async def _ask(
        self, method: str, path: str, within: float, query: Mapping[str, str] | None = None
    ) -> _Answer:
        transport = self._transport or httpx.AsyncHTTPTransport(
            verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),  # no TLS here: saves loading certificates
            trust_env=False,
            uds=str(self.socket),
        )
        try:
            async with (
                asyncio.timeout(within),
                httpx.AsyncClient(transport=transport, trust_env=False, timeout=within) as client,
                client.stream(method, f"http://localhost{path}", params=query) as response,
            ):
                body = b""
                async for piece in response.aiter_bytes():
                    body += piece
                    if len(body) > _ANSWER_BYTES:
                        raise EngineError(Outcome.MALFORMED, f"{self.socket}: more than 1 MB of answer")
                version = engine_answers.version(response.headers.get("libpod-api-version", ""))
                return _Answer(response.status_code, body, version)
        except (TimeoutError, httpx.TimeoutException):
            raise EngineError(Outcome.TIMEOUT, f"no answer on {self.socket} within {within:g} s") from None
        except httpx.HTTPError as error:
            raise self._unreached(error) from None

    def _unreached(self, error: httpx.HTTPError) -> EngineError:
        if not _is_socket(self.socket):
            return EngineError(Outcome.UNSUPPORTED, f"{self.socket}: {_NO_SOCKET}")
        if not os.access(self.socket, os.W_OK):
            why = "needs root, or for Docker the group docker, which is as good as root"
            return EngineError(Outcome.UNSUPPORTED, f"no right to use {self.socket}: {why}")
        said = engine_answers.one_line(str(error)) or type(error).__name__
        return EngineError(Outcome.ERROR, f"{self.socket}: {said}")


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: bytes
    podman: tuple[int, ...]  # its version; () is Docker

    def json(self) -> dict[str, Any]:
        """The object that it is. Raises EngineError where it is an error, or none."""
        found = engine_answers.json_object(self.body)
        if self.status != 200:
            raise EngineError(Outcome.ERROR, self.said())
        if found is None:
            raise EngineError(Outcome.MALFORMED, "the container engine answered, but not with JSON")
        return found

    def json_lines(self) -> list[dict[str, Any]]:
        if self.status != 200:
            raise EngineError(Outcome.ERROR, self.said())
        lines = map(engine_answers.json_object, self.body.splitlines())
        return [found for found in lines if found is not None]

    def said(self) -> str:
        message = (engine_answers.json_object(self.body) or {}).get("message")
        if not message:
            return f"HTTP status {self.status} of the container engine"
        return engine_answers.one_line(str(message))


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False
