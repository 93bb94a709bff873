"""The simulator against the real llama-server: whatever a watcher can see must look alike.

Each test shows the same thing to both, `real` first; a `Twin` is one of them, and a user of it.
"""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from llama_watchdog.simulator.faults import Fault
from llama_watchdog.simulator.launch import Simulated
from tests.e2e.ground.llama_client import LlamaClient, prompt_of
from tests.e2e.ground.real_server import RealServer, StartServer, free_port
from tests.e2e.ground.waiting import wait_until
from tests.e2e.ground.wedge import DECODE


@dataclass
class Twin:
    """The real server, or the simulated one."""

    server: RealServer | Simulated

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def process(self) -> subprocess.Popen[bytes]:
        return self.server.process

    @property
    def log(self) -> str:
        log = self.server.log
        return log.read_text(errors="replace") if isinstance(log, Path) else log

    @property
    def client(self) -> LlamaClient:
        return LlamaClient(int(self.url.rpartition(":")[2]))

    def get(self, path: str, **headers: str) -> httpx.Response:
        return httpx.get(self.url + path, headers=headers, timeout=5.0)

    def hangs(self, path: str) -> bool:
        """Whether there is no answer within a second."""
        try:
            httpx.get(self.url + path, timeout=1.0)
        except httpx.ReadTimeout:
            return True
        return False

    def refuses(self) -> bool:
        """Whether nothing listens any more."""
        try:
            httpx.get(self.url + "/health", timeout=1.0)
        except httpx.ConnectError:
            return True
        return False

    def wedge(self, mode: str, within: str = "") -> None:
        """Its main loop sleeps or spins for ever, in the midst of a step where `within` says so."""
        if isinstance(self.server, RealServer):
            self.server.wedge(mode, within)
        else:
            self.server.strike(Fault(mode))


TwoOfThem = Callable[..., tuple[Twin, Twin]]


@pytest.fixture
def twins(server_factory: StartServer) -> Iterator[TwoOfThem]:
    """Starts both with the same flags of llama-server's; the real one's threads and context are given."""
    with ExitStack() as stack:

        def start(*flags: str, simulated: tuple[str, ...] = ()) -> tuple[Twin, Twin]:
            real = Twin(server_factory(*flags))
            common = ("--threads", "1", "--ctx-size", "4096", *flags)
            twin = Twin(stack.enter_context(Simulated(*common, *simulated)))
            wait_until(twin.client.healthy, 10.0, "the simulator to be loaded")
            return real, twin

        yield start


def shape(value: object) -> object:
    """Keys and types, all the way down; of a list, those of its first item."""
    if isinstance(value, dict):
        return {key: "…" if key in ("params", "generation_settings") else shape(value[key]) for key in value}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def part_of(small: object, big: object) -> bool:
    """Whether `big` has all that `small` has: keys, and the types of what they hold."""
    if isinstance(small, dict) and isinstance(big, dict):
        return all(key in big and part_of(small[key], big[key]) for key in small)
    if isinstance(small, list) and isinstance(big, list):
        return not small or (bool(big) and part_of(small[0], big[0]))
    numbers = (int, float)
    return type(small) is type(big) or (isinstance(small, numbers) and isinstance(big, numbers))


def same(both: tuple[Twin, Twin], look: Callable[[Twin], object]) -> object:
    """What `look` sees of either, having made sure that it is the same."""
    real, simulated = (look(twin) for twin in both)
    assert simulated == real
    return real


def test_slots_before_during_and_after_a_task(twins: TwoOfThem) -> None:
    """Keys, types, and which numbers an idle slot goes on showing."""
    both = twins("--parallel", "1")
    same(both, lambda twin: [shape(slot) for slot in twin.client.slots()])

    def while_decoding(twin: Twin) -> object:
        generation = twin.client.start_decoding()
        slots = twin.client.slots()
        generation.close()
        (busy,) = [slot for slot in slots if slot["is_processing"]]
        token = busy["next_token"][0]
        assert token["n_decoded"] > 0
        # Answered in the middle of a step, one of the two may be a token ahead.
        context = busy["n_prompt_tokens"] - busy["n_prompt_tokens_processed"]
        assert abs(context - token["n_decoded"]) <= 1
        return shape(busy), token["n_remain"]

    same(both, while_decoding)

    def afterwards(twin: Twin) -> object:
        wait_until(lambda: not twin.client.busy(), 10.0, "the slot to be free")
        twin.client.complete("one two three", n_predict=5)
        (idle,) = twin.client.slots()
        token = idle["next_token"][0]
        assert idle["id_task"] > 0
        assert idle["n_prompt_tokens"] >= 5
        return shape(idle), idle["n_prompt_tokens_processed"], token["n_decoded"], token["n_remain"]

    same(both, afterwards)


def test_counters_of_a_prefill_step_by_whole_batches(twins: TwoOfThem) -> None:
    """Tokens join the context as a step begins, and count as processed as it ends."""
    both = twins("--batch-size", "64", simulated=("--prefill-rate", "200"))

    def steps(twin: Twin) -> object:
        generation = twin.client.start(prompt_of(400), n_predict=2)
        seen = set()
        while not generation.ended:
            for slot in twin.client.slots():
                if slot["is_processing"] and not slot["next_token"][0]["n_decoded"]:
                    seen.add((slot["n_prompt_tokens"], slot["n_prompt_tokens_processed"]))
        whole = {(done + 64, done) for _, done in seen if done <= 256}
        assert len(whole) >= 3, f"too few steps seen to compare: {seen}"
        between = {(done, done) for _, done in seen}  # the real one, caught after a step and before the next
        assert {step for step in seen if step[1] <= 256} <= whole | between
        return {done % 64 for _, done in seen}

    same(both, steps)


def test_health_props_metrics_models(twins: TwoOfThem) -> None:
    both = real, simulated = twins("--metrics")
    same(both, lambda twin: (twin.get("/health").status_code, twin.get("/health").json()))
    for path in ("/props", "/models"):
        answer = simulated.get(path).json()
        assert part_of(answer, real.get(path).json()), f"{path}: {answer}"
    theirs, ours = (twin.get("/props").json() for twin in both)
    for key in ("total_slots", "endpoint_slots", "endpoint_metrics", "is_sleeping", "build_info"):
        assert ours[key] == theirs[key]
    for twin in both:
        twin.client.complete(n_predict=3)

    def samples(twin: Twin) -> dict[str, float]:
        text = twin.get("/metrics").text
        return {
            name: float(value) for name, value in re.findall(r"^(llamacpp:\w+) (\S+)$", text, re.MULTILINE)
        }

    assert set(samples(simulated)) <= set(samples(real))
    for name in ("requests_processing", "requests_deferred", "n_decode_total", "tokens_predicted_total"):
        assert samples(simulated)[f"llamacpp:{name}"] == samples(real)[f"llamacpp:{name}"]


def test_requests_beyond_the_slots_are_deferred(twins: TwoOfThem) -> None:
    both = twins("--metrics", "--parallel", "1")

    def queue(twin: Twin) -> object:
        generations = [twin.client.start_decoding(), twin.client.start("and then"), twin.client.start("so")]
        wait_until(lambda: "llamacpp:requests_deferred 2" in twin.get("/metrics").text, 5.0, "the queue")
        processing = "llamacpp:requests_processing 1" in twin.get("/metrics").text
        busy = sum(slot["is_processing"] for slot in twin.client.slots())
        for generation in generations:
            generation.close()
        return processing, busy

    assert same(both, queue) == (True, 1)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/completion", {"prompt": "one two", "n_predict": 3}),
        ("/v1/completions", {"prompt": "one two", "max_tokens": 3}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}),
    ],
)
def test_completions_streaming_and_whole(twins: TwoOfThem, path: str, body: dict[str, Any]) -> None:
    both = real, simulated = twins()
    whole = [httpx.post(twin.url + path, json=body, timeout=20.0) for twin in both]
    assert part_of(whole[1].json(), whole[0].json()), whole[1].json()

    def events(twin: Twin) -> list[str]:
        answer = httpx.post(twin.url + path, json={**body, "stream": True}, timeout=20.0)
        assert answer.headers["content-type"].startswith("text/event-stream")
        return answer.text.strip().split("\n\n")

    theirs, ours = events(real), events(simulated)
    assert (theirs[-1] == "data: [DONE]") == (ours[-1] == "data: [DONE]")

    def keys(event: str) -> set[str]:
        return set(re.findall(r'"(\w+)":', event))

    assert keys(ours[0]) <= keys(theirs[0]) | keys(theirs[1])  # the first chunk of a chat names the role


def refusal(twin: Twin, path: str, **headers: str) -> object:
    answer = twin.get(path, **headers)
    error = answer.json().get("error", {}) if answer.status_code != 200 else {}
    return answer.status_code, error.get("type"), error.get("code")


def test_without_the_key_and_with_endpoints_switched_off(twins: TwoOfThem) -> None:
    real, simulated = twins("--api-key", "sesame", "--no-slots")
    key = {"Authorization": "Bearer sesame"}
    for path in ("/health", "/slots", "/props", "/metrics", "/models", "/nothing"):
        assert refusal(simulated, path) == refusal(real, path)
        assert refusal(simulated, path, **key) == refusal(real, path, **key)
    assert refusal(simulated, "/slots", **key) == (501, "not_supported_error", 501)


def test_while_loading_all_is_503_and_sigterm_ends_it_at_once(server_factory: StartServer) -> None:
    """The real one loads for a moment only: it is asked all the while."""
    port = free_port()

    def start() -> None:
        with suppress(RuntimeError):  # it is ended before it is loaded
            server_factory("--api-key", "sesame", port=port)

    starting = threading.Thread(target=start)
    starting.start()
    real = None
    deadline = time.monotonic() + 10
    while real is None and time.monotonic() < deadline:
        with suppress(httpx.HTTPError):
            real = [httpx.get(f"http://127.0.0.1:{port}{path}") for path in ("/health", "/slots", "/props")]
    (process,) = [
        process
        for process in psutil.process_iter(["name", "cmdline"])
        if process.info["name"] == "llama-server" and str(port) in process.info["cmdline"]
    ]
    process.terminate()
    began = time.monotonic()
    starting.join(timeout=10)
    assert time.monotonic() - began < 1.0
    assert real is not None

    with Simulated("--api-key", "sesame", "--load-seconds", "30") as loading:
        simulated = [httpx.get(f"{loading.url}{path}") for path in ("/health", "/slots", "/props")]
        loading.process.terminate()
        assert loading.process.wait(5) == -15
    assert [(answer.status_code, answer.json()) for answer in simulated] == [
        (answer.status_code, answer.json()) for answer in real
    ]


def test_a_healthy_idle_server_ends_on_sigterm(twins: TwoOfThem) -> None:
    def ends(twin: Twin) -> object:
        twin.process.terminate()
        return twin.process.wait(timeout=5)

    assert same(twins(), ends) == 0


def test_sigterm_waits_for_the_running_step_then_for_its_clients(twins: TwoOfThem) -> None:
    """In the step /slots hangs, /health and /props answer; after it the port is closed, the process lives.

    Of streaming clients the real server lets some go: nothing to be compared.
    """
    both = twins(simulated=("--prefill-rate", "150"))

    def ends(twin: Twin) -> object:
        generation = twin.client.start(prompt_of(700), n_predict=50, stream=False)
        wait_until(twin.client.busy, 5.0, "the prefill")
        twin.process.terminate()
        in_step = twin.hangs("/slots"), twin.get("/health").status_code, twin.get("/props").status_code
        wait_until(twin.refuses, 60.0, "the step to end")
        time.sleep(1.5)
        alive = twin.process.poll() is None
        generation.close()
        return in_step, alive, twin.process.wait(timeout=5)

    assert same(both, ends) == ((True, 200, 200), True, 0)


def test_a_loop_that_blocks_while_idle(twins: TwoOfThem) -> None:
    """Nothing that goes through the queue answers; SIGTERM is ignored; the second one ends it."""
    both = twins("--metrics")

    def wedged(twin: Twin) -> object:
        twin.wedge("block")
        before = twin.hangs("/slots"), twin.hangs("/metrics"), twin.get("/health").status_code
        main = psutil.Process(twin.process.pid)
        state = main.status()
        used = sum(main.cpu_times()[:2])
        twin.process.terminate()
        time.sleep(0.3)
        after = twin.process.poll(), twin.hangs("/slots"), twin.get("/health").status_code
        assert sum(main.cpu_times()[:2]) - used < 0.2
        twin.process.terminate()
        return before, state, after, twin.process.wait(timeout=5), "Received second interrupt" in twin.log

    assert same(both, wedged) == ((True, True, 200), "sleeping", (None, True, 200), 1, True)


@pytest.mark.parametrize("mode", ["block", "spin"])
def test_a_loop_wedged_in_a_step(twins: TwoOfThem, mode: str) -> None:
    """The slots answer with frozen counters; a client that leaves frees nothing."""
    both = twins("--metrics")

    def wedged(twin: Twin) -> object:
        generation = twin.client.start_decoding()
        twin.wedge(mode, DECODE)
        time.sleep(0.3)
        first = twin.client.slots()
        main = psutil.Process(twin.process.pid)
        cpu = main.cpu_times().user
        time.sleep(1.0)
        spins = main.cpu_times().user - cpu > 0.15
        frozen = first == twin.client.slots()
        generation.close()
        time.sleep(1.5)
        still_busy = twin.client.busy()
        return frozen, still_busy, spins, main.name(), twin.get("/metrics").status_code

    assert same(both, wedged) == (True, True, mode == "spin", "llama-server", 200)


@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "whole"])
def test_a_client_that_leaves_frees_its_slot(twins: TwoOfThem, stream: bool) -> None:
    """At once where it streams; otherwise after a second in which nobody got any result."""
    both = twins()

    def leaves(twin: Twin) -> object:
        generation = twin.client.start("once upon a time", stream=stream)
        wait_until(twin.client.busy, 5.0, "the slot to be busy")
        generation.close()
        if stream:
            wait_until(lambda: not twin.client.busy(), 5.0, "the slot to be free")
            return wait_until(lambda: "cancel task" in twin.log, 5.0, "its log to say so")
        for _ in range(8):  # looked at, it lives on
            time.sleep(0.25)
            assert twin.client.busy()
        time.sleep(2.0)
        return not twin.client.busy() and "cancel task" in twin.log

    assert same(both, leaves) is True


def test_sleep_is_disturbed_by_slots_alone(twins: TwoOfThem) -> None:
    both = twins("--sleep-idle-seconds", "1", "--metrics", simulated=("--load-seconds", "0.3"))

    def sleeps(twin: Twin) -> object:
        def asleep() -> bool:
            return bool(twin.get("/props").json()["is_sleeping"])

        twin.client.slots()
        wait_until(asleep, 10.0, "it to fall asleep")
        health, metrics = twin.get("/health").status_code, twin.get("/metrics").status_code
        still = asleep()
        slots = twin.client.slots()
        return health, metrics, still, shape(slots), asleep()

    same(both, sleeps)
