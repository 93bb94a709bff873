"""One situation, played once before all watchers: its clock, and what each of them did first."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks.peers.limits import FOLDERS
from tests.benchmarks.peers.watchers import Watcher, watching
from tests.e2e.ground.llama_client import LlamaClient
from tests.e2e.ground.real_server import RealServer, start_server

WELL = 11.0  # seconds that everybody sees a server that is well: two cycles
AFTERWARDS = 10.0  # seconds after something healthy is over: who acts only then has killed it, too
_LOOK = 0.1


@dataclass
class Played:
    """What came of a situation, on which build, and how many seconds it lasted.

    `first`: of each watcher that acted, seconds from the event, and its words. `load`: the average before it.
    """

    load: float
    build: str = ""
    seconds: float = 0.0
    first: dict[str, tuple[float, str]] = field(default_factory=dict)


class Round:
    """What a situation plays with. `stack`: what is entered there is left after the watchers have ended."""

    def __init__(self, tree: Path, folder: Path, stack: ExitStack) -> None:
        self.tree = tree
        self.folder = folder
        self.stack = stack
        self.played = Played(os.getloadavg()[0])
        self._watchers: list[Watcher] = []
        self._began: float | None = None

    def start(self, threads: int = 1) -> RealServer:
        """A real server, its model loaded."""
        server = start_server(self.tree, self.folder / "llama-server.log", "--threads", str(threads))
        self.stack.callback(server.stop)
        return server

    def watch(self, port: int, *, rest: float = WELL) -> LlamaClient:
        """Begin to watch the server on `port`, which is well for the next `rest` seconds. A user of it."""
        url = f"http://127.0.0.1:{port}"
        self._watchers = self.stack.enter_context(watching(self.folder, url, port))
        time.sleep(rest)
        return LlamaClient(port)

    def happens(self) -> None:
        """The event that is timed happens now. RuntimeError where somebody has acted before."""
        if early := [watcher.name for watcher in self._watchers if watcher.did()]:
            raise RuntimeError(f"acted before anything happened: {', '.join(early)}")
        self._began = time.monotonic()

    def look(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """See who does what for so long, or until that comes true."""
        self.played.seconds = round(self._look(seconds, until), 1)

    def look_afterwards(self) -> None:
        """See who acts although it is over."""
        self._look(AFTERWARDS, lambda: False)

    def _look(self, seconds: float, until: Callable[[], bool]) -> float:
        assert self._began is not None
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not until():
            elapsed = time.monotonic() - self._began
            for watcher in self._watchers:
                if watcher.name not in self.played.first and (words := watcher.did()):
                    self.played.first[watcher.name] = round(elapsed, 1), words
            time.sleep(_LOOK)
        return time.monotonic() - self._began

    def note_build(self, client: LlamaClient) -> None:
        """What the server, while it is well, calls itself."""
        self.played.build = str(client.request("GET", "/props")[1]["build_info"])


@contextmanager
def a_round(tree: Path, name: str) -> Iterator[Round]:
    """In a folder of its own; everything is ended, the watchers before the server, and removed in the end."""
    with tempfile.TemporaryDirectory(prefix=f"peers-{name}-", dir=FOLDERS) as folder, ExitStack() as stack:
        yield Round(tree, Path(folder), stack)
