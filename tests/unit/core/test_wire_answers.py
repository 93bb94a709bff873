"""What `/health`, refusals, `/props` and `/metrics` are read as, and what is no JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_watchdog.core import wire
from llama_watchdog.core.observation import Metrics, Outcome, Props


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, {"status": "ok"}, Outcome.OK),
        (200, {"status": "ok", "slots_idle": 1, "slots_processing": 0}, Outcome.OK),
        (200, {"status": "no slot available", "slots_idle": 0, "slots_processing": 1}, Outcome.OK),
        (200, None, Outcome.OK),
        (
            503,
            {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}},
            Outcome.LOADING,
        ),
        (503, {"status": "loading model"}, Outcome.LOADING),
        (503, {"status": "no slot available", "slots_idle": 0, "slots_processing": 4}, Outcome.OK),
        (503, {"status": "no slot available"}, Outcome.OK),
        (503, None, Outcome.ERROR),
        (503, {"error": {"message": "upstream is gone"}}, Outcome.ERROR),
        (503, {"error": [], "status": 7}, Outcome.ERROR),
        (500, {"status": "error", "error": "Model failed to load"}, Outcome.ERROR),
        (500, {"error": {"message": "Loading model"}}, Outcome.ERROR),
        (401, None, Outcome.UNAUTHORIZED),
        (403, None, Outcome.UNAUTHORIZED),
        (404, None, Outcome.UNSUPPORTED),
        (501, None, Outcome.UNSUPPORTED),
        (400, None, Outcome.ERROR),
        (302, None, Outcome.ERROR),
        (502, None, Outcome.ERROR),
    ],
)
def test_health(status: int, body: object, expected: Outcome) -> None:
    assert wire.health_outcome(status, body) is expected


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, None, Outcome.OK),
        (503, {"error": {"message": "Loading model"}}, Outcome.LOADING),
        (503, {"error": {"message": "no slot available"}}, Outcome.ERROR),
        (400, {"error": {"message": "model name is missing from the request"}}, Outcome.UNSUPPORTED),
        (501, {"error": {"type": "not_supported_error"}}, Outcome.UNSUPPORTED),
        (401, {"error": {"message": "Invalid API Key"}}, Outcome.UNAUTHORIZED),
        (500, None, Outcome.ERROR),
    ],
)
def test_the_other_endpoints(status: int, body: object, expected: Outcome) -> None:
    assert wire.answer_outcome(status, body) is expected


def test_props() -> None:
    body = {
        "total_slots": 2,
        "model_path": "/models/smollm2.gguf",
        "build_info": "b11669-Debian",
        "is_sleeping": False,
        "chat_template": "…",
    }
    assert wire.parse_props(body) == Props(Outcome.OK, False, 2, "b11669-Debian", "/models/smollm2.gguf")


def test_props_of_a_router_and_of_early_builds() -> None:
    assert wire.parse_props({"role": "router", "build_info": "b11669"}).router
    assert wire.parse_props({"default_generation_settings": {}, "total_slots": 1}).total_slots == 1
    assert wire.parse_props({"default_generation_settings": {}}) == Props(Outcome.OK)
    assert wire.parse_props({"model_alias": "chat", "total_slots": 1.0}).model == "chat"


@pytest.mark.parametrize("odd", [7, [], "", "a\nline", "\x1b[31m", "x" * 5000, "\ud800"])
def test_a_build_or_model_unfit_to_be_logged_is_unknown(odd: object) -> None:
    props = wire.parse_props({"total_slots": 1, "build_info": odd, "model_path": odd})
    assert (props.build, props.model) == (None, None)


@pytest.mark.parametrize("body", [None, [], {}, {"error": {}}, {"is_sleeping": "no", "total_slots": "2"}])
def test_what_is_no_props_is_rejected(body: object) -> None:
    with pytest.raises(wire.WireError):
        wire.parse_props(body)


METRICS = """# HELP llamacpp:n_decode_total Total number of llama_decode() calls
# TYPE llamacpp:n_decode_total counter
llamacpp:n_decode_total 220
llamacpp:prompt_tokens_seconds 0
# HELP llamacpp:requests_processing Number of requests processing
llamacpp:requests_processing 1
llamacpp:requests_deferred 3
"""


def test_metrics() -> None:
    assert wire.parse_metrics(METRICS) == Metrics(Outcome.OK, 1, 3, 220)
    assert wire.parse_metrics(METRICS.replace("\n", "\r\n")) == Metrics(Outcome.OK, 1, 3, 220)


@pytest.mark.parametrize(
    ("line", "deferred"),
    [
        ("llamacpp:requests_deferred 1.23457e+06", 1234570),
        ("llamacpp:requests_deferred 2 1700000000000", 2),
        ('llamacpp:requests_deferred{model="a b"} 2\nllamacpp:requests_deferred{model="c"} 3', 5),
        ("llamacpp:requests_deferred NaN", None),
        ("llamacpp:requests_deferred -1", None),
        ("llamacpp:requests_deferred +Inf", None),
        ("llamacpp:requests_deferred many", None),
        ("llamacpp:requests_deferred\n7", None),
        ("#llamacpp:requests_deferred 7", None),
        ("other:requests_deferred 7", None),
        ("llamacpp:requests_deferred_total 7", None),
    ],
)
def test_a_figure_of_the_metrics(line: str, deferred: int | None) -> None:
    assert wire.parse_metrics(f"{line}\nllamacpp:requests_processing 0\n").deferred == deferred


@pytest.mark.parametrize(
    "text", ["", "<html>", "llamacpp:prompt_tokens_total 4\n", METRICS + "#" * (1 << 20)]
)
def test_what_is_no_metrics_is_rejected(text: str) -> None:
    with pytest.raises(wire.WireError):
        wire.parse_metrics(text)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"secret",
        b'["secret"',
        b'"secret \xff"',
        b'["secret"]' + b"[" * 100_000 + b"]" * 100_000,
        b"[" * 200_000,
        b"[" + b"{}," * 1_000_000 + b'"secret"]',
        b"9" * 5000,
    ],
)
def test_what_is_no_json_is_rejected_without_being_quoted(body: bytes) -> None:
    with pytest.raises(wire.WireError) as error:
        wire.decode(body)
    assert "secret" not in repr(error.value)
    assert error.value.__suppress_context__ or error.value.__context__ is None


@settings(deadline=None)
@given(st.recursive(st.none() | st.text(), st.lists, max_leaves=5))
def test_json_is_decoded(value: object) -> None:
    assert wire.decode(json.dumps(value).encode()) == value
