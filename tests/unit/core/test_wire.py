"""`/slots`: what each build's answer is read as, and what of it may be stored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from llama_watchdog.core import wire
from llama_watchdog.core.observation import Slot

SAMPLES = Path(__file__).parents[1] / "data" / "slots"

EXPECTED = {
    "2024-early": (
        Slot(0, True, 12, decoded=96, remaining=-1, context=2048),
        Slot(1, False, None, decoded=0, remaining=-1, context=2048),
    ),
    "2024-autumn": (
        Slot(0, True, 12, decoded=96, remaining=-1, context=2048),
        Slot(1, False, None, decoded=0, remaining=-1, context=2048),
    ),
    "2024-december": (
        Slot(0, True, 7, decoded=141, remaining=1859, context=4096),
        Slot(1, False, None, decoded=0, remaining=-1, context=4096),
    ),
    "ik_llama": (
        Slot(0, True, 12, decoded=96, remaining=416, context=2048),
        Slot(1, False, None, decoded=0, remaining=-1, context=2048),
    ),
    "b9247": (
        Slot(0, True, 4, decoded=141, remaining=1859, context=4096),
        Slot(1, False, context=4096),
    ),
    "b11669-fresh": (Slot(0, False, context=2048), Slot(1, False, context=2048)),
    "b11669-prefill": (Slot(0, True, 0, 0, 3384, 2048, 40, 4096, 0),),
    "b11669-decoding": (Slot(0, True, 4, 220, 224, 4, 1780, 2048, 0), Slot(1, False, context=2048)),
    "b11669-idle": (Slot(0, False, 0, 0, 20, 0, -1, 4096, 0),),
}


def sample(name: str) -> object:
    return json.loads((SAMPLES / f"{name}.json").read_text())


def one(**keys: object) -> Slot:
    """The slot read from these keys of a slot that is otherwise complete."""
    return wire.parse_slots([{"id": 0, "is_processing": True} | keys])[0]


@pytest.mark.parametrize("name", EXPECTED)
def test_each_builds_slots(name: str) -> None:
    assert wire.parse_slots(sample(name)) == EXPECTED[name]


def test_every_sample_is_expected() -> None:
    assert {path.stem for path in SAMPLES.glob("*.json")} == set(EXPECTED)


@pytest.mark.parametrize("count", [0, 1, 256])
def test_any_number_of_slots(count: int) -> None:
    body = [{"id": n, "is_processing": n == 3} for n in range(count)]
    assert [slot.id for slot in wire.parse_slots(body)] == list(range(count))


def test_numbers_may_come_as_floats() -> None:
    slot = one(
        id=2.0,
        id_task=7.0,
        n_ctx=4096.0,
        n_prompt_tokens=1e3,
        next_token={"n_decoded": 8.0, "n_remain": -1.0},
    )
    assert slot == Slot(2, True, 7, decoded=8, prompt=1000, remaining=-1, context=4096)
    assert isinstance(slot.id, int)
    assert isinstance(slot.decoded, int)


@pytest.mark.parametrize(
    "odd", [None, "8", True, [8], {"n": 8}, -2, float("nan"), float("inf"), 1e300, 10**400]
)
def test_a_counter_of_a_wrong_kind_is_unknown(odd: object) -> None:
    """And takes nothing else down with it: the slot, and that it is processing, are still seen."""
    slot = one(
        id_task=odd,
        n_ctx=odd,
        n_prompt_tokens=odd,
        n_prompt_tokens_processed=odd,
        next_token=[{"n_decoded": odd, "n_remain": odd}],
    )
    assert slot == Slot(0, True)


@pytest.mark.parametrize("token", [None, [], [None], "8", 8, [[]], {}])
def test_a_next_token_of_a_wrong_kind_is_unknown(token: object) -> None:
    assert one(next_token=token) == Slot(0, True)


@pytest.mark.parametrize(
    ("keys", "processing"),
    [
        ({"is_processing": False, "state": 1}, False),
        ({"is_processing": 1}, True),
        ({"is_processing": None, "state": 0}, False),
        ({"is_processing": None, "state": 4}, True),
        ({"is_processing": "yes", "state": 0.0}, False),
    ],
)
def test_processing_is_said_by_is_processing_or_else_by_state(
    keys: dict[str, object], processing: bool
) -> None:
    assert one(**keys).processing is processing


@pytest.mark.parametrize(
    "body",
    [
        None,
        {},
        {"error": {"code": 500}},
        "[]",
        [None],
        [[]],
        [{}],
        [{"id": 0}],
        [{"is_processing": True}],
        [{"id": "0", "is_processing": True}],
        [{"id": True, "is_processing": True}],
        [{"id": 0.5, "is_processing": True}],
        [{"id": -1, "is_processing": True}],
        [{"id": float("nan"), "is_processing": True}],
        [{"id": 0, "is_processing": "true"}],
        [{"id": 0, "is_processing": None, "state": None}],
        [{"id": 0, "state": float("nan")}],
        [{"id": 0, "state": "processing"}],
        [{"id": 0, "is_processing": True}, {"id": 0, "is_processing": False}],
        [{"id": n, "is_processing": True} for n in range(wire.MAX_SLOTS + 1)],
    ],
)
def test_what_no_judgement_could_rest_on_is_rejected(body: object) -> None:
    with pytest.raises(wire.WireError):
        wire.parse_slots(body)
    with pytest.raises(wire.WireError):
        wire.parse_slots(wire.redact(body))


def test_nothing_that_users_wrote_is_stored() -> None:
    """Early 2024 puts stop words, grammars and biased words beside the counters; who knows what comes."""
    wrote = "Dear diary"
    named = {"x" * 65: 1, "clé": 2, "": 3}
    token = {"n_decoded": 3, "stopping_word": wrote, "text": [wrote], wrote: 1}
    body = [
        {"id": 0, "state": 1, "task_id": 4, "n_ctx": 2048, "temperature": 0.8, "next_token": token}
        | {
            "prompt": wrote,
            "generated": wrote,
            "stop": [wrote],
            "grammar": wrote,
            "params": {"x": wrote},
        }
        | {"logit_bias": [[wrote, None]], "unheard_of": {"n": 1, "of": wrote}, wrote: 1}
        | named
    ]
    kept = {
        "id": 0,
        "state": 1,
        "task_id": 4,
        "n_ctx": 2048,
        "temperature": 0.8,
        "next_token": {"n_decoded": 3},
    }
    assert wire.redact(body) == [kept]
    body[0]["next_token"] = [token]
    assert wire.redact(body) == [kept | {"next_token": [{"n_decoded": 3}]}]


def test_todays_slots_are_stored_whole_but_for_params() -> None:
    body = sample("b11669-decoding")
    assert isinstance(body, list)
    assert wire.redact([slot | {"params": {"n_predict": 2000}} for slot in body]) == body


@pytest.mark.parametrize("body", [None, {}, {"error": "x"}, "text", 3])
def test_of_what_is_no_list_nothing_is_stored(body: object) -> None:
    assert wire.redact(body) is None


values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.floats() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
keys = st.sampled_from(["n_decoded", "num_tokens_predicted", "n_remain", "has_next_token"]) | st.text(
    max_size=4
)
tokens = st.dictionaries(keys, values, max_size=5)
slots = st.fixed_dictionaries(
    {"id": st.integers(0, 3) | values},
    optional={
        "is_processing": st.booleans() | values,
        "state": values,
        "id_task": values,
        "task_id": values,
        "n_ctx": values,
        "n_prompt_tokens": values,
        "n_prompt_tokens_processed": values,
        "next_token": tokens | st.lists(tokens | values, max_size=2) | values,
        "prompt": st.text(max_size=3),
    },
)


def texts(stored: object) -> list[str]:
    """Every string in a stored body that is not a key."""
    if isinstance(stored, str):
        return [stored]
    items = stored.values() if isinstance(stored, dict) else stored if isinstance(stored, list) else []
    return [text for item in items for text in texts(item)]


def outcome(body: object) -> object:
    try:
        return wire.parse_slots(body)
    except wire.WireError:
        return "rejected"


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(slots | values, max_size=3) | values)
@example([{"id": 0, "state": 10**20}])
@example([{"id": 0, "is_processing": float("nan"), "state": 1}])
@example([{"id": 0, "is_processing": True, "id_task": "1", "task_id": 2}])
@example([{"id": 0, "is_processing": True, "next_token": ["x", {"n_decoded": 1}]}])
def test_a_redacted_body_reads_as_the_original_and_holds_no_text(body: object) -> None:
    stored = json.loads(json.dumps(wire.redact(body), allow_nan=False))
    assert outcome(stored) == outcome(body)
    assert not texts(stored)
