"""`llama-watchdog demo`: the whole story in under a minute, on a simulated llama-server.

The watch is the real one, with budgets of seconds in place of half a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console
from rich.text import Text

from llama_watchdog.actions.hands import Hands
from llama_watchdog.cli import common
from llama_watchdog.core.action import Done, Identity, Result
from llama_watchdog.core.asking import Ask
from llama_watchdog.core.events import Event
from llama_watchdog.core.observation import Outcome
from llama_watchdog.parts import observer_of
from llama_watchdog.probes.llama_http import LlamaHttp
from llama_watchdog.settings import ServerSettings
from llama_watchdog.settings.schema import EscalationSettings, ProbeSettings, StallSettings
from llama_watchdog.simulator.faults import Fault
from llama_watchdog.simulator.launch import Simulated
from llama_watchdog.watching import ServerWatch

SERVER_FLAGS = ("--threads", "2", "--decode-rate", "20", "--second-sigterm", "hangs", "--load-seconds", "2s")
PATIENCE = 50.0  # seconds after which a story that does not end is given up

# Told once each, behind the verdict or the action of that name. A slot is what llama-server calls it.
STORY = {
    "loading": "Its model is being loaded, which may take as long as it gets on.",
    "busy": "Words are being generated: all is well. (Slot 0 is the conversation it works on.)",
    "suspect": "Not a word since, and no thread does anything. A slow server would be computing.",
    "wedged": "That has lasted long enough: it will not go on by itself.",
    "cancel": "The gentlest first: hang up on the client, as its own stop button would. Not enough here.",
    "sigterm": "Then ask it to end. A wedged one does not hear, and neither would systemctl stop help.",
    "sigkill": "Then end it for good, with everything that it had started.",
    "down": "It is gone, and its port is free.",
    "restart": "A new one is started in its place.",
}


def add(commands: Any) -> None:
    """Its flags: none."""
    parser = commands.add_parser("demo", help="the whole story in under a minute", description=__doc__)
    parser.set_defaults(run=run)


def run(_options: argparse.Namespace) -> int:
    """Tell the story; 0 where it ends well."""
    return asyncio.run(Demo(common.console()).run())


class Demo:
    """A server that wedges, a client that waits, and a watchdog."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._server: Simulated | None = None
        self._port = 0
        self._healed = asyncio.Event()
        self._untold = dict(STORY)
        self._served = asyncio.Event()
        self._tokens = 0  # that have reached the client

    async def run(self) -> int:
        """Play it; returns the exit code."""
        self._say(
            "A llama-server starts (simulated: no model, no GPU), and a client asks it for a long story."
        )
        self._server = await asyncio.to_thread(Simulated, *SERVER_FLAGS)
        url = self._server.url
        self._port = urlsplit(url).port or 0
        # A process of its own: its connections are those that a cancel closes.
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "llama_watchdog.simulator.client", url, stdout=asyncio.subprocess.PIPE
        )
        watch = self._watch(url)
        tasks = [asyncio.create_task(self._count(client)), asyncio.create_task(watch.run())]
        try:
            async with asyncio.timeout(PATIENCE):
                await self._play(url)
        except TimeoutError:
            self._say(f"It did not end well within {PATIENCE:.0f} s: {watch.line}", "bold red")
            return 1
        finally:
            client.kill()
            for task in tasks:
                task.cancel()
            await asyncio.gather(client.wait(), *tasks, return_exceptions=True)
            await watch.aclose()
            self._server.stop()
        return 0

    async def _count(self, client: asyncio.subprocess.Process) -> None:
        assert client.stdout is not None  # noqa: S101 - asked for above
        while await client.stdout.readline():
            self._tokens += 1
            self._served.set()

    def _watch(self, url: str) -> ServerWatch:
        settings = ServerSettings(
            name="demo",
            url=url,
            probe=ProbeSettings(interval=0.5, slots_timeout=4.0),
            stall=StallSettings(blocked=6.0, down=3.0),
            escalation=EscalationSettings(cancel_grace=4.0, sigterm_grace=2.0),
        )
        hands = Hands(port=self._port, restart=self._restart)
        return ServerWatch(settings, observer=observer_of(settings), hands=hands, tell=self._tell)

    async def _play(self, url: str) -> None:
        await self._served.wait()
        await asyncio.sleep(3.0)
        self._say(f"The client has got {self._tokens} words so far.", "cyan")
        assert self._server is not None  # noqa: S101 - started before the play
        await asyncio.to_thread(self._server.strike, Fault.BLOCK)
        struck = time.monotonic()
        self._say(
            "Now its main loop wedges, as real ones do: generation stops in the middle of a word.", "bold"
        )
        await asyncio.sleep(3.0)
        if await _healthy(url):
            self._say("/health still says ok, so a plain health check would never notice.", "bold")
        await self._healed.wait()
        self._served.clear()
        await self._served.wait()
        self._say(
            f"The client is being served again, {time.monotonic() - struck:.0f} s after the wedge. "
            "Without a watchdog it would still wait.",
            "bold green",
        )
        self._say("With default settings this takes under a minute, plus the time to load the model.")

    async def _restart(self, _ended: Identity | None) -> Result:
        assert self._server is not None  # noqa: S101 - started before the play
        await asyncio.to_thread(self._server.stop)
        self._server = await asyncio.to_thread(Simulated, *SERVER_FLAGS, "--port", str(self._port))
        return Result(Done.DONE, "started it anew")

    def _tell(self, event: Event) -> None:
        word = event["verdict"] if event["event"] == "verdict" else event["action"]
        line = Text(f"{self._seconds():5.1f}s  ", style="dim")
        line.append("watchdog  ", style="bold not dim")
        line.append(f"{word} ", style=common.COLOURS.get(str(word), "bold"))
        if event["event"] == "action":
            line.append(f"{event['outcome']} ", style=common.COLOURS.get(event["outcome"], ""))
        line.append(f"· {event['text']}", style="not bold not dim")
        self._console.print(line)
        if (said := self._untold.pop(str(word), None)) is not None:
            self._say(said)
        if event["event"] == "action" and event["outcome"] == "healed":
            self._healed.set()

    def _say(self, text: str, style: str = "italic") -> None:
        line = Text(f"{self._seconds():5.1f}s  ", style="dim")
        line.append(text, style=f"{style} not dim")
        self._console.print(line)

    def _seconds(self) -> float:
        return time.monotonic() - self._began


async def _healthy(url: str) -> bool:
    """What a plain health check would say."""
    http = LlamaHttp(url)
    try:
        return (await http.look(Ask(slots=False))).health.outcome is Outcome.OK
    finally:
        await http.aclose()
