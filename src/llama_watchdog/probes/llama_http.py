"""Asking a llama-server over HTTP, gently: the one place that knows httpx.

Everything that can happen to a request becomes an `Outcome`; what an answer's words mean is `core.wire`'s to
say. Gentle means: one request in flight for each endpoint, ever, since on older builds each hung one holds
one of the server's HTTP threads; no kept-alive connections, for they hold one too; nothing asked unbidden.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import httpx

from llama_watchdog.core import wire
from llama_watchdog.core.asking import Ask
from llama_watchdog.core.observation import Canary, Health, Metrics, Outcome, Props, Slots
from llama_watchdog.probes import http_target
from llama_watchdog.probes.inflight import OneInFlight

MAX_BODY = 16 << 20  # bytes: /slots carries every prompt where LLAMA_SERVER_SLOTS_DEBUG is set
CANARY_TIMEOUT = 300.0  # seconds: one token, on the slowest of machines, behind its own load
_CANARY = b'{"prompt": ".", "n_predict": 1, "cache_prompt": false}'
_MAX_WORDS = 64 << 10  # bytes of /health, and of any refusal
# A unix socket connects at once, or its queue is full, as a stopped server's is in the end; then anyio, under
# httpx, retries without a pause. So let it try for 20 ms every half second.
_UNIX_CONNECT, _UNIX_PAUSE = 0.02, 0.5

_Meaning = Callable[[int, object], Outcome]  # of an HTTP status, and a refusal's decoded body


@dataclass(frozen=True, slots=True)
class HttpFacts:
    """What one look saw of each endpoint."""

    health: Health
    slots: Slots
    props: Props
    metrics: Metrics
    canary: Canary


class LlamaHttp:
    """One llama-server, at `url`: http, https or `unix:///path/of/socket`.

    `ca_file`: the certificates to trust for https, in place of the system's. `headers` go with each request.
    A request has `health_timeout` or `slots_timeout` seconds (for /props and /metrics, too), from connecting
    to the last byte; a look waits `patience` seconds for its answers. No proxy of the environment is used, no
    redirect followed, no cookie kept.
    Raises ValueError for a url, key or header that cannot be used, without quoting it, and OSError (its
    subclass ssl.SSLError, too) for an unusable `ca_file`. Belongs to the event loop that looks first.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        ca_file: Path | None = None,
        headers: Mapping[str, str] = {},
        health_timeout: float = 5.0,
        slots_timeout: float = 10.0,
        patience: float = 1.0,
    ) -> None:
        self._base, socket_path = http_target.target(url)
        self._headers = http_target.request_headers(headers, api_key)
        self._transport = httpx.AsyncHTTPTransport(
            # Without https no certificate is ever checked: an empty context saves loading the system's.
            verify=ssl.create_default_context(cafile=ca_file)
            if self._base.startswith("https:")
            else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            trust_env=False,
            limits=httpx.Limits(max_keepalive_connections=0),
            uds=socket_path,
        )
        self._extensions = {"timeout": {"connect": _UNIX_CONNECT}} if socket_path else {}
        self._health_timeout = health_timeout
        self._slots_timeout = slots_timeout
        self._patience = patience
        self._health = OneInFlight(self._ask_health, Health)
        self._slots = OneInFlight(self._ask_slots, Slots)
        self._props = OneInFlight(self._ask_props, lambda outcome, _: Props(outcome))
        self._metrics = OneInFlight(self._ask_metrics, lambda outcome, _: Metrics(outcome))
        self._canary = OneInFlight(self._ask_canary, Canary)

    async def look(self, ask: Ask) -> HttpFacts:
        """Start what `ask` names, wait at most `patience` seconds for everything in flight, and report it.

        What is still in flight is PENDING, with its age; its answer, or its TIMEOUT, is what a later look
        reports in place of asking anew. SKIPPED: neither asked nor in flight. Not to be called twice at once.
        """
        self._health.start(ask.health)
        self._slots.start(ask.slots)
        self._props.start(ask.props)
        self._metrics.start(ask.metrics)
        self._canary.start(ask.canary)
        if tasks := self._in_flight():
            await asyncio.wait(tasks, timeout=self._patience)
        return HttpFacts(
            self._health.report(),
            self._slots.report(),
            self._props.report(),
            self._metrics.report(),
            self._canary.report(),
        )

    async def aclose(self) -> None:
        """Give up what is in flight, and close its connections."""
        tasks = self._in_flight()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._transport.aclose()

    def _in_flight(self) -> list[asyncio.Task[object]]:
        asked = (self._health, self._slots, self._props, self._metrics, self._canary)
        tasks = (question.task for question in asked)
        return [task for task in tasks if task is not None]

    async def _ask_health(self) -> Health:
        reply = await self._get("/health", self._health_timeout, _MAX_WORDS, wire.health_outcome)
        return Health(reply.outcome, reply.seconds)

    async def _ask_slots(self) -> Slots:
        reply = await self._get("/slots", self._slots_timeout, MAX_BODY, wire.answer_outcome)
        if reply.outcome is not Outcome.OK:
            return Slots(reply.outcome, reply.seconds)
        try:
            body = wire.decode(reply.body)
            return Slots(Outcome.OK, reply.seconds, wire.parse_slots(body), wire.redact(body))
        except wire.WireError:
            return Slots(Outcome.MALFORMED, reply.seconds)

    async def _ask_props(self) -> Props:
        reply = await self._get("/props", self._slots_timeout, MAX_BODY, wire.answer_outcome)
        if reply.outcome is not Outcome.OK:
            return Props(reply.outcome)
        try:
            return wire.parse_props(wire.decode(reply.body))
        except wire.WireError:
            return Props(Outcome.MALFORMED)

    async def _ask_metrics(self) -> Metrics:
        reply = await self._get("/metrics", self._slots_timeout, MAX_BODY, wire.answer_outcome)
        if reply.outcome is not Outcome.OK:
            return Metrics(reply.outcome)
        try:
            return wire.parse_metrics(reply.body.decode())
        except ValueError:
            return Metrics(Outcome.MALFORMED)

    async def _ask_canary(self) -> Canary:
        reply = await self._get("/completion", CANARY_TIMEOUT, _MAX_WORDS, wire.answer_outcome, _CANARY)
        return Canary(reply.outcome, reply.seconds)

    async def _get(
        self,
        path: str,
        seconds: float,
        limit: int,
        meaning: Callable[[int, object], Outcome],
        content: bytes | None = None,
    ) -> _Reply:
        """One exchange, whatever comes of it, within `seconds` and `limit` bytes."""
        started = monotonic()
        body = b""
        try:
            async with asyncio.timeout(seconds):
                status, body = await self._exchange(path, limit, content)
        except TimeoutError:
            outcome = Outcome.TIMEOUT
        except httpx.ConnectError as error:
            outcome = Outcome.REFUSED if _refused(error) else Outcome.UNREACHABLE
        except _TooLongError:
            outcome = Outcome.MALFORMED
        except Exception:  # noqa: BLE001 - whatever the network's libraries raise, a look has to come back
            outcome = Outcome.ERROR
        else:
            words = None
            if status != 200:
                with suppress(wire.WireError):
                    words = wire.decode(body)
            outcome = meaning(status, words)
        return _Reply(outcome, monotonic() - started, body)

    async def _exchange(self, path: str, limit: int, content: bytes | None) -> tuple[int, bytes]:
        response = await self._send(path, content)
        try:
            if response.status_code != 200:
                limit = _MAX_WORDS
            body = bytearray()
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > limit:
                    raise _TooLongError
            return response.status_code, bytes(body)
        finally:
            await response.aclose()

    async def _send(self, path: str, content: bytes | None) -> httpx.Response:
        method = "GET" if content is None else "POST"
        while True:
            try:
                return await self._transport.handle_async_request(
                    httpx.Request(
                        method,
                        self._base + path,
                        headers=self._headers,
                        content=content,
                        extensions=self._extensions,
                    )
                )
            except httpx.ConnectTimeout:
                await asyncio.sleep(_UNIX_PAUSE)


class _TooLongError(Exception):
    """A body over its limit."""


class _Reply(NamedTuple):
    """What came of one exchange; `seconds` until the last byte, or until it failed."""

    outcome: Outcome
    seconds: float
    body: bytes


def _refused(error: BaseException) -> bool:
    """Whether nothing listens there, by the causes of httpx's error; of several addresses one is enough."""
    causes: list[BaseException | None] = [error]
    while causes:
        cause = causes.pop()
        if isinstance(cause, ConnectionRefusedError | FileNotFoundError):
            return True
        if isinstance(cause, BaseExceptionGroup):
            causes.extend(cause.exceptions)
        if cause is not None:
            causes.append(cause.__cause__ or cause.__context__)
    return False
