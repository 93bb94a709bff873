"""A user of llama-server: completions, in the foreground and in the background, and looks at its slots.

Belongs here: HTTP to the real server, over whatever `connect` opens, so that the same user can sit on this
machine or in the network namespace of a testbed.
"""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from tests.e2e.ground.waiting import wait_until

Connect = Callable[[int], socket.socket]
_CLONE_NEWNET = 0x40000000


def connect_here(port: int) -> socket.socket:
    """A connection to `port` on this machine's loopback."""
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def connect_in(namespace: int) -> Connect:
    """Connections made in the network namespace of that file descriptor: a socket stays where it was made."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter() -> None:
        if libc.setns(namespace, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")

    thread = ThreadPoolExecutor(max_workers=1, initializer=enter)
    return lambda port: thread.submit(connect_here, port).result()


class LlamaClient:
    """Talks to the llama-server on `port`."""

    def __init__(self, port: int, connect: Connect = connect_here) -> None:
        self.port = port
        self.connect = connect

    def request(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, timeout: float = 5.0
    ) -> tuple[int, Any]:
        """Status and parsed JSON. OSError or HTTPException where no whole answer comes in time."""
        connection = self.open(timeout)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def open(self, timeout: float) -> http.client.HTTPConnection:
        """A connection of its own, each read limited to `timeout` seconds."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.sock = self.connect(self.port)
        connection.sock.settimeout(timeout)
        return connection

    def healthy(self) -> bool:
        """Whether `/health` says ok now."""
        with suppress(OSError, http.client.HTTPException, ValueError):
            return self.request("GET", "/health")[0] == 200
        return False

    def slots(self) -> list[dict[str, Any]]:
        """`GET /slots`."""
        status, slots = self.request("GET", "/slots")
        assert status == 200, slots
        return list(slots)

    def busy(self) -> bool:
        """Whether any slot is processing."""
        return any(slot["is_processing"] for slot in self.slots())

    def decoded(self) -> int:
        """Tokens generated so far by the tasks that are being processed."""
        return sum(slot["next_token"][0]["n_decoded"] for slot in self.slots() if slot["is_processing"])

    def complete(self, prompt: str = "Once upon a time", n_predict: int = 4, timeout: float = 20.0) -> str:
        """The text of a real completion, or the error of one that failed."""
        body = {"prompt": prompt, "n_predict": n_predict, "cache_prompt": False}
        status, answer = self.request("POST", "/completion", body, timeout=timeout)
        if status != 200:
            raise OSError(f"no completion: {answer}")
        return str(answer["content"])

    def serves(self) -> bool:
        """Whether a completion is answered: what "serving" means to a user."""
        with suppress(OSError, http.client.HTTPException, ValueError):
            return bool(self.complete(timeout=3.0))
        return False

    def start(self, prompt: str, n_predict: int = -1, *, stream: bool = True) -> Generation:
        """Begin a completion in the background. Generation that would end by itself is told to go on."""
        body = {"prompt": prompt, "n_predict": n_predict, "stream": stream, "ignore_eos": True}
        return Generation(self, body | {"cache_prompt": False})

    def start_decoding(self, prompt: str = "Once upon a time") -> Generation:
        """An endless streaming generation of which some tokens have come: its slot is decoding now."""
        generation = self.start(prompt)
        wait_until(lambda: generation.received > 3, 20.0, "the first tokens")
        return generation


class Generation:
    """One completion in the background. `received`: events (streaming) or answers so far."""

    def __init__(self, client: LlamaClient, body: dict[str, Any]) -> None:
        self.received = 0
        self.error: Exception | None = None
        self._connection = client.open(timeout=180.0)
        self._socket = self._connection.sock  # http.client forgets it once the response has begun
        self._connection.request("POST", "/completion", json.dumps(body))
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether the server finished it, or the connection broke (`error`)."""
        return not self._thread.is_alive()

    def flow(self, tokens: int = 15) -> None:
        """Wait until so many more events have come: a watch with a short interval has seen them."""
        enough = self.received + tokens
        wait_until(lambda: self.received >= enough, 60.0, "tokens to flow")

    def wait(self, timeout: float) -> None:
        """Wait for its end, whatever that is. TimeoutError where it does not come."""
        wait_until(lambda: self.ended, timeout, "the generation to end")

    def close(self) -> None:
        """Leave, as a user who presses "stop"."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(timeout=10)

    def _read(self) -> None:
        try:
            with self._connection.getresponse() as answer:
                while line := answer.readline():
                    self.received += line.startswith((b"data:", b"{"))
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.error = error
        finally:
            self._connection.close()
            self._socket.close()


def prompt_of(tokens: int) -> str:
    """A prompt of about that many tokens: common short words, one token each, no two runs alike."""
    words = ["the", "cat", "sat", "on", "a", "red", "mat", "and", "saw", "two", "big", "dogs"]
    salt = os.urandom(2).hex()
    return salt + " " + " ".join(words[(i * i + i // 7) % len(words)] for i in range(tokens))
