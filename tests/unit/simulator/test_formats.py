"""How each generation words its answers, read back by the watch's own reader."""

from __future__ import annotations

import json

import pytest

from llama_watchdog.core import wire
from llama_watchdog.core.observation import Outcome, Slot
from llama_watchdog.simulator.config import HealthFacts, MetricsFacts, PropsFacts, SlotState
from llama_watchdog.simulator.formats import (
    FORMATS,
    Format,
    error_body,
    health_body,
    loading_error,
    metrics_text,
    props_body,
    slots_body,
)

BUSY = SlotState(
    1, 4096, True, task=7, prompt=112, processed=100, decoded=12, predict=50, text="the user's own words"
)
NEW = SlotState(0, 4096, False)
every_format = pytest.mark.parametrize("form", FORMATS.values(), ids=list(FORMATS))


@every_format
def test_the_watch_reads_a_busy_slot(form: Format) -> None:
    """Prompt counters only today; everything else in every generation."""
    body = json.loads(json.dumps(slots_body(form, [NEW, BUSY])))
    new, busy = wire.parse_slots(body)
    assert new == Slot(0, False, decoded=new.decoded, remaining=new.remaining, context=4096)
    assert (busy.processing, busy.task, busy.decoded, busy.remaining) == (True, 7, 12, 38)
    counted = form.name == "b11669"
    assert (busy.prompt, busy.prompt_processed) == ((112, 100) if counted else (None, None))


@every_format
def test_only_the_generations_that_show_prompts_do(form: Format) -> None:
    shown = "the user's own words" in json.dumps(slots_body(form, [BUSY]))
    assert shown == form.shows_prompt


def test_each_generation_has_its_own_keys() -> None:
    keys = {name: set(form.slot(BUSY)) for name, form in FORMATS.items()}
    assert {"n_prompt_tokens", "n_prompt_tokens_processed", "n_prompt_tokens_cache"} <= keys["b11669"]
    assert keys["b9247"] == {
        "id", "n_ctx", "speculative", "is_processing", "id_task", "params", "next_token"
    }  # fmt: skip
    assert {"task_id", "state"} <= keys["2024-early"]
    assert {"id_task", "state"} <= keys["ik"]
    assert {"id_task", "is_processing"} <= keys["2024-late"]
    assert isinstance(FORMATS["b9247"].slot(BUSY)["next_token"], list)
    assert isinstance(FORMATS["2024-late"].slot(BUSY)["next_token"], dict)
    assert FORMATS["2024-early"].slot(BUSY)["next_token"]["num_tokens_predicted"] == 12  # type: ignore[index] # a dict


def test_before_its_first_task_a_slot_of_today_has_four_keys() -> None:
    assert FORMATS["b11669"].slot(NEW) == {
        "id": 0,
        "n_ctx": 4096,
        "speculative": False,
        "is_processing": False,
    }


@every_format
def test_the_watch_reads_health(form: Format) -> None:
    """Also where every slot is taken: no generation calls that ill in a way the watch misreads."""
    for facts, outcome in (
        (HealthFacts(loading=True), Outcome.LOADING),
        (HealthFacts(loading=False, idle=1, processing=3), Outcome.OK),
        (HealthFacts(loading=False, idle=0, processing=4), Outcome.OK),
    ):
        assert wire.health_outcome(*health_body(form, facts)) is outcome


def test_the_first_builds_call_a_full_server_unavailable() -> None:
    code, body = health_body(FORMATS["2024-early"], HealthFacts(loading=False, idle=0, processing=2))
    assert (code, body) == (503, {"status": "no slot available", "slots_idle": 0, "slots_processing": 2})


@every_format
def test_the_watch_reads_props(form: Format) -> None:
    body = props_body(form, PropsFacts(True, 4, 4096), endpoint_slots=True, endpoint_metrics=False)
    props = wire.parse_props(json.loads(json.dumps(body)))
    assert props.total_slots == 4
    recent = form.name in ("b11669", "b9247")
    assert props.sleeping is (True if recent else None)
    assert props.build == (form.build if recent else None)


@every_format
def test_the_watch_reads_metrics(form: Format) -> None:
    text = metrics_text(form, MetricsFacts(2, 3, 1234567, 99, 88))
    metrics = wire.parse_metrics(text)
    assert (metrics.processing, metrics.deferred) == (2, 3)
    recent = form.name in ("b11669", "b9247")
    assert metrics.decode_total == (1234570 if recent else None)  # six significant digits


def test_refusals_are_worded_as_an_error_object() -> None:
    assert loading_error() == (
        503,
        {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}},
    )
    assert wire.health_outcome(*loading_error()) is Outcome.LOADING
    code, body = error_body(401, "Invalid API Key")
    assert (code, body["error"]) == (
        401,
        {"message": "Invalid API Key", "type": "authentication_error", "code": 401},
    )


def test_a_generation_brings_its_habits() -> None:
    assert FORMATS["b11669"].config().answers_mid_step
    assert not FORMATS["b9247"].config().answers_mid_step
    assert FORMATS["ik"].config().health_in_queue
