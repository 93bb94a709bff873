"""What else lies between a simulated server and the watch: GPUs, HTTP, networks, systemd. A lens for each."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from llama_watchdog.core.observation import Gpu, Health, Observation, Outcome, Process, Slots, Unit
from llama_watchdog.core.wire import parse_slots
from llama_watchdog.simulator.config import ServerConfig
from tests.corpus.generated.noise import Lens, See


def neighbour_gpu(load: float = 0.93, *, own_known: bool = True) -> Lens:
    """Another process has the GPU; `own_known`: whether the shares can be told apart."""

    def begin(_: ServerConfig, rng: Random) -> See:
        def see(o: Observation) -> Observation:
            busy = min(1.0, load + 0.06 * rng.random())
            if o.gpu is None or o.gpu.outcome is not Outcome.OK:
                return o
            return replace(o, gpu=replace(o.gpu, busy=busy, own=o.gpu.own if own_known else None))

        return see

    return begin


def gpu_unknown(_: ServerConfig, __: Random) -> See:
    """It has a GPU open, and nothing tells its load."""
    return lambda o: replace(o, gpu=Gpu(Outcome.UNSUPPORTED))


def gpu_stuck(load: float, since: float) -> Lens:
    """From then on the process's own kernels keep the GPU at that load."""

    def begin(_: ServerConfig, __: Random) -> See:
        def see(o: Observation) -> Observation:
            if o.at < since or o.gpu is None:
                return o
            return replace(o, gpu=replace(o.gpu, busy=load, own=load))

        return see

    return begin


def gpu_memory_only(_: ServerConfig, __: Random) -> See:
    """The weights go straight to the GPU: neither reads nor memory show it."""

    def see(o: Observation) -> Observation:
        if o.process is None or o.process.outcome is not Outcome.OK:
            return o
        return replace(o, process=replace(o.process, rss=600 << 20, read_bytes=1 << 20))

    return see


def no_clients(since: float) -> Lens:
    """From then on nobody is connected."""
    return lambda _, __: lambda o: replace(o, clients=0) if o.at >= since else o


def http_taken(since: float, until: float) -> Lens:
    """Clients hold every HTTP thread: neither /health nor /slots is answered, whatever the loop does."""

    def begin(_: ServerConfig, __: Random) -> See:
        asked = {"health": 0.0, "slots": 0.0}

        def hang(what: str, at: float, timeout: float) -> tuple[Outcome, float]:
            began = asked[what] = asked[what] or at
            if at - began < timeout:
                return Outcome.PENDING, round(at - began + 1.0, 3)
            asked[what] = 0.0
            return Outcome.TIMEOUT, timeout

        def see(o: Observation) -> Observation:
            if not since <= o.at < until:
                return o
            health, slots = hang("health", o.at, 5.0), hang("slots", o.at, 10.0)
            return replace(o, health=Health(*health), slots=Slots(*slots))

        return see

    return begin


def slots_say(outcome: Outcome, share: float = 1.0, since: float = 0.0) -> Lens:
    """That share of the answers of /slots is of no use."""

    def begin(_: ServerConfig, rng: Random) -> See:
        def see(o: Observation) -> Observation:
            useless = o.slots is not None and o.at >= since and rng.random() < share
            return replace(o, slots=Slots(outcome, 0.002)) if useless else o

        return see

    return begin


def nothing_reached(since: float, until: float) -> Lens:
    """The network between watch and server is down."""

    def begin(_: ServerConfig, __: Random) -> See:
        def see(o: Observation) -> Observation:
            if not since <= o.at < until:
                return o
            lost = Outcome.UNREACHABLE
            return replace(o, health=Health(lost), slots=Slots(lost), process=Process(Outcome.UNSUPPORTED))

        return see

    return begin


def fresh_slots_after_sleep(_: ServerConfig, __: Random) -> See:
    """A model that is loaded again has slots that never had a task, as the real server shows them."""
    before: set[int] = set()
    latest: set[int] = set()

    def forget(slot: dict[str, object]) -> dict[str, object]:
        return {key: slot[key] for key in ("id", "n_ctx", "speculative", "is_processing")}

    def see(o: Observation) -> Observation:
        if o.props is not None and o.props.sleeping:
            before.update(latest)
        if o.slots is None or not isinstance(o.slots.body, list):
            return o
        latest.update(slot["id_task"] for slot in o.slots.body if "id_task" in slot)
        body = [forget(slot) if slot.get("id_task") in before else slot for slot in o.slots.body]
        return replace(o, slots=replace(o.slots, slots=parse_slots(body), body=body))

    return see


def text_before(tokens: int, since: float) -> Lens:
    """The prompts of tasks that begin from then on have so many tokens of text before all else."""

    def begin(_: ServerConfig, __: Random) -> See:
        old: set[object] = set()

        def longer(slot: dict[str, object]) -> dict[str, object]:
            if not slot["is_processing"] or slot["id_task"] in old:
                return slot
            keys = ("n_prompt_tokens", "n_prompt_tokens_processed")
            return {**slot, **{key: int(str(slot[key])) + tokens for key in keys}}

        def see(o: Observation) -> Observation:
            if o.slots is None or not isinstance(o.slots.body, list):
                return o
            if o.at < since:
                old.update(slot.get("id_task") for slot in o.slots.body)
                return o
            body = [longer(slot) for slot in o.slots.body]
            return replace(o, slots=replace(o.slots, slots=parse_slots(body), body=body))

        return see

    return begin


def unit(since: float, *, until: float = 1e9, active: str = "active", **more: str) -> Lens:
    """What systemd says of the server's unit, asked only while something is wrong."""

    def begin(_: ServerConfig, __: Random) -> See:
        state = Unit(Outcome.OK, load="loaded", active=active, **more)  # type: ignore[arg-type]  # words only

        def see(o: Observation) -> Observation:
            return replace(o, unit=state) if since <= o.at < until else o

        return see

    return begin


def health_dead(since: float) -> Lens:
    """From then on no HTTP thread is left to answer /health, where it is asked."""

    def begin(_: ServerConfig, __: Random) -> See:
        def see(o: Observation) -> Observation:
            if o.at < since or o.health is None:
                return o
            return replace(o, health=Health(Outcome.TIMEOUT, 5.0))

        return see

    return begin
