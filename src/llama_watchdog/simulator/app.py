"""The HTTP side of the simulated process: llama-server's endpoints, and `POST /simulator/fault`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from time import monotonic
from typing import TypeVar

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from llama_watchdog.simulator.completions import Completions
from llama_watchdog.simulator.faults import OF_PROCESSES, Fault
from llama_watchdog.simulator.formats import (
    Format,
    error_body,
    health_body,
    loading_error,
    metrics_text,
    models_body,
    props_body,
    slots_body,
)
from llama_watchdog.simulator.model import ServerModel
from llama_watchdog.simulator.shared import SharedModel

Answer = TypeVar("Answer")
_LOOK = 0.01  # seconds between two looks for an answer
_FAULT = "/simulator/fault"
_PUBLIC = ("/health", "/v1/health", _FAULT)
_ORDERS = 64 << 10  # bytes of an order to this simulator


def make_app(shared: SharedModel, form: Format, api_key: str | None) -> Starlette:
    """The application. With `api_key`, all but /health asks for it."""
    endpoints = _Endpoints(shared, form)
    completions = Completions(shared, form)
    routes = [
        Route("/health", endpoints.health),
        Route("/v1/health", endpoints.health),
        Route("/slots", endpoints.slots),
        Route("/props", endpoints.props),
        Route("/metrics", endpoints.metrics),
        Route("/models", endpoints.models),
        Route("/v1/models", endpoints.models),
        Route("/completion", completions.native, methods=["POST"]),
        Route("/v1/completions", completions.openai, methods=["POST"]),
        Route("/v1/chat/completions", completions.chat, methods=["POST"]),
        Route(_FAULT, endpoints.fault, methods=["POST"]),
    ]

    async def not_found(_request: Request, _error: Exception) -> Response:
        return refusal(*error_body(404, "File Not Found"))

    return Starlette(
        routes=routes,
        middleware=[Middleware(_Gate, shared=shared, form=form, api_key=api_key)],
        exception_handlers={404: not_found, 405: not_found},
    )


def refusal(code: int, body: dict[str, object]) -> JSONResponse:
    """What llama-server answers in place of a result; it closes the connection after it."""
    return JSONResponse(body, code, headers={"Connection": "close"})


class _Gate:
    """What comes before any endpoint: the model must be loaded, then the key must be right."""

    def __init__(self, app: ASGIApp, shared: SharedModel, form: Format, api_key: str | None) -> None:
        self._app = app
        self._shared = shared
        self._form = form
        self._api_key = api_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, app = Request(scope), self._app
        path = request.url.path
        with self._shared as model:
            facts = model.health(model.clock) if model.loading else None
        if facts is not None and path != _FAULT:
            app = refusal(*(health_body(self._form, facts) if path == "/health" else loading_error()))
        elif self._api_key is not None and path not in _PUBLIC and not self._has_key(request):
            app = refusal(*error_body(401, "Invalid API Key"))
        await app(scope, receive, send)

    def _has_key(self, request: Request) -> bool:
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        return self._api_key in (bearer, request.headers.get("x-api-key"))


class _Endpoints:
    """Everything that is only asked."""

    def __init__(self, shared: SharedModel, form: Format) -> None:
        self._shared = shared
        self._form = form

    async def health(self, request: Request) -> Response:
        """GET /health."""
        facts = await self._ask(request, ServerModel.health)
        if facts is None:
            return Response()
        code, body = health_body(self._form, facts)
        return JSONResponse(body, code)

    async def slots(self, request: Request) -> Response:
        """GET /slots: through the main loop's queue."""
        with self._shared as model:
            config = model.config
        if not config.endpoint_slots:
            return refusal(*error_body(501, "This server does not support slots endpoint."))
        facts = await self._ask(request, ServerModel.slots)
        return Response() if facts is None else JSONResponse(slots_body(self._form, facts))

    async def props(self, request: Request) -> Response:
        """GET /props."""
        facts = await self._ask(request, lambda model, now, _: model.props(now))
        with self._shared as model:
            config = model.config
        if facts is None:
            return Response()
        body = props_body(
            self._form,
            facts,
            endpoint_slots=config.endpoint_slots,
            endpoint_metrics=config.endpoint_metrics,
        )
        return JSONResponse(body)

    async def metrics(self, request: Request) -> Response:
        """GET /metrics: through the main loop's queue."""
        with self._shared as model:
            config = model.config
        if not config.endpoint_metrics:
            return refusal(*error_body(501, "This server does not support metrics endpoint."))
        facts = await self._ask(request, ServerModel.metrics)
        if facts is None:
            return Response()
        text = metrics_text(self._form, facts)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def models(self, _request: Request) -> Response:
        """GET /models."""
        return JSONResponse(models_body())

    async def fault(self, request: Request) -> Response:
        """POST /simulator/fault {"fault": NAME}: make it begin now; "none" lifts what can be lifted."""
        try:
            body = await request.body()
            fault = Fault(json.loads(body[:_ORDERS])["fault"])
        except (ValueError, TypeError, KeyError):
            fault = None
        if fault is None or fault not in OF_PROCESSES:
            return refusal(*error_body(400, f"fault must be one of: {', '.join(OF_PROCESSES)}"))
        self._shared.strike(fault)
        return JSONResponse({"fault": fault})

    async def _ask(
        self, request: Request, get: Callable[[ServerModel, float, float], Answer | None]
    ) -> Answer | None:
        """Wait for the model's answer; `None` only once the client has gone."""
        with self._shared as model:
            asked, answer = model.clock, get(model, model.clock, model.clock)
        self._shared.nudge()  # a question can wake a sleeping server
        while answer is None:
            await asyncio.sleep(_LOOK)
            if await request.is_disconnected():
                return None
            with self._shared as model:
                answer = get(model, model.clock, asked)
        self._shared.resulted = monotonic()
        return answer
