"""What a bad configuration is answered with: all its problems at once, a line each, and never a secret."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_watchdog.settings import ConfigError, files, load
from llama_watchdog.settings.keys import ROOT, leaves

Lines = Callable[..., list[str]]


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    """The problems of a file `config.toml`, less the folder that it is in."""

    def lines_of(text: str = "", environ: Mapping[str, str] = {}, **overrides: object) -> list[str]:
        path = tmp_path / "config.toml"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError) as caught:
            load(path, environ=environ, overrides=overrides)
        assert str(caught.value).splitlines() == list(caught.value.problems)
        return [line.replace(f"{tmp_path}/", "") for line in caught.value.problems]

    return lines_of


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[defaults.stall]\nblockd = 1", "defaults.stall.blockd: unknown key; did you mean 'blocked'?"),
        ("[server.chat]", "server: unknown key; did you mean 'servers'?"),
        ("defaults.slots-timeout = 1", "defaults.slots-timeout: unknown key; did you mean 'probe.slots"),
        ("defaults.URL = 'http://x'", "defaults.URL: unknown key; did you mean 'url'?"),
        ("[default]", "default: unknown key; did you mean 'defaults'?"),
        ("[web]\nqqq = 1", "web.qqq: unknown key; allowed here: listen, token_file, control"),
        ("[servers.a]\nname = 'b'", "servers.a.name: unknown key; allowed here: url, api_key, "),
        ("source = '/x'", "source: unknown key; allowed here: state_dir, "),
        ("[servers.'my chat']", "servers.'my chat': is no server's name: use 1 to 64 of letters"),
        ("[servers.'..']", "servers.'..': is no server's name"),
        ("servers = 3", "servers: must be a table of keys"),
        ("[servers]\nchat = 'http://x'", "servers.chat: must be a table of keys"),
        ("dry_run = 1", "dry_run: 1 is not allowed: use true or false"),
        ("log_level = 'verbose'", "log_level: 'verbose' is not allowed: use one of debug, info, "),
        ("log_format = []", "log_format: a list is not allowed: use one of auto, json, console"),
        ("state_dir = 'var'", "state_dir: 'var' is not allowed: use an absolute path"),
        ("[web]\nlisten = '127.0.0.1'", "web.listen: must be host:port, as in 127.0.0.1:9180"),
        ("[web]\nlisten = '0.0.0.0:9180'", "web.listen: needs web.token_file to be set"),
        ("[web]\nlisten = 'localhost:99999'", "web.listen: must have a port from 1 to 65535"),
        ("[alerts]\nwebhook = 'ftp://x'", "alerts.webhook: must begin with http:// or https://"),
        ("[alerts]\nurls = 'ntfy://x'", "alerts.urls: must be a list, such as ["),
        ("[alerts]\nurls = ['']", "alerts.urls: must hold nothing but texts, none of them empty"),
    ],
)  # fmt: skip
def test_one_line_says_where_what_and_what_is_allowed(lines: Lines, text: str, line: str) -> None:
    (found,) = lines(text)
    assert found.startswith(f"config.toml: {line}")


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("probe.interval", "'5 parsecs'", "'5 parsecs' is no duration: use 250ms, 30s, 5m, 1h or seconds"),
        ("probe.interval", "'249ms'", "'249ms' is too short: it must be 250ms or more, for asking more"),
        ("probe.interval", "true", "true is no duration"),
        ("probe.interval", "2020-01-01", "a date or time is no duration"),
        ("probe.health_timeout", "0", "0 is too short: it must be longer than 0"),
        ("probe.slots_timeout", "-1", "-1 is no duration"),
        ("probe.slots_timeout", "nan", "nan is no duration"),
        ("probe.slots_timeout", "'366d'", "'366d' is too long: it may be 365d at most"),
        ("stall.blocked", "1" + "0" * 400, "a huge number is no duration"),
        ("stall.blocked", "'" + "9" * 400 + "s'", "'99999"),
        ("probe.metrics", "'yes'", "'yes' is not allowed: use one of auto, on, off"),
        ("probe.canary", "'maybe'", "'maybe' is not allowed: use true or false"),
        ("stall.pace_factor", "0.9", "0.9 is not allowed: use a number from 1 to 1000"),
        ("stall.pace_factor", "nan", "nan is not allowed: use a number from 1 to 1000"),
        ("stall.pace_factor", "true", "true is not allowed: use a number from 1 to 1000"),
        ("stall.confirmations", "0", "0 is not allowed: use a whole number from 1 to 1000"),
        ("stall.confirmations", "1.5", "1.5 is not allowed: use a whole number from 1 to 1000"),
        ("stall.confirmations", "true", "true is not allowed: use a whole number"),
        ("restart.max_restarts", "-1", "-1 is not allowed: use a whole number from 0 to 1000"),
        ("escalation.ladder", "['cancel', 'nuke']", "'nuke' is no rung: use cancel, sigterm, sigkill"),
        ("escalation.ladder", "[]", "must have 1 to 16 rungs, such as ["),
        ("escalation.ladder", "'cancel'", "must be a list, such as ["),
        ("restart.via", "'upstart'", "'upstart' is not allowed: use one of auto, systemd, container, "),
        ("restart.command", "'systemctl restart x'", "must be a list, such as ["),
        ("restart.command", "['a', 3]", "must hold nothing but texts, none of them empty"),
        ("hooks.on_event", "['']", "must hold nothing but texts, none of them empty"),
        ("process_name", "''", "must be the bare name of an executable, such as llama-server"),
        ("process_name", "'/usr/bin/llama-server'", "must be the bare name of an executable"),
        ("process_name", "3", "must be text in quotes, not 3"),
        ("unit", "'llama.socket'", "'llama.socket' is not a service: use a unit such as"),
        ("unit", "'--force'", "'--force' is no unit's name: use one such as llama-server.service"),
        ("unit", "'a b'", "'a b' is no unit's name"),
        ("unit", "'llama@'", "'llama@' is a template: name an instance of it"),
        ("container", "'-v'", "'-v' is no container's name"),
        ("pid_file", "'llama.pid'", "'llama.pid' is not allowed: use an absolute path"),
        ("headers", "{ 'a b' = 'x' }", "'a b' is no header's name"),
        ("headers", "{ 'X-A' = 3 }", "the header 'X-A' must be one line of printable ASCII text"),
        ("api_key", "3", "must be one line of printable ASCII text in quotes"),
        ("headers", "'hush'", "must be a table of keys"),
    ],
)  # fmt: skip
def test_values_of_a_server(lines: Lines, key: str, value: str, line: str) -> None:
    (found,) = lines(f"servers.chat.{key} = {value}")
    assert found.startswith(f"config.toml: servers.chat.{key}: {line}")
    assert len(found) < 200


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("unit = 'a'\npid_file = '/b'", "pid_file: only one of unit, pid_file and container may be set"),
        ("pid_file = '/b'\ncontainer = 'c'", "container: only one of unit, pid_file and container may"),
        ("api_key = 'hush'\napi_key_file = '/b'", "api_key: only one of api_key and api_key_file may be set"),
        ("restart.via = 'command'", "restart.via: 'command' needs restart.command to be set"),
        ("restart.via = 'systemd'", "restart.via: 'systemd' needs unit to be set"),
        ("restart.via = 'container'", "restart.via: 'container' needs container to be set"),
        ("restart.backoff = '10m'", "restart.backoff: restart.backoff may not be longer than"),
        ("restart.backoff_max = '1s'", "restart.backoff_max: restart.backoff may not be longer than"),
    ],
)  # fmt: skip
def test_keys_that_do_not_go_together(lines: Lines, text: str, line: str) -> None:
    (found,) = lines(f"[servers.chat]\n{text}")
    assert found.startswith(f"config.toml: servers.chat.{line}")


@pytest.mark.parametrize(
    ("one", "other", "target"),
    [
        ("url = 'http://localhost:8080/'", "url = 'http://[::1]:8080'", "url (127.0.0.1 port 8080)"),
        ("", "url = 'HTTP://LOCALHOST:8080'", "url (127.0.0.1 port 8080)"),
        ("url = 'http://0.0.0.0:8080'", "url = 'https://127.0.0.1:8080'", "url (127.0.0.1 port 8080)"),
        ("url = 'http://box'", "url = 'http://box.:80'", "url (box port 80)"),
        ("url = 'https://box'", "url = 'https://box:443'", "url (box port 443)"),
        ("url = 'unix:///run/l'", "url = 'unix:///run/../run/l'", "url (/run/l)"),
        ("url = 'http://a'\nunit = 'x'", "url = 'http://b'\nunit = 'x.service'", "unit (x.service)"),
        ("url = 'http://a'\npid_file = '/x'", "url = 'http://b'\npid_file = '/x'", "pid_file (/x)"),
    ],
)
def test_two_servers_may_not_share_a_target(lines: Lines, one: str, other: str, target: str) -> None:
    (found,) = lines(f"[servers.first]\n{one}\n[servers.second]\n{other}")
    assert f"servers 'first' and 'second' have the same {target}: watch it once" in found
    assert found.startswith("config.toml: servers.second.")


def test_servers_on_other_ports_and_addresses_are_other_targets(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    urls = ["http://127.0.0.1:8080", "http://127.0.0.1:8081", "http://127.0.0.2:8080", "https://localhost"]
    path.write_text("".join(f"[servers.s{i}]\nurl = '{url}'\n" for i, url in enumerate(urls)))
    assert len(load(path, environ={}).servers) == 4


def test_every_third_server_with_one_target_is_named(lines: Lines) -> None:
    found = lines("[servers.a]\n[servers.b]\n[servers.c]")
    assert ["'a' and 'b'" in line or "'a' and 'c'" in line for line in found] == [True, True]


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        ({"WEB__LISTN": "1"}, "WEB__LISTN: unknown key; did you mean 'LLAMA_WATCHDOG_WEB__LISTEN'?"),
        ({"SERVERS__a__UNT": ""}, "SERVERS__a__UNT: unknown key; did you mean 'LLAMA_WATCHDOG_SERVERS__a__"),
        ({"FOO__BAR": "1"}, "FOO__BAR: unknown key; allowed here: state_dir, "),
        ({"DRY_RUN__X": "1"}, "DRY_RUN__X: unknown key"),
        ({"SERVERS__a b__URL": "http://x"}, "SERVERS__a b__URL: is no server's name"),
        ({"SERVERS____URL": "http://x"}, "SERVERS____URL: is no server's name"),
        ({"DRY_RUN": ""}, "DRY_RUN: '' is not allowed: use true or false"),
        ({"SERVERS__chat__URL": "foo"}, "SERVERS__chat__URL: must begin with http://"),
        ({"SERVERS__chat": "http://x"}, "SERVERS__chat: must be a table of keys, or in the"),
        ({"SERVERS__chat__HEADERS": "hush"}, "SERVERS__chat__HEADERS: must be a table of keys"),
        ({"SERVERS__chat": '{"stall": {"blockd": 1}}'}, "SERVERS__chat: servers.chat.stall.blockd: unknown"),
        ({"DEFAULTS": '{"stall": {"down": "x"}}'}, "DEFAULTS: defaults.stall.down: 'x' is no duration"),
        ({"DEFAULTS__ESCALATION__LADDER": "[" * 9999}, "DEFAULTS__ESCALATION__LADDER: must be a list"),
        ({"WEB__LISTEN": "", "WEB__listen": ""}, "WEB__listen: sets the same key as LLAMA_WATCHDOG_WEB__LI"),
        ({"SERVERS__CHAT__URL": "http://x"}, "SERVERS__CHAT__URL: no server 'CHAT' in the file; did"),
        ({"DEFAULTS__PROBE__INTERVAL": "0"}, "DEFAULTS__PROBE__INTERVAL: '0' is too short"),
    ],
)  # fmt: skip
def test_environment_problems_name_the_variable(lines: Lines, environ: dict[str, str], line: str) -> None:
    (found,) = lines("[servers.chat]\n", {f"LLAMA_WATCHDOG_{name}": value for name, value in environ.items()})
    assert found.startswith(f"environment LLAMA_WATCHDOG_{line}")


def test_flag_problems_name_the_flag(lines: Lines) -> None:
    assert lines(url="foo:1")[0].startswith("--url: must begin with http://")
    assert lines("[servers.a]\nurl='http://a'\n[servers.b]", url="http://x") == [
        "--url: is for one server, and a, b are configured: set their url there"
    ]
    assert lines(log_lvl="x") == ["--log-lvl: unknown key; did you mean 'log_level'?"]


def test_all_problems_of_one_load_come_together(lines: Lines) -> None:
    """Also those that only show once others are out of the way; and no echo of any of them."""
    found = lines(
        """
        log_levl = "info"
        [defaults.probe]
        interval = "x"
        [servers.a]
        url = "http://user:hush@a"
        [servers.b]
        unit = "a"
        pid_file = "/p"
        [servers.c]
        restart.via = "command"
        restart.command = "x"
        [servers.d]
        url = "http://d"
        [servers.e]
        url = "http://d"
        """,
        {"LLAMA_WATCHDOG_DRY_RUN": "flase"},
        unit="x",
    )
    assert sorted(line.removeprefix("config.toml: ").split(": ")[0] for line in found) == [
        "--unit",
        "defaults.probe.interval",
        "environment LLAMA_WATCHDOG_DRY_RUN",
        "log_levl",
        "servers.a.url",
        "servers.b.pid_file",
        "servers.c",
        "servers.c.restart.command",
        "servers.e.url",
    ]


def test_whats_wrong_in_file_and_environment_is_told_together(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    with pytest.raises(ConfigError) as caught:
        load(missing, environ={"LLAMA_WATCHDOG_DRY_RUN": "x"})
    assert caught.value.problems == (
        f"{missing}: no such file",
        "environment LLAMA_WATCHDOG_DRY_RUN: 'x' is not allowed: use true or false",
    )


def test_not_toml_names_the_line(lines: Lines) -> None:
    assert lines("a = 1\nb = = 2\n")[0].startswith("config.toml:2: not TOML: ")
    assert lines("a = 1\nb = [\n")[0].startswith("config.toml:3: not TOML: ")
    assert lines("a = " + "[" * 100_000)[0].startswith("config.toml: not TOML: nested too deeply")
    assert lines("a = " + "9" * 5000)[0].startswith("config.toml: not TOML: ")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\xff\xfe", "not UTF-8 text"),
        (b"#" * ((1 << 20) + 1), "is larger than 1024 KiB"),
        (b"\x00\x01", ":1: not TOML: "),
    ],
)
def test_unusable_files(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=why):
        load(path, environ={})


def test_named_files_that_are_none(tmp_path: Path) -> None:
    """A fifo that nobody writes to must not be waited for."""
    fifo, file = tmp_path / "fifo", tmp_path / "file"
    os.mkfifo(fifo)
    file.touch()
    for path, why in [
        (tmp_path, "is a directory"),
        (fifo, "is not a regular file"),
        (file / "below", "no such file"),
        (Path("a\0b\nc"), "no file can have this name"),
    ]:
        with pytest.raises(ConfigError) as caught:
            load(path, environ={})
        assert str(caught.value).endswith(why)
        assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(ConfigError, match=r"x\.toml, named by LLAMA_WATCHDOG_CONFIG: no such file"):
        load(environ={"LLAMA_WATCHDOG_CONFIG": str(tmp_path / "x.toml")})


def test_unreadable_file_is_told_wherever_it_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is there and can't be read is not passed over for the next, or for the defaults."""

    def denied(*_: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(files, "SYSTEM_CONFIG", tmp_path / "config.toml")
    monkeypatch.setattr(os, "open", denied)
    for config in (None, tmp_path / "config.toml"):
        with pytest.raises(ConfigError, match="can't be read: Permission denied"):
            load(config, environ={})


def test_newlines_and_nuls_in_values_stay_in_one_line(lines: Lines) -> None:
    found = lines(
        '[servers."a\\nb"]\n[servers.c]\nunit = "x\\ny\\u0000\\u001b[2J"\n[servers.c.headers]\n"X\\nY" = "v"',
        {
            "LLAMA_WATCHDOG_DRY_RUN": "a\nb",
            "LLAMA_WATCHDOG_A__B\nC": "x",
            "LLAMA_WATCHDOG_LOG_LEVEL": "\udcff",
        },
    )
    assert len(found) == 6
    assert all(line.isprintable() for line in found)


SECRET_KEYS = [
    ("servers.chat.api_key", "hush"),
    ("servers.chat.headers", "hush"),
    ("servers.chat.headers.Authorization", "hush"),
    ("servers.chat.url", "http://hush:hush@x/"),
    ("servers.chat.url", "http://x/?key=hush"),
    ("servers.chat.url", "hush"),
    ("servers.chat.url", "http://hush hush"),
    ("alerts.webhook", "hush"),
    ("alerts.urls", "hush"),
    ("alerts", "hush"),
]


@pytest.mark.parametrize(("key", "value"), SECRET_KEYS)
@pytest.mark.parametrize("spoil", ["{}", "{}\n", "é{}", "\0{}", ["{}", 3], {"k": "{}"}])
def test_secrets_are_never_told(
    tmp_path: Path, key: str, value: str, spoil: str | list[object] | dict[str, object]
) -> None:
    bad = json.loads(json.dumps(spoil).replace("{}", value))
    text = json.dumps(bad) if not isinstance(bad, dict) else f"{{ k = {json.dumps(value)} }}"
    path = tmp_path / "config.toml"
    path.write_text(f"{key} = {text}\n", encoding="utf-8")
    variable = "LLAMA_WATCHDOG_" + key.replace(".", "__")
    spoilt = bad if isinstance(bad, str) else json.dumps(bad)
    for config, environ in ((path, {}), (None, {variable: spoilt})):
        try:
            load(config, environ=environ)
        except ConfigError as error:
            assert "hush" not in str(error)  # noqa: PT017 - some of these are fine, and then say nothing
            assert "hush" not in repr(error.__context__)  # noqa: PT017 - nor may a traceback show it


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["30s", "http://x", "cancel", "a.service", "/x", "on", "auto"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYS = [[part.replace("*", "chat") for part in path] for path in leaves(ROOT)]


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("empty") / "config.toml"
    path.touch()
    return path


@settings(max_examples=100, deadline=None)
@given(configured=st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 4), VALUES), max_size=6))
def test_whatever_is_configured_either_loads_or_is_told_in_lines(
    empty: Path, configured: list[tuple[list[str], int, object]]
) -> None:
    """Any value at any key, or at a table above one."""
    environ = {}
    for path, cut, value in configured:  # cut: how far above the key
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        environ["LLAMA_WATCHDOG_" + "__".join(path[: len(path) - cut] or path)] = text
    try:
        load(empty, environ=environ)
    except ConfigError as error:
        for line in error.problems:
            assert line.isprintable()
            assert "pydantic" not in line
            assert "is not allowed here" not in line
