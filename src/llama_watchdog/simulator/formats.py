"""How each generation of llama-server words its answers: facts in, status and JSON (or text) out. Pure.

Taken from the servers themselves: b11669 as it answers, the others as their sources and READMEs word it.
What no watcher looks at is shortened, never renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from llama_watchdog.simulator.config import HealthFacts, MetricsFacts, PropsFacts, ServerConfig, SlotState

Json = dict[str, object]
MODEL = "/models/simulated.gguf"
ALIAS = "simulated"
SAMPLING: Json = {"seed": 4294967295, "temperature": 0.800000011920929, "top_k": 40, "min_p": 0.05}


@dataclass(frozen=True, slots=True)
class Format:
    """One generation: its name, its `build_info`, how it answers, and how it words a slot.

    `shows_prompt`: /slots carries the users' text. `health_counts`: /health carries the slots' numbers.
    """

    name: str
    build: str
    slot: Callable[[SlotState], Json]
    answers_mid_step: bool = False
    health_in_queue: bool = False
    health_counts: bool = False
    shows_prompt: bool = False

    def config(self, config: ServerConfig | None = None) -> ServerConfig:
        """`config`, with the habits of this generation."""
        return replace(
            config or ServerConfig(),
            answers_mid_step=self.answers_mid_step,
            health_in_queue=self.health_in_queue,
        )


def _today(slot: SlotState) -> Json:
    words: Json = {
        "id": slot.id,
        "n_ctx": slot.context,
        "speculative": False,
        "is_processing": slot.processing,
    }
    if slot.task >= 0:
        words["id_task"] = slot.task
        words["n_prompt_tokens"] = slot.prompt
        words["n_prompt_tokens_processed"] = slot.processed
        words["n_prompt_tokens_cache"] = 0
        words["params"] = _params(slot)
        words["next_token"] = [_next_token(slot, "n_decoded")]
    return words


def _b9247(slot: SlotState) -> Json:
    words = _today(slot)
    for key in ("n_prompt_tokens", "n_prompt_tokens_processed", "n_prompt_tokens_cache"):
        words.pop(key, None)
    return words


def _late_2024(slot: SlotState) -> Json:
    return {
        "id": slot.id,
        "id_task": slot.task,
        "n_ctx": slot.context,
        "speculative": False,
        "is_processing": slot.processing,
        "params": _params(slot),
        "prompt": slot.text,
        "next_token": {**_next_token(slot, "n_decoded"), "stopping_word": ""},
    }


def _early_2024(slot: SlotState) -> Json:
    return _flat(slot, "task_id", "num_tokens_predicted")


def _ik(slot: SlotState) -> Json:
    return _flat(slot, "id_task", "n_decoded")


def _flat(slot: SlotState, task: str, decoded: str) -> Json:
    token = _next_token(slot, decoded)
    del token["has_new_line"]
    return {
        "n_ctx": slot.context,
        "n_predict": slot.predict,
        "model": ALIAS,
        **SAMPLING,
        "id": slot.id,
        task: slot.task,
        "state": int(slot.processing),
        "prompt": slot.text,
        "next_token": {
            **token,
            "stopped_eos": False,
            "stopped_word": False,
            "stopped_limit": slot.task >= 0 and not slot.processing,
            "stopping_word": "",
        },
    }


def _next_token(slot: SlotState, decoded: str) -> Json:
    return {
        "has_next_token": slot.processing,
        "has_new_line": False,
        "n_remain": slot.remaining,
        decoded: slot.decoded,
    }


def _params(slot: SlotState) -> Json:
    return {"n_predict": slot.predict, **SAMPLING, "samplers": ["top_k", "min_p", "temperature"]}


FORMATS: dict[str, Format] = {
    form.name: form
    for form in (
        Format("b11669", "b11669-Debian", _today, answers_mid_step=True),
        Format("b9247", "b9247-0a1b2c3d4", _b9247),
        Format("2024-late", "b4321-5e6f7a8b9", _late_2024, shows_prompt=True),
        Format("2024-early", "", _early_2024, health_in_queue=True, health_counts=True, shows_prompt=True),
        Format("ik", "", _ik, health_in_queue=True, health_counts=True, shows_prompt=True),
    )
}
TODAY = FORMATS["b11669"]


def slots_body(form: Format, slots: Sequence[SlotState]) -> list[Json]:
    """The list that `GET /slots` answers."""
    return [form.slot(slot) for slot in slots]


def health_body(form: Format, facts: HealthFacts) -> tuple[int, Json]:
    """Status and body of `GET /health`."""
    if facts.loading:
        return (503, {"status": "loading model"}) if form.health_counts else loading_error()
    if not form.health_counts:
        return 200, {"status": "ok"}
    counts: Json = {"slots_idle": facts.idle, "slots_processing": facts.processing}
    if facts.idle:
        return 200, {"status": "ok", **counts}
    # ik_llama.cpp, like 2024's later builds, says it with a 200; the first builds with a 503.
    return 503 if form.name == "2024-early" else 200, {"status": "no slot available", **counts}


def props_body(form: Format, facts: PropsFacts, *, endpoint_slots: bool, endpoint_metrics: bool) -> Json:
    """The object that `GET /props` answers."""
    words: Json = {
        "default_generation_settings": {"params": SAMPLING, "n_ctx": facts.context},
        "total_slots": facts.slots,
    }
    if form.name == "2024-early":
        return {"user_name": "", "assistant_name": "", **words}
    words |= {"model_path": MODEL, "chat_template": ""}
    if form.name in ("b11669", "b9247"):
        words |= {
            "model_alias": ALIAS,
            "modalities": {"vision": False, "audio": False},
            "endpoint_slots": endpoint_slots,
            "endpoint_props": False,
            "endpoint_metrics": endpoint_metrics,
            "build_info": form.build,
            "is_sleeping": facts.sleeping,
        }
    return words


def metrics_text(form: Format, facts: MetricsFacts) -> str:
    """The text that `GET /metrics` answers, for Prometheus: six significant digits, as C++ prints them."""
    samples = [
        ("prompt_tokens_total", "counter", facts.prompt_total),
        ("tokens_predicted_total", "counter", facts.predicted_total),
        ("requests_processing", "gauge", facts.processing),
        ("requests_deferred", "gauge", facts.deferred),
    ]
    if form.name in ("b11669", "b9247"):
        samples.insert(2, ("n_decode_total", "counter", facts.decode_total))
    return "".join(
        f"# HELP llamacpp:{name} {name}\n# TYPE llamacpp:{name} {kind}\nllamacpp:{name} {value:.6g}\n"
        for name, kind, value in samples
    )


def models_body() -> Json:
    """The object that `GET /models` answers, also while the model loads."""
    return {
        "models": [{"name": ALIAS, "model": ALIAS, "type": "model", "capabilities": ["completion"]}],
        "object": "list",
        "data": [{"id": ALIAS, "object": "model", "owned_by": "llamacpp"}],
    }


def error_body(code: int, message: str) -> tuple[int, Json]:
    """Status and body of a refusal; the type is the code's."""
    kind = {
        400: "invalid_request_error",
        401: "authentication_error",
        404: "not_found_error",
        501: "not_supported_error",
        503: "unavailable_error",
    }[code]
    return code, {"error": {"message": message, "type": kind, "code": code}}


def loading_error() -> tuple[int, Json]:
    """What every endpoint answers while the model loads."""
    return error_body(503, "Loading model")
