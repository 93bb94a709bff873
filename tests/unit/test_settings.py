"""What is in force: where settings come from, and which of them wins."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pydantic import ValidationError

from llama_watchdog.core.policy import LadderPolicy, Policy, RestartPolicy, Rung, StallPolicy
from llama_watchdog.settings import ConfigError, ServerSettings, Settings, files, load

Load = Callable[..., Settings]


@pytest.fixture
def read(tmp_path: Path) -> Load:
    """`read(toml, environ, **flags)` of a file of its own."""

    def read_it(text: str = "", environ: Mapping[str, str] = {}, **overrides: object) -> Settings:
        path = tmp_path / "config.toml"
        path.write_text(text, encoding="utf-8")
        return load(path, environ=environ, overrides=overrides)

    return read_it


@pytest.fixture
def no_system_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the machine's own configuration would be, were there one."""
    path = tmp_path / "etc" / "config.toml"
    monkeypatch.setattr(files, "SYSTEM_CONFIG", path)
    return path


def test_nothing_configured_watches_the_default_server(no_system_config: Path) -> None:
    settings = load(environ={})
    assert list(settings.servers) == ["default"]
    assert settings.servers["default"].url == "http://127.0.0.1:8080"
    assert settings.source is None
    assert not no_system_config.exists()


def test_settings_default_to_the_products_policy() -> None:
    assert ServerSettings().policy() == Policy()


def test_policy_carries_every_key(read: Load) -> None:
    server = read("""
        [servers.chat.stall]
        blocked = "6s"
        pace_factor = 3
        confirmations = 4
        [servers.chat.escalation]
        ladder = ["sigterm", "sigkill"]
        sigterm_grace = "250ms"
        [servers.chat.restart]
        max_restarts = 0
        window = "2h"
        backoff = 1.5
    """).servers["chat"]
    assert server.name == "chat"
    assert server.policy() == Policy(
        StallPolicy(blocked=6.0, pace_factor=3.0, confirmations=4),
        LadderPolicy(ladder=(Rung.SIGTERM, Rung.SIGKILL), sigterm_grace=0.25),
        RestartPolicy(max_restarts=0, window=7200.0, backoff=1.5),
    )


def test_flag_beats_environment_beats_file_beats_default(read: Load) -> None:
    text = "[servers.chat]\nurl = 'http://file'\nunit = 'file'\nprocess_name = 'file'"
    environ = {
        "LLAMA_WATCHDOG_SERVERS__chat__URL": "http://env",
        "LLAMA_WATCHDOG_SERVERS__chat__UNIT": "env",
    }
    server = read(text, environ, url="http://flag").servers["chat"]
    assert (server.url, server.unit, server.process_name) == ("http://flag", "env.service", "file")
    assert server.probe.interval == 5.0


def test_defaults_apply_to_all_and_a_servers_own_key_wins(read: Load) -> None:
    """Also an own key in the file over a default from the environment; tables merge key by key."""
    servers = read(
        """
        [defaults]
        process_name = "llamafile"
        [defaults.stall]
        blocked = "7s"
        spinning = "8s"
        [defaults.headers]
        X-One = "1"
        [servers.a]
        url = "http://a"
        [servers.b]
        url = "http://b"
        [servers.b.stall]
        blocked = "9s"
        [servers.b.headers]
        X-Two = "2"
        """,
        {"LLAMA_WATCHDOG_DEFAULTS__STALL__BLOCKED": "3s", "LLAMA_WATCHDOG_DEFAULTS__PROBE__INTERVAL": "1s"},
    ).servers
    assert [server.process_name for server in servers.values()] == ["llamafile", "llamafile"]
    assert [server.stall.blocked for server in servers.values()] == [3.0, 9.0]
    assert [server.stall.spinning for server in servers.values()] == [8.0, 8.0]
    assert [server.probe.interval for server in servers.values()] == [1.0, 1.0]
    assert servers["b"].plain_headers() == {"X-One": "1", "X-Two": "2"}


def test_defaults_alone_shape_the_default_server(read: Load) -> None:
    assert read("[defaults]\nunit = 'llama-server'").servers["default"].unit == "llama-server.service"


def test_environment_and_file_meet_in_a_servers_case(read: Load) -> None:
    settings = read("[servers.Chat]\nunit = 'x'", {"LLAMA_WATCHDOG_SERVERS__Chat__url": "http://env"})
    assert list(settings.servers) == ["Chat"]
    assert (settings.servers["Chat"].url, settings.servers["Chat"].unit) == ("http://env", "x.service")


def test_environment_alone_configures_servers(read: Load) -> None:
    settings = read(
        "",
        {
            "LLAMA_WATCHDOG_DRY_RUN": "true",
            "LLAMA_WATCHDOG_SERVERS__a__STALL__BLOCKED": "6s",
            "LLAMA_WATCHDOG_SERVERS__a__ESCALATION__LADDER": "cancel, sigkill",
            "LLAMA_WATCHDOG_SERVERS__a__RESTART__COMMAND": '["systemctl", "restart", "a,b"]',
            "LLAMA_WATCHDOG_SERVERS__a__RESTART__MAX_RESTARTS": "2",
            "LLAMA_WATCHDOG_SERVERS__a__HEADERS": '{"X-Tenant": "a"}',
            "LLAMA_WATCHDOG_SERVERS__b__PROBE__INTERVAL": "3s",
            "LLAMA_WATCHDOG_SERVERS__b": '{"url": "http://b", "probe": {"interval": "2s"}}',
        },
    )
    a, b = settings.servers["a"], settings.servers["b"]
    assert settings.dry_run is True
    assert a.stall.blocked == 6.0
    assert a.escalation.ladder == (Rung.CANCEL, Rung.SIGKILL)
    assert a.restart.command == ("systemctl", "restart", "a,b")
    assert a.restart.max_restarts == 2
    assert a.plain_headers() == {"X-Tenant": "a"}
    assert (b.url, b.probe.interval) == ("http://b", 3.0)


def test_variables_of_others_are_ignored(read: Load) -> None:
    """Kubernetes makes such names for a service called llama-watchdog."""
    others = {
        "LLAMA_WATCHDOG_PORT": "tcp://10.0.0.1:9180",
        "LLAMA_WATCHDOG_SERVICE_HOST": "10.0.0.1",
        "LLAMA_WATCHDOG_PORT_9180_TCP_ADDR": "10.0.0.1",
        "LLAMA_WATCHDOG__X_PORT": "1",
        "LLAMA_WATCHDOG_": "",
        "LLAMA_WATCHDOGS__X": "",
    }
    assert read("", others) == read("")


def test_flags_not_given_change_nothing(read: Load) -> None:
    """`--dry-run` is False where it is not given, and must not undo the file's."""
    assert read("dry_run = true", url=None, unit=None, dry_run=False) == read("dry_run = true")
    assert read("", dry_run=True).dry_run is True


def test_unit_flag_goes_to_the_only_server(read: Load) -> None:
    assert read("[servers.x]", unit="llama").servers["x"].unit == "llama.service"


def test_reloading_an_unchanged_file_gives_equal_settings(read: Load) -> None:
    """So a reload can tell which servers have changed."""
    text = "[servers.a]\nurl='http://a'\napi_key='k'\n[servers.b]\nurl='http://b'\n"
    before, after = read(text), read(text + "[servers.b.stall]\nblocked = '6s'\n")
    assert before == read(text)
    assert before != after
    assert before.servers["a"] == after.servers["a"]
    assert before.servers["b"] != after.servers["b"]


def test_settings_are_frozen(read: Load) -> None:
    settings = read()
    with pytest.raises(ValidationError):
        settings.dry_run = True
    with pytest.raises(ValidationError):
        settings.servers["default"].stall.blocked = 1.0


def test_the_process_environment_is_not_read_behind_our_back(
    read: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRY_RUN", "true")
    monkeypatch.setenv("LLAMA_WATCHDOG_DRY_RUN", "true")
    assert read("").dry_run is False


def test_file_is_sought_where_named_then_system_then_user(no_system_config: Path, tmp_path: Path) -> None:
    named, user = tmp_path / "named.toml", tmp_path / "xdg" / "llama-watchdog" / "config.toml"
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "xdg"), "LLAMA_WATCHDOG_CONFIG": ""}
    for path in (user, no_system_config, named):
        path.parent.mkdir(parents=True, exist_ok=True)
    assert load(environ=environ).source is None
    for path in (user, no_system_config):
        path.touch()
        assert load(environ=environ).source == path
    assert load(environ={"HOME": str(tmp_path)}).source == no_system_config
    named.touch()
    assert load(environ={**environ, "LLAMA_WATCHDOG_CONFIG": str(named)}).source == named
    assert load(user, environ={**environ, "LLAMA_WATCHDOG_CONFIG": str(named)}).source == user


def test_users_file_is_found_below_home(no_system_config: Path, tmp_path: Path) -> None:
    path = tmp_path / ".config" / "llama-watchdog" / "config.toml"
    path.parent.mkdir(parents=True)
    path.touch()
    assert load(environ={"HOME": str(tmp_path), "XDG_CONFIG_HOME": "relative"}).source == path
    assert not no_system_config.exists()


def test_byte_order_mark_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"\xef\xbb\xbfdry_run = true\n")
    assert load(path, environ={}).dry_run


@pytest.mark.parametrize(
    ("text", "environ", "uid", "expected"),
    [
        ("state_dir = '/srv/lw'", {"STATE_DIRECTORY": "/var/lib/x"}, 0, "/srv/lw"),
        ("state_dir = ''", {"STATE_DIRECTORY": "/var/lib/x:/var/lib/y"}, 1000, "/var/lib/x"),
        ("", {"STATE_DIRECTORY": "", "HOME": "/root"}, 0, "/var/lib/llama-watchdog"),
        ("", {"HOME": "/home/me"}, 1000, "/home/me/.local/state/llama-watchdog"),
        ("", {"HOME": "/home/me", "XDG_STATE_HOME": "/x"}, 1000, "/x/llama-watchdog"),
        ("", {}, 1000, "/var/lib/llama-watchdog"),
        ("", {"LLAMA_WATCHDOG_STATE_DIR": "/env"}, 1000, "/env"),
    ],
)
def test_state_dir(
    read: Load,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    environ: dict[str, str],
    uid: int,
    expected: str,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert read(text, environ).state_dir == Path(expected)


def test_key_comes_from_the_setting_or_the_file(read: Load, tmp_path: Path) -> None:
    """A file of several keys is what llama-server's --api-key-file takes; any of them opens it."""
    keys = tmp_path / "keys"
    keys.write_text("\n  first \r\nsecond\n")
    assert read().servers["default"].key() is None
    assert read("[defaults]\napi_key = 'secret'").servers["default"].key() == "secret"
    server = read(f"[defaults]\napi_key_file = '{keys}'").servers["default"]
    assert server.key() == "first"
    keys.write_text("renewed")
    assert server.key() == "renewed"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "no such file"),
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"\xff\xfe\x00", "not UTF-8 text"),
        (b"abc\x00secret", "holds no key"),
        (b"s" * ((64 << 10) + 1), "is larger than 64 KiB"),
    ],
)
def test_unusable_key_file_is_told_without_its_content(
    read: Load, tmp_path: Path, content: bytes | None, why: str
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    server = read(f"[servers.chat]\napi_key_file = '{path}'").servers["chat"]
    with pytest.raises(ConfigError) as caught:
        server.key()
    (line,) = caught.value.problems
    assert line.startswith(f"{path}: servers.chat.api_key_file: {why}")
    assert "secret" not in line
    assert len(line) < 400


def test_secrets_stay_out_of_reprs_and_dumps(read: Load) -> None:
    settings = read("""
        [alerts]
        urls = ["tgram://hush"]
        webhook = "https://example/hush"
        [servers.a]
        api_key = "hush"
        [servers.a.headers]
        Authorization = "Basic hush"
    """)
    assert "hush" not in f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()}"
