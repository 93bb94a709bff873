"""Where a llama-server serves, by what it was told and by what it has open."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

import pytest

from llama_watchdog.probes.procfs import ProcessFolder
from llama_watchdog.probes.stated import served_url, stated_url


@pytest.mark.parametrize(
    ("arguments", "environment", "url"),
    [
        ("--port 9000", {}, "http://127.0.0.1:9000"),
        ("-m model.gguf --port=9000", {}, "http://127.0.0.1:9000"),
        ("", {"LLAMA_ARG_PORT": "9000"}, "http://127.0.0.1:9000"),
        ("--port 9001", {"LLAMA_ARG_PORT": "9000"}, "http://127.0.0.1:9001"),
        ("--port 9000 --port 9001", {}, "http://127.0.0.1:9001"),
        ("--host 0.0.0.0 --port 9000", {}, "http://127.0.0.1:9000"),
        ("--host :: --port 9000", {}, "http://[::1]:9000"),
        ("--host fd00::2 --port 9000", {}, "http://[fd00::2]:9000"),
        ("--host localhost --port 9000", {}, "http://localhost:9000"),
        ("--host 192.0.2.7,127.0.0.1 --port 9000", {}, "http://192.0.2.7:9000"),
        ("", {"LLAMA_ARG_HOST": "192.0.2.7", "LLAMA_ARG_PORT": "9000"}, "http://192.0.2.7:9000"),
        ("--host /run/llama.sock", {}, "unix:///run/llama.sock"),
        ("--host llama.sock", {}, None),
        ("--port 9000 --ssl-key-file k --ssl-cert-file c", {}, "https://127.0.0.1:9000"),
        (
            "--port 9000 --ssl_key_file k",
            {"LLAMA_ARG_SSL_CERT_FILE": "c"},
            "https://127.0.0.1:9000",
        ),
        ("--port 9000 --ssl-cert-file c", {}, "http://127.0.0.1:9000"),
        ("", {}, None),
        ("--host 127.0.0.1", {}, None),
        ("--port", {}, None),
        ("--port x", {}, None),
        ("--port 0", {}, None),
        ("--port 65536", {}, None),
        ("--port ²", {}, None),
    ],
)
def test_as_it_was_told(arguments: str, environment: Mapping[str, str], url: str | None) -> None:
    assert stated_url(["llama-server", *arguments.split()], environment) == url


@pytest.mark.parametrize(
    ("family", "address", "host"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET, "0.0.0.0", "127.0.0.1"),  # noqa: S104 - as servers do
        (socket.AF_INET6, "::1", "[::1]"),
        (socket.AF_INET6, "::", "[::1]"),
    ],
)
def test_without_a_word_by_the_port_that_it_has_open(
    monkeypatch: pytest.MonkeyPatch, family: socket.AddressFamily, address: str, host: str
) -> None:
    """Builds differ in the port that they take without --port."""
    monkeypatch.setattr(ProcessFolder, "arguments", lambda _: ("llama-server",))
    monkeypatch.setattr(ProcessFolder, "environment", lambda _: {})
    with ProcessFolder(os.getpid()) as folder, socket.socket(family) as listening:
        listening.bind((address, 0))
        assert served_url(folder) is None
        listening.listen()
        assert served_url(folder) == f"http://{host}:{listening.getsockname()[1]}"
        with socket.create_server(("127.0.0.1", 0)):
            assert served_url(folder) is None
