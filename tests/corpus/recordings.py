"""What was recorded from the real llama-server (b11669, CPU), and what must come of it."""

from __future__ import annotations

from tests.corpus.entry import Acts, Entry, Never, Recorded, fault, healthy


def well(
    kind: str, scene: str, variant: str, *, seen: str = "busy", unseen: str | None = None, bug: str = ""
) -> Entry:
    """A recording in which nothing may be done."""
    return healthy(kind, f"real-{scene}", variant, Recorded(scene), seen=seen, unseen=unseen, bug=bug)


def wedged(
    kind: str,
    scene: str,
    variant: str,
    reason: str,
    evidence: str | None = "blocked",
    *,
    budget: float = 30.0,
    interval: float = 2.0,
    bug: str = "",
) -> Entry:
    """A recording of a wedge, from the moment marked `fault`."""
    expect = Acts("fault", budget, reason, evidence)
    return fault(kind, f"real-{scene}", variant, Recorded(scene), expect, interval=interval, bug=bug)


REAL_HEALTHY = [
    well(
        "F1", "prefill", "3,500 tokens on one thread: two steps of twenty seconds", unseen="loading suspect"
    ),
    well("F1", "prefill-two-threads", "3,500 tokens on two threads, in small batches"),
    well("F1", "few-rights", "2,500 tokens, watched without the right to see files and reads"),
    well(
        "F3", "load-from-a-slow-disk", "nothing of the model in memory, 1.5 MB a second", seen="loading idle"
    ),
    well("F4", "drafting", "a second model drafts tokens: counters leap"),
    well("F4", "embeddings", "tasks that generate nothing", unseen="loading suspect"),
    well("F5", "endless", "generation without end, its context shifted again and again"),
    well("F6", "queue", "three times as many requests as slots"),
    well("F6", "few-http-threads", "a dozen streaming clients on two slots"),
    well("F6", "many-slots", "32 slots, eight at work"),
    well("F6", "everyday", "short questions now and then"),
    well("F7", "sleep", "asleep, woken by a request, asleep again", seen="sleeping idle"),
    well(
        "F7",
        "waking-from-a-slow-disk",
        "a waking that reads for 65 s; /props hangs meanwhile",
        seen="sleeping idle",
    ),
    well("F8", "paging", "less memory than the model takes: 6 s a token, all of it page faults"),
    well("F9", "quota-of-a-fifth", "20 % of a core for two threads"),
    well("F9", "quota-of-a-fiftieth", "2 % of a core for two threads"),
    well("F10", "clients-leave", "clients leave within prefill and decoding, with streams and without"),
    well("F10", "reader-asleep", "a client does not read its stream"),
    well("F11", "stopped", "SIGSTOP", seen="busy paused"),
    well("F11", "debugged", "gdb", seen="busy paused"),
    well("F11", "frozen-cgroup-v2", "a frozen group, cgroup.freeze", seen="busy paused"),
    well("F11", "frozen-cgroup-v1", "a frozen group, freezer.state", seen="busy paused"),
    well("F11", "starved-watchdog", "the watch does not run for 70 s, nor does the server for most of them"),
    well("F13", "proxy", "a proxy on the port, still while the server behind it works"),
    well("F13", "router", "a router's parent", seen="blind"),
    well("B1", "no-slots", "--no-slots", seen="blind"),
    well("B1", "no-key", "a key that the watch was not given", seen="blind"),
    well("P1", "keep-alive-pool", "others ask, too, and keep their connections", seen="idle"),
]

REAL_FAULTS = [
    wedged(
        "K1",
        "block-idle",
        "with nothing to do",
        "slots-hang",
    ),
    wedged("K1", "block-decoding", "in the middle of an answer", "frozen", interval=5.0),
    wedged("K1", "block-prefilling", "in the middle of a prompt", "frozen", interval=1.0),
    wedged("K1", "block-two-threads", "of a server with two compute threads", "frozen"),
    wedged("K1", "block-few-rights", "without the right to see files and reads", "frozen"),
    wedged("K1", "block-before-sleep", "of a server that can sleep", "frozen"),
    wedged("K2", "block-four-slots", "four answers stand, two requests wait", "frozen"),
    wedged("K2", "block-client-left", "its client leaves", "frozen"),
    wedged("K2", "block-retries", "clients retry with long prompts", "frozen"),
    wedged(
        "K3",
        "spin-idle",
        "one of two threads, with nothing to do",
        "slots-hang",
        "spinning",
        budget=60.0,
        interval=5.0,
    ),
    wedged("K3", "spin-decoding", "in the middle of an answer", "frozen", "spinning", budget=60.0),
    wedged(
        "K3", "spin-prefilling", "in the middle of a prompt", "frozen", "spinning", budget=60.0, interval=1.0
    ),
    wedged(
        "K3", "grammar-explodes", "a client's grammar that never ends", "slots-hang", "spinning", budget=60.0
    ),
    wedged("K7", "load-hangs", "half-way, while clients ask on", "load", None, budget=1800.0, interval=5.0),
    wedged(
        "K8",
        "block-sigterm",
        "SIGTERM comes to nothing",
        "slots-hang",
    ),
    wedged("K8", "killed", "SIGKILL, not reaped for a while", "gone", None, budget=0.0, interval=1.0),
    wedged("K11", "killed-and-back", "SIGKILL, and started again by hand", "gone", None, budget=0.0),
    wedged("B1", "block-metrics", "without /slots, but with /metrics", "frozen"),
    fault(
        "K8",
        "real-sigterm-in-prefill",
        "told to end by its admin: the port is closed, the process waits for a client",
        Recorded("sigterm-in-prefill"),
        Acts("refused", 15.0, "refused", None),
        interval=1.0,
    ),
    fault(
        "B1",
        "real-block-no-slots",
        "without either: nothing can be proven",
        Recorded("block-no-slots"),
        Never(healthy=False),
        seen="blind",
    ),
    fault(
        "F7",
        "real-block-asleep",
        "wedged while asleep: the client that waits can't be told from one that polls /health",
        Recorded("block-asleep"),
        Never(healthy=False),
        seen="sleeping",
    ),
]

RECORDINGS: list[Entry] = [*REAL_HEALTHY, *REAL_FAULTS]
