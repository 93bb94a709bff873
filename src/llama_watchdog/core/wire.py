"""llama-server's answers, as every build so far words them -> facts, and what of them may be stored.

Only reading: no HTTP, and no judgement of what the facts mean. Tolerant of what may drift (unknown keys,
absent or oddly typed counters), strict on what a judgement rests on (which slots there are, and which of
them work). Values of a wrong type, negative, not finite or beyond 2^53 are unknown: `None`.
"""

from __future__ import annotations

import json
import re

from llama_watchdog.core.observation import Metrics, Outcome, Props, Slot

MAX_SLOTS = 1024  # llama.cpp itself allows 256 sequences (LLAMA_MAX_SEQ)
MAX_METRICS_CHARS = 1 << 20  # the real page has some 2,500
_MAX_CONTAINERS = 1_000_000  # their decoding takes 0.1 s and 70 MB; 256 real slots have some 4,000
_LARGEST = 1 << 53  # up to here integers and floating point numbers name the same counts
_LONGEST_KEY = 64
_LONGEST_TEXT = 4096


class WireError(ValueError):
    """An answer that is not what its endpoint answers. Its text never quotes the answer."""


def decode(body: bytes) -> object:
    """The JSON of an answer. Raises WireError for anything else, and for absurdly deep or many parts."""
    if body.count(b"[") + body.count(b"{") > _MAX_CONTAINERS:
        raise WireError("too many lists and objects")
    try:
        return json.loads(body.decode())
    except (ValueError, RecursionError):
        raise WireError("no JSON") from None  # the cause would carry the answer along


def parse_slots(body: object) -> tuple[Slot, ...]:
    """The slots of a decoded `GET /slots`, raw or redacted, in the server's order.

    Counters are looked for under each build's name: `id_task` or `task_id` (-1: no task),
    `is_processing` or `state` (0 idle, anything else at work), `next_token` as an object or a list of one,
    and in it `n_decoded` or `num_tokens_predicted`.
    Raises WireError unless it is a list of objects, each with its own whole `id` and a readable state.
    """
    if not isinstance(body, list):
        raise WireError("/slots is no list")
    if len(body) > MAX_SLOTS:
        raise WireError(f"/slots lists {len(body)} slots")
    slots: dict[int, Slot] = {}
    for item in body:
        slot = _slot(item)
        slots[slot.id] = slot
    if len(slots) != len(body):
        raise WireError("/slots lists one id twice")
    return tuple(slots.values())


def redact(body: object) -> object:
    """What of a decoded `GET /slots` may be stored: numbers, booleans and nulls, also within `next_token`.

    An allow-list by shape, because any string, list or object may carry users' text: prompts, stop words,
    grammars, biased words, and whatever a build adds next. Keys that are no plain names go too.
    `parse_slots` reads the same slots from the result, or rejects it likewise. `None` for what is no list.
    """
    if not isinstance(body, list):
        return None
    return [_redact_slot(item) for item in body]


def health_outcome(status: int, body: object) -> Outcome:
    """What `GET /health` said. `body` is its decoded JSON, `None` where it is none.

    A 503 that only reports every slot busy is OK: builds of early 2024 answered so.
    """
    if status == 200 or (status == 503 and "no slot available" in _message(body)):
        return Outcome.OK
    return Outcome.ERROR if status == 400 else answer_outcome(status, body)


def answer_outcome(status: int, body: object) -> Outcome:
    """What the status of any other endpoint says, and `body` where it refuses: decoded JSON or `None`."""
    match status:
        case 200:
            return Outcome.OK
        case 503 if "loading model" in _message(body):
            return Outcome.LOADING
        case 401 | 403:
            return Outcome.UNAUTHORIZED
        case 400 | 404 | 501:  # 400: a router, which wants to be told of which model
            return Outcome.UNSUPPORTED
        case _:
            return Outcome.ERROR


def parse_props(body: object) -> Props:
    """The facts of a decoded `GET /props`; a router says `"role": "router"`.

    Raises WireError where nothing in it is known from any llama-server.
    """
    if not isinstance(body, dict):
        raise WireError("/props is no object")
    sleeping = body.get("is_sleeping")
    props = Props(
        outcome=Outcome.OK,
        sleeping=sleeping if isinstance(sleeping, bool) else None,
        total_slots=_count(body.get("total_slots")),
        build=_text(body.get("build_info")),
        model=_text(body.get("model_path")) or _text(body.get("model_alias")),
        router=body.get("role") == "router",
    )
    if props == Props(Outcome.OK) and "default_generation_settings" not in body:
        raise WireError("/props has none of the known keys")
    return props


_SAMPLE = re.compile(
    r"^llamacpp:(requests_processing|requests_deferred|n_decode_total)(?:\{[^}\n]*\})?[ \t]+(\S+)",
    re.MULTILINE,
)


def parse_metrics(text: str) -> Metrics:
    """The figures of `GET /metrics`: Prometheus' text, prefix `llamacpp:`; labelled samples are summed.

    Builds print six significant digits: from a million on, `n_decode_total` moves in leaps (1.23457e+06).
    Raises WireError where none of the figures is in it, or where it is over a million characters.
    """
    if len(text) > MAX_METRICS_CHARS:
        raise WireError("/metrics is too long")
    found: dict[str, int] = {}
    for name, figure in _SAMPLE.findall(text):
        try:
            value = _count(float(figure))
        except ValueError:
            continue
        if value is not None:
            found[name] = found.get(name, 0) + value
    if not found:
        raise WireError("/metrics has none of the known figures")
    return Metrics(
        outcome=Outcome.OK,
        processing=found.get("requests_processing"),
        deferred=found.get("requests_deferred"),
        decode_total=found.get("n_decode_total"),
    )


def _slot(item: object) -> Slot:
    """One slot. Replays parse tens of thousands a second: measure before adding to it."""
    if not isinstance(item, dict):
        raise WireError("/slots lists something that is no object")
    get = item.get
    slot_id, processing = _count(get("id")), get("is_processing")
    if slot_id is None or slot_id != get("id"):
        raise WireError("a slot has no whole id")
    if type(processing) is not bool:
        processing = _state(processing, get("state"))
    task = _count(get("id_task"))
    if task is None:
        task = _count(get("task_id"))
    token = get("next_token")
    if isinstance(token, list):
        token = token[0] if token else None
    decoded, remaining = _generated(token) if isinstance(token, dict) else (None, None)
    return Slot(
        slot_id,
        processing,
        task,
        decoded,
        _count(get("n_prompt_tokens")),
        _count(get("n_prompt_tokens_processed")),
        remaining,
        _count(get("n_ctx")),
        _count(get("n_prompt_tokens_cache")),
    )


def _generated(token: dict[str, object]) -> tuple[int | None, int | None]:
    """Tokens generated and remaining, of a `next_token`; -1 remaining: no limit."""
    decoded = _count(token.get("n_decoded"))
    if decoded is None:
        decoded = _count(token.get("num_tokens_predicted"))
    remaining = token.get("n_remain")
    return decoded, -1 if remaining == -1 else _count(remaining)


def _count(value: object) -> int | None:
    """A count, or `None` for what is none: wrong types, negatives, NaN, infinities, the absurdly large."""
    if type(value) is int:
        return value if 0 <= value <= _LARGEST else None
    if type(value) is float and 0 <= value <= _LARGEST:
        return int(value)
    return None


def _state(processing: object, state: object) -> bool:
    """Whether a slot works, where `is_processing` is no boolean: by it as a number, else by `state`."""
    number = _count(processing)
    if number is None:
        number = _count(state)
    if number is None:
        raise WireError("a slot does not say whether it is processing")
    return number != 0


def _redact_slot(slot: object) -> object:
    if not isinstance(slot, dict):
        return None
    kept = _plain(slot)
    token = slot.get("next_token")
    if isinstance(token, dict):
        kept["next_token"] = _plain(token)
    elif isinstance(token, list):
        kept["next_token"] = [_plain(item) for item in token[:1] if isinstance(item, dict)]
    return kept


def _plain(item: dict[str, object]) -> dict[str, object]:
    """The entries of `item` that cannot be text; numbers that a reader may trip over become null."""
    kept: dict[str, object] = {}
    for key, value in item.items():
        if len(key) > _LONGEST_KEY or not key.isascii() or not key.isidentifier():
            continue
        if value is None or isinstance(value, bool):
            kept[key] = value
        elif isinstance(value, int | float):
            kept[key] = value if -_LARGEST <= value <= _LARGEST else None
    return kept


def _message(body: object) -> str:
    """The words of a refusal, in lower case: `error.message` today; `error` or `status` in older builds."""
    if not isinstance(body, dict):
        return ""
    error = body.get("error")
    if isinstance(error, dict):
        error = error.get("message")
    words = error if error is not None else body.get("status")
    return words[:_LONGEST_TEXT].lower() if isinstance(words, str) else ""


def _text(value: object) -> str | None:
    """A name or a path fit to be logged: neither empty nor long, nothing but printable characters."""
    if isinstance(value, str) and 0 < len(value) <= _LONGEST_TEXT and value.isprintable():
        return value
    return None
