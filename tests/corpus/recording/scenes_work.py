"""Scenes of the real server at work, however it looks: never to be acted upon."""

from __future__ import annotations

from tests.corpus.recording.scene import BOOK, scene
from tests.corpus.recording.stage import Stage
from tests.e2e.ground.llama_client import prompt_of
from tests.e2e.ground.llama_root import MODEL


@scene("everyday", interval="5s")
def everyday(stage: Stage) -> None:
    """Short questions now and then, long idle times, four slots."""
    stage.start("--parallel", "4")
    stage.watch()
    for tokens, predict in ((40, 30), (300, 60), (20, 120), (600, 40), (90, 200)):
        stage.client.start(prompt_of(tokens), predict).wait(120.0)
        stage.rest(18.0)


@scene("prefill", interval="1s")
def prefill(stage: Stage) -> None:
    """3,500 tokens of prompt on one thread: two steps, each of twenty seconds."""
    stage.start()
    stage.watch(5)
    stage.client.start(prompt_of(3500), 40).wait(300.0)
    stage.polls(5)


@scene("prefill-two-threads", interval="2s")
def prefill_two_threads(stage: Stage) -> None:
    """The same on two threads, in small batches."""
    stage.start("--batch-size", "512", threads=2)
    stage.watch(3)
    stage.client.start(prompt_of(3500), 40).wait(300.0)
    stage.polls(3)


@scene("few-rights", interval="2s", rights=False)
def few_rights(stage: Stage) -> None:
    """Watched by an ordinary user, who sees threads but neither their reads nor their files."""
    stage.start(threads=2)
    stage.watch(3)
    stage.client.start(prompt_of(2500), 60).wait(200.0)
    stage.rest(15.0)


@scene("queue", interval="2s", config='metrics = "on"\n')
def queue(stage: Stage) -> None:
    """Twice as many requests as slots: some are put off all the time."""
    stage.start("--parallel", "2", "--metrics")
    stage.watch(3)
    waiting = [stage.client.start(prompt_of(200), 150, stream=n % 2 == 0) for n in range(6)]
    for generation in waiting:
        generation.wait(300.0)
    stage.polls(4)


@scene("clients-leave", interval="1s")
def clients_leave(stage: Stage) -> None:
    """Clients give up while their tokens flow, while they wait for all of them, and within a prefill."""
    stage.start("--parallel", "2")
    stage.watch(3)
    for stream, seconds in ((True, 6), (False, 6), (True, 3), (False, 12)):
        leaving = stage.client.start(prompt_of(100), stream=stream)
        staying = stage.client.start(prompt_of(50), 60)
        stage.rest(seconds)
        leaving.close()
        staying.wait(120.0)
    leaving = stage.client.start(prompt_of(1600), 40)
    stage.rest(5.0)
    leaving.close()
    stage.rest(25.0)


@scene("embeddings", interval="1s")
def embeddings(stage: Stage) -> None:
    """Tasks that generate nothing."""
    stage.start("--embeddings", "--pooling", "mean", "--parallel", "2")
    stage.watch(3)
    for tokens in (20, 100, 400, 60, 480, 30, 200, 490):
        stage.client.request("POST", "/embedding", {"content": prompt_of(tokens)}, timeout=120.0)
        stage.rest(2.0)
    stage.polls(3)


@scene("drafting", interval="2s")
def drafting(stage: Stage) -> None:
    """A second model drafts tokens: counters leap."""
    stage.start("--model-draft", MODEL, "--parallel", "1")
    stage.watch(3)
    stage.client.start(prompt_of(300), 250).wait(200.0)
    stage.polls(3)


@scene("few-http-threads", interval="2s")
def few_http_threads(stage: Stage) -> None:
    """A dozen streaming clients, and two HTTP threads asked for: today's builds start more as needed."""
    stage.start("--threads-http", "2", "--parallel", "2")
    stage.watch(3)
    streams = [stage.client.start(BOOK, 120) for _ in range(12)]
    for stream in streams:
        stream.wait(300.0)
    stage.polls(3)


@scene("reader-asleep", interval="2s")
def reader_asleep(stage: Stage) -> None:
    """A client reads nothing of its stream, another does."""
    stage.start("--parallel", "2")
    stage.watch(3)
    connection = stage.client.open(60.0)
    body = '{"prompt":"Once","n_predict":-1,"stream":true,"ignore_eos":true,"n_probs":20}'
    connection.request("POST", "/completion", body)
    other = stage.client.start(prompt_of(50), 300)
    stage.rest(60.0)
    connection.close()
    other.wait(120.0)
    stage.polls(3)


@scene("endless", interval="5s")
def endless(stage: Stage) -> None:
    """Generation without end, its context shifted again and again."""
    stage.start("--context-shift", "--ctx-size", "512")
    stage.watch(3)
    generation = stage.client.start_decoding(BOOK)
    stage.rest(150.0)
    generation.close()
    stage.polls(2)


@scene("many-slots", interval="2s")
def many_slots(stage: Stage) -> None:
    """32 slots, eight of them at work."""
    stage.start("--parallel", "32", "--ctx-size", "16384")
    stage.watch(3)
    for generation in [stage.client.start(prompt_of(60), 60) for _ in range(8)]:
        generation.wait(200.0)
    stage.polls(3)


@scene("keep-alive-pool", interval="2s")
def keep_alive_pool(stage: Stage) -> None:
    """Ten connections ask for /health every 4 s and stay open: those silent for 5 s would be closed."""
    stage.start("--metrics")
    stage.watch(3)
    pool = [stage.client.open(30.0) for _ in range(10)]
    for _ in range(12):
        for connection in pool:
            connection.request("GET", "/health")
            connection.getresponse().read()
        stage.rest(4.0)
    for connection in pool:
        connection.close()
    stage.polls(2)
