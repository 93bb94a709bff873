"""What each answer, and each failure to get one, is reported as."""

from __future__ import annotations

import asyncio
import json
import ssl
import traceback
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
import respx

from llama_watchdog.core.asking import Ask
from llama_watchdog.core.observation import Health, Metrics, Outcome, Props, Slot, Slots
from llama_watchdog.probes.llama_http import HttpFacts, LlamaHttp

URL = "http://127.0.0.1:8080"
EVERYTHING = Ask(health=True, slots=True, props=True, metrics=True)
SLOTS = [
    {
        "id": 0,
        "is_processing": True,
        "id_task": 4,
        "params": {"stop": ["x"]},
        "next_token": [{"n_decoded": 8}],
    }
]
LOADING = {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}


def look(ask: Ask = EVERYTHING, url: str = URL, api_key: str | None = None) -> HttpFacts:
    async def once() -> HttpFacts:
        http = LlamaHttp(url, api_key=api_key)
        try:
            return await http.look(ask)
        finally:
            await http.aclose()

    return asyncio.run(once())


def outcomes(facts: HttpFacts) -> list[Outcome]:
    return [facts.health.outcome, facts.slots.outcome, facts.props.outcome, facts.metrics.outcome]


@respx.mock
def test_a_server_that_answers() -> None:
    respx.get(f"{URL}/health").respond(json={"status": "ok"})
    respx.get(f"{URL}/slots").respond(json=SLOTS)
    respx.get(f"{URL}/props").respond(json={"total_slots": 1, "build_info": "b11669"})
    respx.get(f"{URL}/metrics").respond(text="llamacpp:requests_deferred 2\n")
    facts = look()
    assert facts.health == Health(Outcome.OK, facts.health.seconds)
    assert 0 < facts.health.seconds < 1
    assert facts.slots.slots == (Slot(0, True, 4, decoded=8),)
    assert facts.slots.body == [
        {"id": 0, "is_processing": True, "id_task": 4, "next_token": [{"n_decoded": 8}]}
    ]
    assert facts.props == Props(Outcome.OK, total_slots=1, build="b11669")
    assert facts.metrics == Metrics(Outcome.OK, deferred=2)


@respx.mock
def test_what_is_not_asked_is_skipped() -> None:
    health = respx.get(f"{URL}/health").respond(json={})
    facts = look(Ask(health=True, slots=False))
    assert outcomes(facts) == [Outcome.OK, Outcome.SKIPPED, Outcome.SKIPPED, Outcome.SKIPPED]
    assert facts.slots == Slots(Outcome.SKIPPED)
    assert health.call_count == 1


@respx.mock
@pytest.mark.parametrize(
    ("status", "body", "health", "others"),
    [
        (503, LOADING, Outcome.LOADING, Outcome.LOADING),
        (503, "Service Unavailable", Outcome.ERROR, Outcome.ERROR),
        (401, {"error": {"message": "Invalid API Key"}}, Outcome.UNAUTHORIZED, Outcome.UNAUTHORIZED),
        (403, "", Outcome.UNAUTHORIZED, Outcome.UNAUTHORIZED),
        (404, "<html>", Outcome.UNSUPPORTED, Outcome.UNSUPPORTED),
        (501, {"error": {"type": "not_supported_error"}}, Outcome.UNSUPPORTED, Outcome.UNSUPPORTED),
        (400, {"error": {"message": "model name is missing"}}, Outcome.ERROR, Outcome.UNSUPPORTED),
        (500, "", Outcome.ERROR, Outcome.ERROR),
        (503, "Loading model" * 10_000, Outcome.MALFORMED, Outcome.MALFORMED),
        (200, "<html>", Outcome.OK, Outcome.MALFORMED),
        (200, "[]" * 50_000, Outcome.MALFORMED, Outcome.MALFORMED),
        (200, b"[\xff]", Outcome.OK, Outcome.MALFORMED),
        (200, "[" * 20_000, Outcome.OK, Outcome.MALFORMED),
        (200, {"error": "of a kind nobody has seen"}, Outcome.OK, Outcome.MALFORMED),
    ],
)
def test_answers(status: int, body: object, health: Outcome, others: Outcome) -> None:
    content = body if isinstance(body, str | bytes) else json.dumps(body)
    respx.get(url__startswith=URL).respond(status, content=content)
    assert outcomes(look()) == [health, others, others, others]


@respx.mock
@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (httpx.ConnectError("no such name, no route, no trust"), Outcome.UNREACHABLE),
        (httpx.ReadError("reset"), Outcome.ERROR),
        (httpx.RemoteProtocolError("garbage"), Outcome.ERROR),
        (UnicodeError("a name with too long a label"), Outcome.ERROR),
    ],
)
def test_failures(error: Exception, outcome: Outcome) -> None:
    respx.get(url__startswith=URL).mock(side_effect=error)
    assert outcomes(look()) == [outcome] * 4


@respx.mock
def test_the_key_and_headers_go_with_each_request_and_no_connection_is_kept() -> None:
    route = respx.get(url__startswith=URL).respond(json={})
    look(api_key="sesame")
    assert route.call_count == 4
    for call in route.calls:
        assert call.request.headers["authorization"] == "Bearer sesame"
        assert call.request.headers["connection"] == "close"
        assert call.request.headers["accept-encoding"] == "identity"


@respx.mock
def test_headers_of_ones_own() -> None:
    route = respx.get(url__startswith=URL).respond(json={})

    async def once() -> None:
        http = LlamaHttp(URL, headers={"X-Tenant": "a b", "Connection": "keep-alive"}, api_key="sesame")
        await http.look(Ask(slots=False))
        await http.aclose()

    asyncio.run(once())
    headers = route.calls.last.request.headers
    assert (headers["x-tenant"], headers["connection"]) == ("a b", "close")


@respx.mock
def test_a_redirect_is_not_followed() -> None:
    respx.get(f"{URL}/health").respond(302, headers={"location": f"{URL}/login"})
    login = respx.get(f"{URL}/login").respond(json={"status": "ok"})
    assert look(Ask(slots=False)).health.outcome is Outcome.ERROR
    assert not login.called


@respx.mock
def test_a_url_may_have_a_path() -> None:
    respx.get("https://example.test/llama/health").respond(json={})
    assert look(Ask(slots=False), url="https://example.test/llama/").health.outcome is Outcome.OK


@pytest.mark.parametrize(
    "url",
    [
        "",
        "chat",
        "ftp://x",
        "http://",
        "unix://relative",
        "http://x:hush",
        "http://u:hush@x",
        "http://x?hush",
    ],
)
def test_an_unusable_url_is_rejected_without_being_quoted(url: str) -> None:
    with pytest.raises(ValueError, match="url") as error:
        LlamaHttp(url)
    assert "hush" not in "".join(traceback.format_exception_only(error.value))
    assert error.value.__cause__ is None


@pytest.mark.parametrize("key", ["hush\n", "hush ", "hüsh", "hu\x00sh"])
def test_an_unusable_key_is_rejected_without_being_quoted(key: str) -> None:
    """Else it would come up in the exception of the library that has to send it."""
    with pytest.raises(ValueError, match="authorization") as error:
        LlamaHttp(URL, api_key=key)
    assert "sh" not in repr(error.value).removeprefix("ValueError")


@pytest.mark.parametrize("headers", [{"X-A": "hush\r\nX-B: c"}, {"hush me": "x"}, {"": "x"}])
def test_an_unusable_header_is_rejected_without_its_value(headers: Mapping[str, str]) -> None:
    with pytest.raises(ValueError, match="header") as error:
        LlamaHttp(URL, headers=headers)
    assert "hush" not in repr(error.value)


def test_a_ca_file_that_is_none_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        LlamaHttp("https://x", ca_file=tmp_path / "absent.pem")
    (tmp_path / "empty.pem").write_text("")
    with pytest.raises(ssl.SSLError):
        LlamaHttp("https://x", ca_file=tmp_path / "empty.pem")


def test_a_key_is_in_no_repr() -> None:
    assert "sesame" not in repr(LlamaHttp(URL, api_key="sesame"))


@pytest.mark.parametrize(("status", "outcome"), [(200, Outcome.OK), (501, Outcome.UNSUPPORTED)])
@respx.mock
def test_a_canary_asks_for_one_token(status: int, outcome: Outcome) -> None:
    """Embedding servers refuse it, which says nothing of them."""
    completion = respx.post(f"{URL}/completion").respond(status, json={"content": "x"})
    facts = look(Ask(health=False, slots=False, canary=True))
    assert facts.canary.outcome is outcome
    assert json.loads(completion.calls.last.request.content)["n_predict"] == 1


@respx.mock
def test_a_canary_is_sent_only_where_it_is_asked_for() -> None:
    completion = respx.post(f"{URL}/completion").respond(json={})
    respx.route().respond(404)
    assert look().canary.outcome is Outcome.SKIPPED
    assert not completion.called
