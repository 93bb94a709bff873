"""The work of the simulated process: completions, streaming or not, and clients that leave.

A client's disconnect is noticed as llama-server notices it: by a chunk that cannot be sent, or after a full
second in which the server had no result for anyone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from time import monotonic

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from llama_watchdog.simulator.formats import Format, error_body
from llama_watchdog.simulator.replies import Dialect, Wanted, chunk, last_chunk, parse, result
from llama_watchdog.simulator.shared import SharedModel, log

_LOOK = 0.01  # seconds between two looks for new tokens
_QUIET = 1.0  # seconds without any result after which a handler looks whether its client is there
_BODY = 16 << 20  # bytes of a request


class Completions:
    """The endpoints that make work. A token of the prompt is a word of it."""

    def __init__(self, shared: SharedModel, form: Format) -> None:
        self._shared = shared
        self._build = form.build

    async def native(self, request: Request) -> Response:
        """POST /completion."""
        return await self._complete(request, Dialect.NATIVE)

    async def openai(self, request: Request) -> Response:
        """POST /v1/completions."""
        return await self._complete(request, Dialect.OPENAI)

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        return await self._complete(request, Dialect.CHAT)

    async def _complete(self, request: Request, dialect: Dialect) -> Response:
        try:
            body = await request.body()
            wanted = parse(json.loads(body if len(body) <= _BODY else b""), dialect)
            with self._shared as model:
                task_id = model.submit(model.clock, wanted.task)
        except json.JSONDecodeError:  # its text could quote the prompt
            return JSONResponse(error_body(400, "this is no JSON")[1], 400)
        except (ValueError, TypeError) as error:
            return JSONResponse(error_body(400, str(error))[1], 400)
        self._shared.nudge()
        if wanted.stream:
            return _Stream(self._chunks(request, wanted, task_id))
        generated = 0
        async for so_far in self._follow(request, task_id):
            generated = so_far
        return JSONResponse(result(wanted, generated, self._build))

    async def _follow(self, request: Request, task_id: int) -> AsyncIterator[int]:
        """How many tokens there are, at each new one; ends with the task, or once its client has gone."""
        seen, looked, over = 0, monotonic(), False
        while not over:
            with self._shared as model:
                generated, over = model.task(task_id)
            if generated > seen:
                seen = generated
                yield seen
            if monotonic() - max(looked, self._shared.resulted) >= _QUIET:
                looked = monotonic()
                if await request.is_disconnected():
                    self._cancel(task_id)
                    return
            if not over:
                await asyncio.sleep(_LOOK)
        self._shared.resulted = monotonic()

    async def _chunks(self, request: Request, wanted: Wanted, task_id: int) -> AsyncIterator[bytes]:
        sent = 0
        async for generated in self._follow(request, task_id):
            while sent < generated:
                sent += 1
                yield chunk(wanted, sent, self._build)
            self._shared.resulted = monotonic()
            if await request.is_disconnected():
                self._cancel(task_id)
                return
        yield last_chunk(wanted, sent, self._build)

    def _cancel(self, task_id: int) -> None:
        with self._shared as model:
            over = model.task(task_id).over
            if not over:
                model.cancel(model.clock, task_id)
        if not over:
            log(f"srv          stop: cancel task, id_task = {task_id}")
        self._shared.nudge()


class _Stream(Response):
    """Server-sent events; headers go out with the first chunk, as llama-server sends them."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        super().__init__(media_type="text/event-stream")
        del self.headers["content-length"]
        self._chunks = chunks

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        started = False
        async for event in self._chunks:
            if not started:
                await send(
                    {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
                )
                started = True
            await send({"type": "http.response.body", "body": event, "more_body": True})
        if started:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
