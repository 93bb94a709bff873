"""The simulated server as a real process: HTTP, threads, signals."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from llama_watchdog.simulator.faults import Fault
from llama_watchdog.simulator.launch import Simulated

QUICK = ("--threads", "0", "--prefill-rate", "100000", "--decode-rate", "200", "--metrics")


@pytest.fixture(scope="module")
def server() -> Iterator[Simulated]:
    """For tests that leave it as they found it."""
    with Simulated(*QUICK, "--slots", "2") as simulated:
        until(lambda: get(simulated, "/health").status_code == 200)
        yield simulated


def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.005)


def get(
    server: Simulated, path: str, timeout: float = 5.0, headers: dict[str, str] | None = None
) -> httpx.Response:
    return httpx.get(server.url + path, timeout=timeout, headers=headers)


def hangs(server: Simulated, path: str) -> bool:
    try:
        get(server, path, timeout=0.1)
    except httpx.ReadTimeout:
        return True
    return False


def busy(server: Simulated) -> list[dict[str, object]]:
    """The slots that are processing, without what needs no look."""
    slots = get(server, "/slots").json()
    return [{**slot, "params": None} for slot in slots if slot["is_processing"]]


def ask(server: Simulated, n_predict: int = 4000) -> socket.socket:
    """A streaming client that has sent its request."""
    body = json.dumps({"prompt": "once upon", "n_predict": n_predict, "stream": True})
    client = socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=5)
    head = f"POST /completion HTTP/1.1\r\nHost: simulator\r\nContent-Length: {len(body)}\r\n\r\n"
    client.sendall((head + body).encode())
    return client


def stream(server: Simulated) -> socket.socket:
    """A streaming client whose first token has come."""
    client = ask(server)
    read_token(client)
    return client


def read_token(client: socket.socket) -> None:
    seen = b""
    while b'"content"' not in seen:
        seen += client.recv(4096)


def main_thread(server: Simulated) -> tuple[str, float]:
    """State and CPU seconds of the thread whose id is the process's."""
    fields = Path(f"/proc/{server.pid}/task/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return fields[0], (int(fields[11]) + int(fields[12])) / 100


def test_it_looks_and_answers_like_a_llama_server(server: Simulated) -> None:
    assert Path(f"/proc/{server.pid}/comm").read_text() == "llama-server\n"
    assert get(server, "/health").json() == {"status": "ok"}
    assert get(server, "/props").json()["total_slots"] == 2
    assert len(get(server, "/slots").json()) == 2
    assert "llamacpp:requests_deferred 0" in get(server, "/metrics").text
    assert get(server, "/v1/models").json()["object"] == "list"
    assert get(server, "/nothing").status_code == 404


def test_completions_in_each_api(server: Simulated) -> None:
    answer = httpx.post(f"{server.url}/completion", json={"prompt": "a b c", "n_predict": 3}).json()
    assert (answer["content"], answer["tokens_predicted"]) == ("The quick brown", 3)
    answer = httpx.post(f"{server.url}/v1/completions", json={"prompt": "a b", "max_tokens": 2}).json()
    assert answer["choices"][0]["text"] == "The quick"
    chat = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2, "stream": True}
    events = httpx.post(f"{server.url}/v1/chat/completions", json=chat).text.split("\n\n")
    words = [json.loads(event[6:])["choices"][0]["delta"].get("content") for event in events[:2]]
    assert words == ["The", " quick"]
    assert events[-2] == "data: [DONE]"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/completion", b'{"prompt": "a secret'),
        ("/completion", b'{"n_predict": 3}'),
        ("/completion", b"[]"),
        ("/completion", json.dumps({"prompt": "a secret " * 4000}).encode()),
        ("/v1/chat/completions", b'{"messages": "a secret"}'),
        ("/simulator/fault", b'{"fault": "stopped"}'),
        ("/simulator/fault", b"fault=spin"),
    ],
)
def test_bad_requests_are_refused_without_being_quoted(server: Simulated, path: str, body: bytes) -> None:
    answer = httpx.post(server.url + path, content=body)
    assert answer.status_code == 400
    assert "secret" not in answer.text


def test_a_streaming_client_that_leaves_frees_its_slot(server: Simulated) -> None:
    client = stream(server)
    assert len(busy(server)) == 1
    client.close()
    until(lambda: not busy(server))
    assert "cancel task" in server.log


def test_a_deaf_server_defers_and_serves_again_once_healed(server: Simulated) -> None:
    server.strike(Fault.DEAF)
    client = ask(server, n_predict=2)
    until(lambda: "llamacpp:requests_deferred 1" in get(server, "/metrics").text)
    assert not busy(server)
    server.strike(Fault.NONE)
    read_token(client)
    client.close()


def test_an_idle_loop_that_blocks_is_asleep_and_silences_slots(server: Simulated) -> None:
    server.strike(Fault.BLOCK)
    until(lambda: main_thread(server)[0] == "S")
    before = main_thread(server)[1]
    assert hangs(server, "/slots")
    assert hangs(server, "/metrics")
    assert get(server, "/health").status_code == 200
    ask(server).close()
    assert main_thread(server)[1] - before <= 0.01
    server.strike(Fault.NONE)
    until(lambda: not hangs(server, "/slots") and not busy(server))


def test_key_and_switched_off_endpoints() -> None:
    with Simulated("--threads", "0", "--api-key", "sesame", "--no-slots") as locked:
        until(lambda: get(locked, "/health").status_code == 200)
        for path in ("/slots", "/props", "/metrics", "/models", "/nothing"):
            assert get(locked, path).status_code == 401
        key = {"Authorization": "Bearer sesame"}
        assert get(locked, "/slots", headers=key).status_code == 501
        assert get(locked, "/metrics", headers={"X-Api-Key": "sesame"}).status_code == 501
        assert get(locked, "/props", headers=key).status_code == 200


def test_while_it_loads_sigterm_ends_it_at_once() -> None:
    with Simulated("--threads", "0", "--fault", "load-hang") as loading:
        for path in ("/health", "/slots", "/props", "/models"):
            assert get(loading, path).status_code == 503
        loading.process.terminate()
        assert loading.process.wait(5) == -signal.SIGTERM


def test_wedged_in_a_step_it_freezes_and_only_the_second_sigterm_ends_it() -> None:
    with Simulated(*QUICK, "--fault", "block", "--after-tokens", "5") as wedged:
        client = stream(wedged)
        until(lambda: main_thread(wedged)[0] == "S" and busy(wedged) == busy(wedged))
        (slot,) = busy(wedged)
        assert slot["next_token"][0]["n_decoded"] >= 5  # type: ignore[index] # JSON of a known shape
        wedged.process.terminate()
        until(lambda: hangs(wedged, "/slots"))
        assert wedged.process.poll() is None
        assert get(wedged, "/health").status_code == 200
        wedged.process.terminate()
        assert wedged.process.wait(5) == 1
        assert "Received second interrupt, terminating immediately." in wedged.log
        client.close()


def test_a_spinning_main_thread_burns_its_core_and_may_survive_every_sigterm() -> None:
    with Simulated("--threads", "2", "--second-sigterm", "hangs", "--fault", "spin") as spinning:
        until(lambda: "model loaded" in spinning.log)
        before = main_thread(spinning)[1]
        until(lambda: main_thread(spinning)[1] > before + 0.1)
        assert hangs(spinning, "/slots")
        while "second interrupt" not in spinning.log:
            spinning.process.terminate()
            time.sleep(0.02)
        assert spinning.process.poll() is None
        assert get(spinning, "/health").status_code == 200


def test_a_frozen_task_goes_when_its_client_does_and_ctrl_c_ends_a_healthy_server() -> None:
    with Simulated(*QUICK, "--fault", "frozen-until-cancel", "--after-tokens", "3") as frozen:
        client = stream(frozen)
        until(lambda: busy(frozen) == busy(frozen))
        client.close()
        until(lambda: "cancel task" in frozen.log)  # a second without results for anyone, /slots included
        until(lambda: not busy(frozen))
        frozen.process.send_signal(signal.SIGINT)
        assert frozen.process.wait(5) == 0


def test_no_listen_refuses_everyone_while_the_process_lives() -> None:
    with Simulated(*QUICK) as half_dead, httpx.Client() as kept_alive:
        until(lambda: kept_alive.get(f"{half_dead.url}/health").status_code == 200)
        half_dead.strike(Fault.NO_LISTEN)
        until(lambda: refused(lambda: get(half_dead, "/health")))
        assert refused(lambda: kept_alive.get(f"{half_dead.url}/health"))
        assert half_dead.process.poll() is None


def refused(request: Callable[[], object]) -> bool:
    try:
        request()
    except httpx.ConnectError:
        return True
    return False


def test_it_listens_on_a_unix_socket_too_and_a_crash_is_an_abort(tmp_path: Path) -> None:
    path = tmp_path / "llama.sock"
    with Simulated(*QUICK, "--unix-socket", str(path)) as crashing:
        assert crashing.url == f"unix://{path}"
        crashing.strike(Fault.CRASH)
        assert crashing.process.wait(5) == -signal.SIGABRT


def test_an_address_that_cannot_be_had_is_one_line(server: Simulated) -> None:
    port = server.url.rpartition(":")[2]
    command = [sys.executable, "-m", "llama_watchdog.simulator", "--port", port]
    second = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    assert second.returncode == 2
    assert second.stderr.count("\n") == 1
    assert "in use" in second.stderr
