"""Asking over real sockets: servers that hang, drip, break off; never two requests at once."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from llama_watchdog.core.asking import Ask
from llama_watchdog.core.observation import Outcome, Slots
from llama_watchdog.probes import llama_http
from llama_watchdog.probes.llama_http import LlamaHttp

SLOTS_ONLY = Ask(health=False, slots=True)
HEALTH_ONLY = Ask(health=True, slots=False)
NOTHING = Ask(health=False, slots=False)
ONE_SLOT = b'[{"id":0,"is_processing":false}]'

Answer = Callable[[asyncio.StreamWriter], Coroutine[None, None, None]]


def http(body: bytes = ONE_SLOT, length: int | None = None) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (
        len(body) if length is None else length,
        body,
    )


def saying(*parts: bytes, pause: float = 0.0) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)

    return answer


async def hanging(_: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


class Server:
    """Answers each path as it is told, closes after each answer, and counts."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {"/health": saying(http(b"{}")), "/slots": saying(http())}
        self.asked: Counter[str] = Counter()
        self.open: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = ""
        try:
            path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
            self.asked[path] += 1
            self.open[path] += 1
            self.most[path] = max(self.most[path], self.open[path])
            answer = asyncio.create_task(self.answers[path](writer))
            left = asyncio.create_task(reader.read())
            await asyncio.wait({answer, left}, return_when=asyncio.FIRST_COMPLETED)
            for task in (answer, left):
                task.cancel()
            await asyncio.gather(answer, left, return_exceptions=True)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open[path] -= 1
            writer.close()

    async def connected(self, clients: int) -> None:
        """Return once so many clients have asked and wait for an answer."""
        async with asyncio.timeout(5):
            while self.open.total() != clients:  # noqa: ASYNC110 - a test waits, for milliseconds
                await asyncio.sleep(0.001)


@asynccontextmanager
async def served(path: Path | None = None) -> AsyncIterator[Server]:
    server = Server()
    if path is None:
        listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    else:
        listener = await asyncio.start_unix_server(server.serve, path)
        server.url = f"unix://{path}"
    try:
        yield server
        await server.connected(0)
    finally:
        listener.close()


@asynccontextmanager
async def watching(url: str, limit: float = 5.0, patience: float = 5.0) -> AsyncIterator[LlamaHttp]:
    watcher = LlamaHttp(url, health_timeout=limit, slots_timeout=limit, patience=patience)
    try:
        yield watcher
    finally:
        await watcher.aclose()


def test_a_hanging_endpoint_is_pending_then_timed_out_then_asked_anew_and_never_twice_at_once() -> None:
    async def main() -> None:
        async with served() as server, watching(server.url, limit=0.1, patience=0.01) as watcher:
            server.answers["/slots"] = hanging
            seen: list[Slots] = []
            while len(seen) < 100 and [slots.outcome for slots in seen].count(Outcome.TIMEOUT) < 2:
                before = server.asked["/slots"]
                seen.append((await watcher.look(SLOTS_ONLY)).slots)
                if seen[-1].outcome is Outcome.TIMEOUT:
                    assert server.asked["/slots"] == before, (
                        "the look that reports an answer asks nothing new"
                    )
            first = [slots.outcome for slots in seen].index(Outcome.TIMEOUT)
            ages = [slots.seconds for slots in seen]
            assert first >= 1
            assert {slots.outcome for slots in seen[:first]} == {Outcome.PENDING}
            assert ages[:first] == sorted(ages[:first])
            assert 0.1 <= ages[first] < 5
            assert seen[first + 1].outcome is Outcome.PENDING
            assert ages[first + 1] < ages[first]
            assert server.asked["/slots"] == 2
            assert server.most["/slots"] == 1

    asyncio.run(main())


def test_a_late_answer_is_reported_once_by_the_next_look_in_place_of_asking() -> None:
    async def main() -> None:
        async with served() as server, watching(server.url, patience=0.02) as watcher:
            release = asyncio.Event()

            async def late(writer: asyncio.StreamWriter) -> None:
                await release.wait()
                writer.write(http())

            server.answers["/slots"] = late
            assert (await watcher.look(SLOTS_ONLY)).slots.outcome is Outcome.PENDING
            await server.connected(1)
            release.set()
            slots = (await watcher.look(SLOTS_ONLY)).slots
            while slots.outcome is Outcome.PENDING:
                slots = (await watcher.look(SLOTS_ONLY)).slots
            assert (slots.outcome, len(slots.slots)) == (Outcome.OK, 1)
            assert slots.seconds >= 0.02
            assert server.asked["/slots"] == 1
            assert (await watcher.look(NOTHING)).slots.outcome is Outcome.SKIPPED
            await watcher.look(SLOTS_ONLY)
            assert server.asked["/slots"] == 2

    asyncio.run(main())


def test_what_is_in_flight_is_reported_also_by_a_look_that_does_not_ask_for_it() -> None:
    async def main() -> None:
        async with served() as server, watching(server.url, patience=0.01) as watcher:
            server.answers["/slots"] = hanging
            await watcher.look(SLOTS_ONLY)
            facts = await watcher.look(NOTHING)
            assert (facts.health.outcome, facts.slots.outcome) == (Outcome.SKIPPED, Outcome.PENDING)
            assert facts.slots.seconds >= 0.02

    asyncio.run(main())


def test_one_hanging_endpoint_holds_no_other_back() -> None:
    async def main() -> None:
        async with served() as server, watching(server.url, patience=0.1) as watcher:
            server.answers["/slots"] = hanging
            for asked in (1, 2):
                facts = await watcher.look(Ask())
                assert (facts.health.outcome, facts.slots.outcome) == (Outcome.OK, Outcome.PENDING)
                assert server.asked == {"/health": asked, "/slots": 1}

    asyncio.run(main())


def test_a_look_returns_as_soon_as_all_has_been_answered() -> None:
    async def main() -> None:
        async with served() as server, watching(server.url, patience=30) as watcher, asyncio.timeout(5):
            assert (await watcher.look(Ask())).slots.outcome is Outcome.OK

    asyncio.run(main())


def test_a_look_given_up_leaves_its_request_to_the_next() -> None:
    async def main() -> None:
        async with served() as server, watching(server.url, limit=0.1) as watcher:
            server.answers["/slots"] = hanging
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await watcher.look(SLOTS_ONLY)
            assert (await watcher.look(SLOTS_ONLY)).slots.outcome is Outcome.TIMEOUT
            assert server.asked["/slots"] == 1

    asyncio.run(main())


@pytest.mark.parametrize(
    "answer",
    [
        saying(*[b"%c" % byte for byte in http()], pause=0.005),
        saying(b"HTTP/1.1 200 OK\r\n", *[b"X-%d: 1\r\n" % n for n in range(50)], pause=0.005),
        saying(http(length=1000), pause=5),
    ],
    ids=["body", "headers", "part"],
)
def test_a_server_that_drips_or_stalls_is_timed_out_and_hung_up_on(answer: Answer) -> None:
    """The timeout is for the whole exchange: not one for each byte."""

    async def main() -> None:
        async with served() as server, watching(server.url, limit=0.06) as watcher:
            server.answers["/slots"] = answer
            slots = (await watcher.look(SLOTS_ONLY)).slots
            assert slots.outcome is Outcome.TIMEOUT
            assert 0.06 <= slots.seconds < 5
            await server.connected(0)

    asyncio.run(main())


@pytest.mark.parametrize(
    "answer",
    [saying(), saying(http(length=1000)), saying(b"\x16\x03\x01 no HTTP\r\n\r\n"), saying(b"HTTP/1.1 2")],
    ids=["nothing", "part", "garbage", "half a line"],
)
def test_an_answer_that_breaks_off_is_an_error(answer: Answer) -> None:
    async def main() -> None:
        async with served() as server, watching(server.url) as watcher:
            server.answers["/slots"] = answer
            assert (await watcher.look(SLOTS_ONLY)).slots.outcome is Outcome.ERROR

    asyncio.run(main())


def test_a_body_without_end_is_malformed_and_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_http, "MAX_BODY", 100_000)

    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"[" * 10_000)
            await writer.drain()

    async def main() -> None:
        async with served() as server, watching(server.url) as watcher:
            server.answers["/slots"] = server.answers["/health"] = endless
            facts = await watcher.look(Ask())
            assert (facts.health.outcome, facts.slots.outcome) == (Outcome.MALFORMED, Outcome.MALFORMED)
            await server.connected(0)

    asyncio.run(main())


def test_nothing_listens(tmp_path: Path) -> None:
    """Neither at a port, nor at a socket's path, be it absent or left behind."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "left"))

    async def main(url: str) -> None:
        async with watching(url) as watcher:
            facts = await watcher.look(Ask())
            assert (facts.health.outcome, facts.slots.outcome) == (Outcome.REFUSED, Outcome.REFUSED), url

    for url in (
        "http://127.0.0.1:{}",
        f"unix://{tmp_path}/absent",
        f"unix://{tmp_path}/left",
    ):
        asyncio.run(main(url.format(port)))


def test_nothing_listens_at_any_of_a_names_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    two = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{n}", port)) for n in (1, 2)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: two)

    async def main() -> None:
        async with watching(f"http://two.test:{port}") as watcher:
            assert (await watcher.look(HEALTH_ONLY)).health.outcome is Outcome.REFUSED

    asyncio.run(main())


def test_a_unix_socket(tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path / "llama.sock") as server, watching(server.url) as watcher:
            facts = await watcher.look(Ask())
            assert (facts.health.outcome, facts.slots.outcome) == (Outcome.OK, Outcome.OK)

    asyncio.run(main())


# anyio leaves the socket of a connect that was given up to the garbage collector, which then complains.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_unix_socket_with_a_full_queue_is_waited_for_without_burning_a_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a stopped server's is, in the end. When there is room again it is asked."""
    monkeypatch.setattr(llama_http, "_UNIX_CONNECT", 0.005)
    monkeypatch.setattr(llama_http, "_UNIX_PAUSE", 0.05)
    path = tmp_path / "full"
    tries = 0
    send = httpx.AsyncHTTPTransport.handle_async_request

    async def counted(transport: httpx.AsyncHTTPTransport, request: httpx.Request) -> httpx.Response:
        nonlocal tries
        tries += 1
        return await send(transport, request)

    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", counted)

    async def main() -> None:
        with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as other:
            listener.bind(str(path))
            listener.listen(0)
            other.connect(str(path))
            async with watching(f"unix://{path}", patience=0.1) as watcher:
                used = time.process_time()
                assert (await watcher.look(HEALTH_ONLY)).health.outcome is Outcome.PENDING
                assert time.process_time() - used < 0.06
                assert tries <= 3
                listener.accept()[0].close()
                listener.setblocking(False)
                client, _ = await asyncio.wait_for(asyncio.get_running_loop().sock_accept(listener), 5)
                with client:
                    client.sendall(http(b"{}"))
                    assert (await watcher.look(NOTHING)).health.outcome is Outcome.OK
                    assert tries >= 2

    asyncio.run(main())
    gc.collect()


def test_https_of_a_server_that_speaks_none_is_unreachable() -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def main() -> None:
        listener = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with watching(f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}") as watcher:
            assert (await watcher.look(HEALTH_ONLY)).health.outcome is Outcome.UNREACHABLE
        listener.close()

    asyncio.run(main())


def test_the_environments_proxies_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    async def main() -> None:
        async with served() as server, watching(server.url) as watcher:
            assert (await watcher.look(HEALTH_ONLY)).health.outcome is Outcome.OK

    asyncio.run(main())


def test_closing_hangs_up_on_what_is_in_flight_and_may_be_repeated() -> None:
    async def main() -> None:
        async with served() as server, watching(server.url, patience=0.01) as watcher:
            server.answers["/health"] = server.answers["/slots"] = hanging
            await watcher.look(Ask())
            await server.connected(2)
            async with asyncio.timeout(2):
                await watcher.aclose()
            await server.connected(0)
            assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
