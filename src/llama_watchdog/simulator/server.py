"""The simulated llama-server as a real process: its main loop, its threads, its signals. Linux only.

The model says what the server is at, and the process truly does it: its main thread (tid = pid) computes,
spins or sleeps for ever, and only while it turns does the model's clock move.
"""

from __future__ import annotations

import hashlib
import os
import resource
import select
import signal
import socket
import threading
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import NoReturn

import uvicorn

from llama_watchdog.simulator.app import make_app
from llama_watchdog.simulator.config import ServerConfig
from llama_watchdog.simulator.faults import Fault
from llama_watchdog.simulator.formats import TODAY, Format
from llama_watchdog.simulator.model import ServerModel
from llama_watchdog.simulator.shared import SharedModel, log

NAME = "llama-server"
_SLICE = 0.01  # seconds of work between two looks at the model
_IDLE_SLICE = 0.1
_LONGEST_SLICE = 0.25  # a halted process does not catch up on the time that it stood still
_BLOCK = bytes(1 << 20)
_BALLAST = 64 << 20  # bytes that a loaded model takes here


@dataclass(frozen=True, slots=True)
class Options:
    """One run. `threads` 0: nothing is computed, only slept; `after_tokens`: tokens of all tasks together."""

    config: ServerConfig
    form: Format = TODAY
    host: str = "127.0.0.1"
    port: int = 8080
    unix_socket: str | None = None
    api_key: str | None = None
    threads: int = 1
    fault: Fault = Fault.NONE
    after: float = 0.0
    after_tokens: int | None = None


class SimulatedServer:
    """The process. `run` is for its main thread, and does not return."""

    def __init__(self, options: Options) -> None:
        self._options = options
        at_once = not options.after and options.after_tokens is None
        self._pending = Fault.NONE if at_once else options.fault
        model = ServerModel(options.config, fault=options.fault if at_once else Fault.NONE)
        self._wake_end, self._sleep_end = os.pipe()
        os.set_blocking(self._sleep_end, False)
        self._shared = SharedModel(model, self._wake)
        self._socket = _bind(options)
        app = make_app(self._shared, options.form, options.api_key)
        self._http = uvicorn.Server(
            uvicorn.Config(
                app, http="h11", lifespan="off", log_config=None, access_log=False, server_header=False
            )
        )
        self._computing = threading.Event()
        self._signals = 0
        self._terminated = False
        self._handles_signals = False
        self._ballast = bytearray()
        self._listening = True

    def run(self) -> NoReturn:
        """Serve until a signal or a fault ends the process."""
        Path("/proc/self/comm").write_text(NAME)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        for _ in range(self._options.threads - 1):
            threading.Thread(target=self._help, daemon=True).start()
        http = threading.Thread(target=self._http.run, kwargs={"sockets": [self._socket]}, daemon=True)
        http.start()
        while http.is_alive() and not self._http.started:
            self._sleep(0.001)
        log(f"srv  llama_server: server is listening on {self._url()}")
        last = monotonic()
        while True:
            now = monotonic()
            with self._shared as model:
                model.advance(model.clock + min(now - last, _LONGEST_SLICE))
                self._happen(model)
                activity, stuck, alive, loading = model.activity, model.stuck, model.alive, model.loading
                fault, loaded, listening = model.fault, model.loaded, model.listening
            last = now
            if not alive:
                self._end(fault)
            if not loading and not self._handles_signals:
                self._handle_signals()
            self._carry(loaded)
            if self._listening and not listening:
                self._stop_listening(hang_up=fault is Fault.NO_LISTEN)
            self._work(activity.main > 0.5, activity.helpers > 0.5, stuck=stuck)

    def _happen(self, model: ServerModel) -> None:
        """What is due by now: the fault of the command line, and what signals ask for."""
        tokens = self._options.after_tokens
        due = model.clock >= self._options.after if tokens is None else model.decoded_total >= tokens
        if self._pending is not Fault.NONE and due:
            model.strike(model.clock, self._pending)
            self._pending = Fault.NONE
        if self._signals and not self._terminated:
            self._terminated = True
            model.terminate(model.clock)

    def _work(self, main: bool, helpers: bool, *, stuck: bool) -> None:
        """Do for a moment what the model is at; a loop that is stuck asleep sleeps until it is lifted."""
        if helpers and self._options.threads:
            self._computing.set()
        else:
            self._computing.clear()
        if main and self._options.threads:
            _compute(_SLICE)
        elif stuck and not main:
            self._sleep(None)
        else:
            self._sleep(_SLICE if main else _IDLE_SLICE)

    def _sleep(self, seconds: float | None) -> None:
        if select.select([self._wake_end], [], [], seconds)[0]:
            os.read(self._wake_end, 4096)

    def _wake(self) -> None:
        """A pipe, since no lock may be taken in a signal handler; a full one wakes just as well."""
        try:
            os.write(self._sleep_end, b"!")
        except BlockingIOError:
            return

    def _help(self) -> None:
        while True:
            self._computing.wait()
            hashlib.sha256(_BLOCK)

    def _carry(self, loaded: float) -> None:
        """Have as much in memory as of the model is loaded: a watcher sees loads by growing memory."""
        target = int(loaded * _BALLAST)
        if target > len(self._ballast):
            self._ballast += b"\1" * (target - len(self._ballast))
        elif target < len(self._ballast):
            self._ballast = bytearray(target)

    def _handle_signals(self) -> None:
        """From here on, as llama-server once its model is loaded, signals only ask the loop to end."""
        log("srv  llama_server: model loaded")
        self._handles_signals = True
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1
        if self._signals > 1:
            os.write(2, b"Received second interrupt, terminating immediately.\n")
            if not self._options.config.second_sigterm_hangs:
                os._exit(1)
            while True:  # exit() hangs in the handler
                signal.pause()
        self._wake()

    def _stop_listening(self, *, hang_up: bool) -> None:
        self._listening = False
        for listener in self._http.servers:
            listener.get_loop().call_soon_threadsafe(listener.close)
            if hang_up:
                listener.get_loop().call_soon_threadsafe(self._hang_up)

    def _hang_up(self) -> None:
        for connection in list(self._http.server_state.connections):
            connection.transport.close()

    def _end(self, fault: Fault) -> NoReturn:
        if fault is Fault.CRASH:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.abort()
        log("srv    operator(): cleaning up before exit...")
        os._exit(0)

    def _url(self) -> str:
        if self._options.unix_socket:
            return f"unix://{self._options.unix_socket}"
        host = f"[{self._options.host}]" if ":" in self._options.host else self._options.host
        return f"http://{host}:{self._socket.getsockname()[1]}"


def _bind(options: Options) -> socket.socket:
    """The listening socket. Raises OSError where the address cannot be had."""
    if options.unix_socket:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(options.unix_socket)
        listener.listen()
    else:
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        listener = socket.create_server((options.host, options.port), family=family)
    return listener


def _compute(seconds: float) -> None:
    """Burn CPU on this thread; large buffers are hashed without the interpreter's lock."""
    end = monotonic() + seconds
    while monotonic() < end:
        hashlib.sha256(_BLOCK)
