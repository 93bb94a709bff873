"""Strangers in the place of the server, and nothing to be seen of it."""

from __future__ import annotations

from llama_watchdog.core.observation import Outcome
from llama_watchdog.simulator.config import Compute, ServerConfig, Task
from llama_watchdog.simulator.faults import Fault
from llama_watchdog.simulator.happenings import (
    Request,
    Restart,
    Sigkill,
    traffic,
)
from llama_watchdog.simulator.traces import Watcher
from tests.corpus.entry import Acts, Entry, Never, fault, healthy
from tests.corpus.generated.common import (
    AT,
    CRAWL,
    ENDLESS,
    EVERY_TEN,
    GENERATES,
    LONG,
    OLD,
    decoding,
    wedge,
)
from tests.corpus.generated.sight import (
    neighbour_gpu,
    nothing_reached,
    slots_say,
    unit,
)
from tests.corpus.generated.story import story

STRANGERS: list[Entry] = [
    healthy(
        "F13",
        "wrapper",
        "the unit's main process is a shell: nothing is known of the server's own",
        story(
            60,
            [Request(20.0, Task(3900, 60))],
            config=ServerConfig(prefill_rate=3.0),
            watcher=Watcher(sees_process=False),
            known={"uses_gpu": None, "compute_threads": None},
        ),
    ),
    healthy(
        "F13",
        "proxy-old",
        "behind a proxy, an old build, silent for an hour",
        story(
            75,
            [Request(20.0, Task(2040, 60))],
            config=ServerConfig(prefill_rate=0.56),
            form=OLD,
            watcher=Watcher(sees_process=False, interval=10.0),
            known={"uses_gpu": None, "compute_threads": None},
        ),
    ),
    healthy(
        "F13",
        "neighbour-gpu-idle",
        "a neighbour has the GPU, while the server has nothing to do",
        story(30, [Request(20.0, Task(100, 100))], neighbour_gpu(), config=ServerConfig(compute=Compute.GPU)),
    ),
    healthy(
        "F13",
        "neighbour-gpu-unattributed",
        "the same, and nobody can tell whose load it is, under traffic",
        story(
            40,
            traffic(until=3500, every=40.0, seed=21),
            neighbour_gpu(own_known=False),
            config=ServerConfig(compute=Compute.GPU),
        ),
    ),
    healthy(
        "F13",
        "stopped-by-its-admin",
        "systemctl stop: it is gone, and must stay so",
        story(
            20,
            [Request(20.0, Task(100, 500)), Sigkill(120.0)],
            unit(118.0, active="inactive", sub="dead", result="success"),
        ),
        unseen="suspect",
    ),
    healthy(
        "F13",
        "restarted-by-its-admin",
        "systemctl restart: gone, refused, loading, back",
        story(
            30,
            [Request(20.0, Task(100, 500)), Sigkill(120.0), Restart(128.0), Request(300.0, Task(100, 500))],
            unit(118.0, until=129.0, active="deactivating", sub="stop-sigterm", job="restart"),
            unit(129.0, active="active", sub="running"),
            config=ServerConfig(load_seconds=60.0),
        ),
        unseen="suspect",
    ),
    healthy(
        "B1",
        "slots-off",
        "/slots is switched off",
        story(30, traffic(until=3500, every=30.0, seed=7), config=ServerConfig(endpoint_slots=False)),
        seen="blind",
    ),
    healthy(
        "B1",
        "slots-off-metrics-on",
        "the same, but /metrics tells enough",
        story(
            30,
            traffic(until=3500, every=30.0, seed=7),
            config=ServerConfig(endpoint_slots=False, endpoint_metrics=True),
        ),
        seen="busy",
    ),
    healthy(
        "B1",
        "no-key",
        "it wants a key that the watch has not",
        story(30, traffic(until=3500, every=30.0, seed=8), watcher=Watcher(has_key=False)),
        seen="blind",
    ),
    healthy(
        "B1",
        "malformed",
        "/slots answers with something else, through a prefill of 11 minutes a step",
        story(30, LONG, slots_say(Outcome.MALFORMED), config=CRAWL),
        seen="blind",
    ),
    healthy(
        "B1",
        "errors-now-and-then",
        "every third answer of /slots is an error",
        story(30, traffic(until=3500, every=30.0, seed=9), slots_say(Outcome.ERROR, share=0.35)),
    ),
    healthy(
        "B1",
        "not-found",
        "404: another server's api, or a proxy's",
        story(
            30,
            traffic(until=3500, every=30.0, seed=10),
            slots_say(Outcome.UNSUPPORTED),
            watcher=Watcher(sees_process=False),
        ),
        seen="blind",
    ),
    healthy(
        "B1",
        "network-lost",
        "the network is down for ten minutes in mid-generation",
        story(30, [GENERATES], nothing_reached(300.0, 900.0), config=ENDLESS),
        seen="blind",
    ),
    fault(
        "B1",
        "wedged-while-blind",
        "/slots is switched off, and nothing can be proven",
        wedge(
            decoding(Fault.BLOCK), config=ServerConfig(endpoint_slots=False), minutes=60, watcher=EVERY_TEN
        ),
        Never(healthy=False),
        seen="blind",
    ),
    fault(
        "B1",
        "wedged-while-blind-metrics",
        "the same, but /metrics hangs",
        wedge(
            decoding(Fault.BLOCK), form=OLD, config=ServerConfig(endpoint_slots=False, endpoint_metrics=True)
        ),
        Acts(AT, 30.0, "slots-hang", "blocked"),
    ),
    fault(
        "B1",
        "wedged-and-errors",
        "a third of the answers of /slots are errors",
        wedge(decoding(Fault.FREEZE), slots_say(Outcome.ERROR, share=0.33)),
        Acts(AT, 60.0, "frozen", "blocked", early=30.0),
    ),
]
