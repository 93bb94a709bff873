"""Observations ⇄ lines of a trace: JSON, one poll a line, for `record` and `replay`.

The first line describes the watch (it has the key `trace`), each other one is a poll; a new incarnation of
the server writes the first kind anew. Unknown keys are ignored, missing ones unknown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, fields
from typing import Any

from llama_watchdog.core.action import Identity
from llama_watchdog.core.observation import (
    Canary,
    Gpu,
    Health,
    Left,
    Metrics,
    Observation,
    Outcome,
    Process,
    Props,
    Slots,
    Thread,
    Unit,
    Watch,
)
from llama_watchdog.core.pace import Learned, learned_from_json
from llama_watchdog.core.policy import Policy, policy_as_json, policy_from_json
from llama_watchdog.core.wire import WireError, parse_slots

VERSION = 1
LONGEST_LINE = 4 << 20  # characters: 256 slots are 100 kB


class TraceError(ValueError):
    """A trace that can't be read; the text names the line, what is wrong and what is expected."""


@dataclass(frozen=True, slots=True)
class Header:
    """The line that describes the watch: what is known of the server, the settings, the pace of old."""

    watch: Watch
    policy: Policy
    learned: Learned


# Writing


def header_line(header: Header, *, recorded: str) -> str:
    """The line that describes the watch. `recorded`: wall time in ISO 8601, for people."""
    head = {"trace": VERSION, "server": header.watch.server, "recorded": recorded, **asdict(header.watch)}
    pace = {} if header.learned == Learned() else header.learned.as_json()
    return _dump({**head, "pace": pace, "policy": policy_as_json(header.policy)})


def poll_line(observation: Observation) -> str:
    """One poll. Of /slots only the redacted body is written."""
    line: dict[str, Any] = {"at": round(observation.at, 3), "suspended": round(observation.suspended, 3)}
    if observation.clients is not None:
        line["clients"] = observation.clients
    for name in _PARTS:
        part = getattr(observation, name)
        if part is not None:
            line[name] = _part_as_json(part)
    return _dump(line)


def _part_as_json(part: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for field in fields(part):
        value = getattr(part, field.name)
        if value is None or (type(part), field.name) in _NOT_WRITTEN:
            continue
        key = _WRITTEN_AS.get((type(part), field.name), field.name)
        if isinstance(part, Left) and field.name == "processes":
            value = [astuple(process) for process in part.processes]
        out[key] = round(value, 6) if isinstance(value, float) else value
    return out


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


# Reading


def read(lines: Iterable[str]) -> Iterator[Header | Observation]:
    """What each line of a trace says, in order. Raises TraceError at the first bad line.

    The first line must describe the watch, and `at` must never go back.
    """
    last = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        fact = _line(line, number)
        if isinstance(fact, Observation):
            if last is None:
                raise TraceError(f'line {number}: the first line must describe the watch: {{"trace":1,…}}')
            if fact.at < last:
                raise TraceError(f"line {number}: at: {fact.at:g} comes after {last:g}; it must not go back")
            last = fact.at
        else:
            last = last or 0.0
        yield fact


def _line(line: str, number: int) -> Header | Observation:
    if len(line) > LONGEST_LINE:
        raise TraceError(f"line {number}: longer than {LONGEST_LINE} characters")
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise TraceError(f"line {number}: no JSON") from None
    if not isinstance(value, dict):
        raise TraceError(f"line {number}: no JSON object")
    try:
        return _header(value) if "trace" in value else observation_from_json(value)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise TraceError(f"line {number}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return (
        str(error) if isinstance(error, ValueError) else f"a value of the wrong type ({type(error).__name__})"
    )


def _header(value: dict[str, Any]) -> Header:
    if value["trace"] != VERSION:
        raise ValueError(f"trace: version {value['trace']!r} is not known; this reads {VERSION}")
    default = Watch()
    watch = Watch(
        server=str(value.get("server") or default.server),
        interval=_number(value, "interval", default.interval) or default.interval,
        build=value.get("build"),
        batch_size=int(_number(value, "batch_size", default.batch_size) or default.batch_size),
        uses_gpu=_flag(value, "uses_gpu"),
        compute_threads=_whole(value, "compute_threads"),
        rpc=bool(_flag(value, "rpc")),
        can_sleep=bool(_flag(value, "can_sleep")),
    )
    policy, pace = policy_from_json(value.get("policy") or {}), value.get("pace") or {}
    return Header(watch, policy, learned_from_json(pace))


def observation_from_json(value: Mapping[str, Any]) -> Observation:
    """One poll, from its decoded line. Raises ValueError, naming the key, where it makes no sense."""
    at = _number(value, "at", None)
    if at is None or at < 0:
        raise ValueError("at: seconds since the first line are missing")
    parts = {
        name: read_part(value[name]) for name, read_part in _PARTS.items() if value.get(name) is not None
    }
    return Observation(
        at=at,
        suspended=_number(value, "suspended", 0.0) or 0.0,
        clients=_whole(value, "clients"),
        **parts,
    )


def _outcome(part: Mapping[str, Any]) -> Outcome:
    try:
        return _OUTCOMES[part["outcome"]]
    except (KeyError, TypeError):
        allowed = " ".join(_OUTCOMES)
        raise ValueError(f"outcome: {part.get('outcome')!r} is none of: {allowed}") from None


def _health(part: Mapping[str, Any]) -> Health:
    return Health(_outcome(part), _number(part, "seconds", 0.0) or 0.0)


def _canary(part: Mapping[str, Any]) -> Canary:
    return Canary(_outcome(part), _number(part, "seconds", 0.0) or 0.0)


def _slots(part: Mapping[str, Any]) -> Slots:
    outcome, seconds = _outcome(part), _number(part, "seconds", 0.0) or 0.0
    body = part.get("body")
    if outcome is not Outcome.OK:
        return Slots(outcome, seconds)
    try:
        return Slots(outcome, seconds, parse_slots(body), body)
    except WireError:
        return Slots(Outcome.MALFORMED, seconds)


def _props(part: Mapping[str, Any]) -> Props:
    return Props(_outcome(part), sleeping=_flag(part, "sleeping"))


def _metrics(part: Mapping[str, Any]) -> Metrics:
    return Metrics(
        _outcome(part),
        _whole(part, "requests_processing"),
        _whole(part, "requests_deferred"),
        _whole(part, "n_decode_total"),
    )


def _process(part: Mapping[str, Any]) -> Process:
    threads = part.get("threads")
    return Process(
        _outcome(part),
        _whole(part, "pid"),
        _whole(part, "start_ticks"),
        part.get("state"),
        _whole(part, "tracer") or 0,
        bool(part.get("frozen")),
        _number(part, "cpu", None),
        None if threads is None else tuple([Thread(tid, state, float(cpu)) for tid, state, cpu in threads]),
        _whole(part, "rss"),
        _whole(part, "read_bytes"),
        _whole(part, "write_bytes"),
        _whole(part, "major_faults"),
    )


def _gpu(part: Mapping[str, Any]) -> Gpu:
    return Gpu(
        _outcome(part), _number(part, "busy", None), _number(part, "own", None), _whole(part, "memory")
    )


def _left(part: Mapping[str, Any]) -> Left:
    processes = tuple([Identity(int(pid), int(ticks)) for pid, ticks in part.get("processes") or ()])
    return Left(processes, str(part.get("port") or ""), bool(_flag(part, "gpu")))


def _unit(part: Mapping[str, Any]) -> Unit:
    words = {name: str(part.get(name) or "") for name in ("load", "active", "sub", "result", "job")}
    ordered = bool(_flag(part, "stop_ordered"))
    return Unit(_outcome(part), **words, exit_status=_whole(part, "exit_status"), stop_ordered=ordered)


_OUTCOMES = {outcome.value: outcome for outcome in Outcome}
_PARTS: dict[str, Any] = {
    "health": _health,
    "slots": _slots,
    "props": _props,
    "metrics": _metrics,
    "process": _process,
    "gpu": _gpu,
    "unit": _unit,
    "canary": _canary,
    "left": _left,
}
# The slots are in the body. Of /props a trace keeps only what it is judged by: a model's path is its user's.
_NOT_WRITTEN = {
    (Slots, "slots"),
    (Props, "model"),
    (Props, "total_slots"),
    (Props, "build"),
    (Props, "router"),
}
# /metrics keeps llama-server's own names.
_WRITTEN_AS = {
    (Metrics, "processing"): "requests_processing",
    (Metrics, "deferred"): "requests_deferred",
    (Metrics, "decode_total"): "n_decode_total",
}


def _number(value: Mapping[str, Any], key: str, default: float | None) -> float | None:
    number = value.get(key)
    if number is None:
        return default
    if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) < float("inf"):
        raise ValueError(f"{key}: {number!r} is no number")
    return float(number)


def _whole(value: Mapping[str, Any], key: str) -> int | None:
    number = value.get(key)
    if number is None or type(number) is int:
        return number
    checked = _number(value, key, None)
    return None if checked is None else int(checked)


def _flag(value: Mapping[str, Any], key: str) -> bool | None:
    flag = value.get(key)
    if flag is not None and not isinstance(flag, bool):
        raise ValueError(f"{key}: {flag!r} is neither true nor false")
    return flag
