"""Where a url leads, and whether that is here."""

from __future__ import annotations

import socket
from pathlib import Path

import psutil
import pytest

from llama_watchdog.probes import place
from llama_watchdog.probes.place import Place

V4, V6 = b"\x7f\0\0\1", bytes(15) + b"\1"


@pytest.mark.parametrize(
    ("url", "parsed"),
    [
        ("http://127.0.0.1:8080", Place("127.0.0.1", 8080)),
        ("http://[::1]:8080/v1", Place("::1", 8080)),
        ("http://box", Place("box", 80)),
        ("https://box/llama", Place("box", 443)),
        ("unix:///run/llama.sock", Place("", 0, Path("/run/llama.sock"))),
    ],
)
def test_a_url(url: str, parsed: Place) -> None:
    assert place.parse(url) == parsed


@pytest.mark.parametrize("url", ["", "127.0.0.1:8080", "http://", "file:///etc/passwd", "http://a:99999"])
def test_no_url(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        place.parse(url)


@pytest.mark.parametrize(
    ("host", "addresses"),
    [
        ("127.0.0.1", {V4}),
        ("127.0.0.53", {b"\x7f\0\0\x35"}),
        ("localhost", {V4, V6}),
        ("::1", {V6}),
        ("0.0.0.0", {V4}),  # noqa: S104 - a url to connect to
        ("::", {V6}),
    ],
)
def test_hosts_that_are_always_this_machine(host: str, addresses: set[bytes]) -> None:
    assert place.always_here(Place(host, 8080)) == frozenset(addresses)


@pytest.mark.parametrize("host", ["192.0.2.1", "gpu-box", "2001:db8::1"])
def test_hosts_that_must_be_looked_up(host: str) -> None:
    assert place.always_here(Place(host, 8080)) is None


def test_of_a_hosts_addresses_only_ours_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        assert host == "gpu-box"
        addresses = ("192.0.2.1", "192.0.2.2", "127.0.1.1")  # the last as in Debian's /etc/hosts
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]

    own = [type("Address", (), {"family": socket.AF_INET, "address": "192.0.2.2"})]
    monkeypatch.setattr(socket, "getaddrinfo", answer)
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: {"eth0": own})
    assert place.look_up(Place("gpu-box", 80)) == {b"\xc0\0\2\2", b"\x7f\0\1\1"}


def test_an_address_of_one_of_our_interfaces() -> None:
    assert place.look_up(Place("127.0.0.1", 80)) == {V4}
    assert place.look_up(Place("::ffff:127.0.0.1", 80)) == {V4}
    assert not place.look_up(Place("192.0.2.1", 80))
