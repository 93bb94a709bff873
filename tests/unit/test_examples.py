"""The examples load, and the reference is complete and true."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from llama_watchdog.settings import load
from llama_watchdog.settings.keys import ROOT, leaves

EXAMPLES = Path(__file__).parents[2] / "examples"
CONFIGS = sorted(EXAMPLES.glob("*.toml"))
REFERENCE = EXAMPLES / "config.toml"


def keys_of(table: dict[str, object], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in table.items():
        if isinstance(value, dict) and value:
            yield from keys_of(value, (*path, name))
        else:
            yield (*path, name)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.name)
def test_every_example_loads(config: Path) -> None:
    assert load(config, environ={}).servers


def test_reference_names_every_key() -> None:
    named = {
        (path[0], "*", *path[2:]) if path[0] == "servers" else path
        for path in keys_of(tomllib.loads(REFERENCE.read_text()))
    }
    assert named == {path for path in leaves(ROOT) if path[0] != "defaults"}


def test_reference_holds_the_defaults(tmp_path: Path) -> None:
    """Copied to /etc as it is, the reference changes nothing."""
    empty = tmp_path / "empty.toml"
    empty.touch()
    nothing = load(empty, environ={})
    assert load(REFERENCE, environ={}) == nothing.model_copy(update={"source": REFERENCE})


def test_reference_says_why_of_every_key() -> None:
    for line in REFERENCE.read_text().splitlines():
        if line and line[0] not in "#[":
            assert len(line.partition("# ")[2]) > 10, line


def test_debian_example_watches_the_stock_unit() -> None:
    server = load(EXAMPLES / "debian.toml", environ={}).servers["chat"]
    assert (server.unit, server.url) == ("llama-server.service", "http://127.0.0.1:8080")


def test_two_servers_example_shares_and_overrides_defaults() -> None:
    servers = load(EXAMPLES / "two-servers.toml", environ={}).servers
    assert [server.probe.interval for server in servers.values()] == [2.0, 2.0]
    assert servers["chat"].stall.computing > servers["embeddings"].stall.computing
