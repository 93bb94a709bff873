"""How the names of what is watched are brought to one form."""

from __future__ import annotations

import pytest

from llama_watchdog.settings import targets


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("HTTP://LocalHost:8080/", "http://localhost:8080"),
        ("https://box.example", "https://box.example"),
        ("http://box:", "http://box"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("http://[fe80::1%eth0]:8080", "http://[fe80::1%eth0]:8080"),
        ("unix:///run/llama.sock", "unix:///run/llama.sock"),
    ],
)
def test_url(given: str, normal: str) -> None:
    assert targets.url(given) == normal


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("", "must begin with http://, https:// or unix://"),
        ("127.0.0.1:8080", "must begin with http://"),
        ("localhost:8080", "must begin with http://"),
        ("http:/127.0.0.1", "must begin with http://"),
        ("http://127.0.0.1 :8080", "must begin with http://"),
        ("http://127.0.0.1\n", "must begin with http://"),
        ("ftp://127.0.0.1", "not with 'ftp://'"),
        ("http://me:hush@box", "may hold no credentials: use api_key_file or headers"),
        ("http://box/v1", "must end after the port"),
        ("http://box?x", "must end after the port"),
        ("http://box#x", "must end after the port"),
        ("http://", "must name a host"),
        ("http://:8080", "must name a host"),
        ("http://ä", "must name a host"),
        ("http://::1:8080", "with an IPv6 address in brackets"),
        ("http://[::x]:8080", "holds no IPv6 address"),
        ("http://box:0", "must have a port from 1 to 65535"),
        ("http://box:65536", "must have a port from 1 to 65535"),
        ("http://box:" + "9" * 5000, "must have a port from 1 to 65535"),
        ("http://box:x", "must be host:port"),
        ("unix://run/llama.sock", "must name a socket by its absolute path"),
        ("unix:///", "must name a socket by a path of 2 to 107 bytes"),
        ("unix:///" + "x" * 107, "must name a socket by a path of 2 to 107 bytes"),
    ],
)
def test_bad_url(given: str, why: str) -> None:
    with pytest.raises(ValueError, match=r"^.{1,200}$") as caught:
        targets.url(given)
    assert why in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("llama-server", "llama-server.service"),
        ("llama-server.service", "llama-server.service"),
        ("llama@chat", "llama@chat.service"),
        ("llama.v2", "llama.v2.service"),
        ("llama\\x2dchat.service", "llama\\x2dchat.service"),
    ],
)
def test_unit(given: str, normal: str) -> None:
    assert targets.unit(given) == normal


@pytest.mark.parametrize(
    "given", [".service", "@", "@x.service", "-x", "a/b", "x" * 255, "a\nb", "user.slice"]
)
def test_bad_unit(given: str) -> None:
    with pytest.raises(ValueError, match=r"llama-server\.service"):
        targets.unit(given)


@pytest.mark.parametrize(
    ("listen", "alone"),
    [
        ("127.0.0.1:1", True),
        ("127.1.2.3:1", True),
        ("localhost:1", True),
        ("[::1]:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("192.0.2.1:1", False),
        ("box:1", False),
    ],
)
def test_on_loopback(listen: str, alone: bool) -> None:
    """What others can reach needs a token; a name that we can't judge counts as reachable."""
    assert targets.on_loopback(listen) is alone
