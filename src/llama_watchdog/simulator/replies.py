"""What clients of the simulated process want, and how its results are worded, in each API. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum

from llama_watchdog.simulator.config import Task
from llama_watchdog.simulator.formats import ALIAS, Json

_WORDS = ("The", " quick", " brown", " fox", " jumps", " over", " the", " lazy", " dog", ".")


class Dialect(Enum):
    """Which API a client speaks; the value is what it calls its results."""

    NATIVE = ""
    OPENAI = "text_completion"
    CHAT = "chat.completion"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a client wants."""

    dialect: Dialect
    task: Task
    stream: bool


def parse(body: object, dialect: Dialect) -> Wanted:
    """A decoded request; a token of its prompt is a word of it. Raises ValueError, TypeError for others."""
    if not isinstance(body, dict):
        raise TypeError("this is no JSON object")
    if dialect is Dialect.CHAT:
        messages = body.get("messages")
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            raise ValueError("'messages' is no list of messages")
        text = " ".join([str(message.get("content")) for message in messages])
    else:
        prompt = body.get("prompt")
        if not isinstance(prompt, str):
            raise TypeError("'prompt' is no text")
        text = prompt
    limits = [body.get(key) for key in ("n_predict", "max_tokens", "max_completion_tokens")]
    limit = next((limit for limit in limits if isinstance(limit, int)), -1)
    task = Task(prompt=max(1, len(text.split())), predict=max(limit, -1), text=text)
    return Wanted(dialect, task, stream=bool(body.get("stream")))


def chunk(wanted: Wanted, generated: int, build: str) -> bytes:
    """The event of the latest of `generated` tokens."""
    word = _WORDS[(generated - 1) % len(_WORDS)]
    match wanted.dialect:
        case Dialect.NATIVE:
            words: Json = {
                "index": 0,
                "content": word,
                "tokens": [generated],
                "stop": False,
                "id_slot": -1,
                "tokens_predicted": generated,
                "tokens_evaluated": wanted.task.prompt,
            }
        case Dialect.OPENAI:
            words = _openai(wanted, build, {"text": word, "index": 0, "finish_reason": None})
        case Dialect.CHAT:
            delta = {"content": word}
            words = _openai(wanted, build, {"finish_reason": None, "index": 0, "delta": delta})
    return _event(words)


def last_chunk(wanted: Wanted, generated: int, build: str) -> bytes:
    """The events that end a stream."""
    match wanted.dialect:
        case Dialect.NATIVE:
            return _event(result(wanted, generated, build) | {"content": ""})
        case Dialect.OPENAI:
            choice: Json = {"text": "", "index": 0, "finish_reason": "length"}
        case Dialect.CHAT:
            choice = {"finish_reason": "length", "index": 0, "delta": {}}
    return _event(_openai(wanted, build, choice)) + b"data: [DONE]\n\n"


def result(wanted: Wanted, generated: int, build: str) -> Json:
    """The whole result, of a request without streaming."""
    text = "".join(_WORDS[i % len(_WORDS)] for i in range(generated))
    match wanted.dialect:
        case Dialect.NATIVE:
            return {
                "index": 0,
                "content": text,
                "tokens": [],
                "id_slot": 0,
                "stop": True,
                "model": ALIAS,
                "tokens_predicted": generated,
                "tokens_evaluated": wanted.task.prompt,
                "truncated": False,
                "stop_type": "limit",
            }
        case Dialect.OPENAI:
            choice: Json = {"text": text, "index": 0, "finish_reason": "length"}
        case Dialect.CHAT:
            message = {"role": "assistant", "content": text}
            choice = {"finish_reason": "length", "index": 0, "message": message}
    prompt = wanted.task.prompt
    usage = {
        "completion_tokens": generated,
        "prompt_tokens": prompt,
        "total_tokens": prompt + generated,
    }
    return _openai(wanted, build, choice) | {"usage": usage}


def _openai(wanted: Wanted, build: str, choice: Json) -> Json:
    chunks = wanted.stream and wanted.dialect is Dialect.CHAT
    return {
        "choices": [choice],
        "model": ALIAS,
        "system_fingerprint": build,
        "object": wanted.dialect.value + (".chunk" if chunks else ""),
    }


def _event(words: Json) -> bytes:
    return f"data: {json.dumps(words, separators=(',', ':'))}\n\n".encode()
