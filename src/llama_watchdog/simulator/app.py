"""The HTTP side of the simulated process: llama-server's endpoints, and `POST /simulator/fault`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from llama_watchdog.simulator.completions import complete
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
Endpoint = Callable[[Request], Awaitable[Response]]
_LOOK = 0.01  # seconds between two looks for an answer
_PUBLIC = ("/health", "/v1/health", "/models", "/v1/models", "/simulator/fault")
_WHILE_LOADING = ("/models", "/v1/models", "/simulator/fault")


def make_app(shared: SharedModel, form: Format, api_key: str | None) -> Starlette:
    """The application. With `api_key`, all but /health needs it."""
