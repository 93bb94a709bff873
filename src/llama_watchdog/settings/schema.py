"""The tables of the configuration, as they are once everything is read: frozen, checked, in seconds.

What belongs here: which keys there are, their defaults, and which of them can't go together. What a single
value may be is in kinds.py; where values come from, in sources.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from llama_watchdog.core.policy import LadderPolicy, Policy, RestartPolicy, StallPolicy

from . import kinds, targets
from .errors import ConfigError, ConflictError, KeyPath, dotted
from .files import UnreadableError, read_text

_STALL, _LADDER, _RESTART = StallPolicy(), LadderPolicy(), RestartPolicy()
_KEY_FILE_BYTES = 64 << 10

# Set by `load` itself, and so no keys of the configuration.
NOT_KEYS = frozenset({"name", "source"})


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class ProbeSettings(_Table):
    """How a server is asked. Times in seconds."""

    interval: kinds.Interval = 5.0
    health_timeout: kinds.Seconds = 5.0
    slots_timeout: kinds.Seconds = 10.0
    metrics: kinds.MetricsChoice = "auto"
    canary: kinds.Flag = False


class StallSettings(_Table):
    """How long each kind of standstill may last, in seconds; see `core.policy.StallPolicy`."""

    blocked: kinds.Seconds = _STALL.blocked
    spinning: kinds.Seconds = _STALL.spinning
    unknown: kinds.Seconds = _STALL.unknown
    computing: kinds.Seconds = _STALL.computing
    pace_factor: kinds.Factor = _STALL.pace_factor
    pace_floor: kinds.Seconds = _STALL.pace_floor
    loading: kinds.Seconds = _STALL.loading
    down: kinds.Seconds = _STALL.down
    deferred: kinds.Seconds = _STALL.deferred
    slot_patience: kinds.Seconds = _STALL.slot_patience
    confirmations: kinds.Confirmations = _STALL.confirmations


class EscalationSettings(_Table):
    """The ladder, and the seconds that each rung has to work; see `core.policy.LadderPolicy`."""

    ladder: kinds.Ladder = _LADDER.ladder
    cancel_grace: kinds.Seconds = _LADDER.cancel_grace
    sigterm_grace: kinds.Seconds = _LADDER.sigterm_grace
    sigkill_grace: kinds.Seconds = _LADDER.sigkill_grace


class RestartSettings(_Table):
    """What brings the server back, and how often; see `core.policy.RestartPolicy`. Times in seconds."""

    via: kinds.ViaChoice = "auto"
    command: kinds.Command = ()
    max_restarts: kinds.Restarts = _RESTART.max_restarts
    window: kinds.Seconds = _RESTART.window
    backoff: kinds.Pause = _RESTART.backoff
    backoff_max: kinds.Pause = _RESTART.backoff_max
    start_timeout: kinds.Seconds = _RESTART.start_timeout


class HookSettings(_Table):
    """Commands to run on events; each is one command line, its words parted as a shell would."""

    on_event: kinds.Commands = ()


class ServerSettings(_Table):
    """One server: where it is, and how it is watched and brought back. Two are equal if all of it is."""

    name: str = "default"
    url: kinds.Url = "http://127.0.0.1:8080"
    api_key: kinds.Secret = None
    api_key_file: kinds.FilePath = None
    ca_file: kinds.FilePath = None
    headers: kinds.Headers = {}
    unit: kinds.UnitName = ""
    pid_file: kinds.FilePath = None
    container: kinds.ContainerName = ""
    process_name: kinds.ProcessName = "llama-server"
    probe: ProbeSettings = ProbeSettings()
    stall: StallSettings = StallSettings()
    escalation: EscalationSettings = EscalationSettings()
    restart: RestartSettings = RestartSettings()
    hooks: HookSettings = HookSettings()

    def policy(self) -> Policy:
        """What judging and escalating depend on, for core."""
        limits = self.restart.model_dump(exclude={"via", "command"})
        return Policy(
            StallPolicy(**self.stall.model_dump()),
            LadderPolicy(**self.escalation.model_dump()),
            RestartPolicy(**limits),
        )

    def key(self) -> str | None:
        """The API key, read anew from `api_key_file` at each call; None where none is set.

        Of a file with several keys, as llama-server's own --api-key-file may be, the first.
        Raises ConfigError, with the file and the reason and nothing of its content.
        """
        if self.api_key_file is None:
            return None if self.api_key is None else self.api_key.get_secret_value()
        where = f"{self.api_key_file}: servers.{self.name}.api_key_file"
        try:
            text = read_text(self.api_key_file, _KEY_FILE_BYTES)
        except UnreadableError as error:
            raise ConfigError(f"{where}: {error}") from None
        key = next((line.strip() for line in text.splitlines() if line.strip()), "")
        if not key:
            raise ConfigError(f"{where}: is empty, where a key is expected")
        if not (key.isascii() and key.isprintable()):
            raise ConfigError(f"{where}: holds no key: expected one line of printable ASCII text")
        return key

    def plain_headers(self) -> dict[str, str]:
        """`headers` with their values, to be sent and never shown."""
        return {name: value.get_secret_value() for name, value in self.headers.items()}

    @model_validator(mode="after")
    def _agree(self) -> ServerSettings:
        if conflicts := tuple(self._conflicts()):
            raise ConflictError(*conflicts)
        return self

    def _conflicts(self) -> Iterator[tuple[tuple[KeyPath, ...], str]]:
        found = [key for key in ("unit", "pid_file", "container") if getattr(self, key)]
        if len(found) > 1:
            message = f"only one of unit, pid_file and container may be set; here are {' and '.join(found)}"
            yield tuple((key,) for key in reversed(found)), message
        if self.api_key is not None and self.api_key_file is not None:
            yield (("api_key",), ("api_key_file",)), "only one of api_key and api_key_file may be set"
        needs: dict[str, tuple[KeyPath, object]] = {
            "command": (("restart", "command"), self.restart.command),
            "systemd": (("unit",), self.unit),
            "container": (("container",), self.container),
        }
        key, value = needs.get(self.restart.via, ((), True))
        if not value:
            yield (("restart", "via"), key), f"'{self.restart.via}' needs {dotted(key)} to be set"
        if self.restart.backoff > self.restart.backoff_max:
            pair = f"({self.restart.backoff:g}s and {self.restart.backoff_max:g}s here)"
            keys = (("restart", "backoff"), ("restart", "backoff_max"))
            yield keys, f"restart.backoff may not be longer than restart.backoff_max {pair}"


class WebSettings(_Table):
    """The page: where it listens, and what lets people in."""

    listen: kinds.Listen = ""
    token_file: kinds.FilePath = None
    control: kinds.FilePath = None

    @model_validator(mode="after")
    def _agree(self) -> WebSettings:
        if self.listen and self.token_file is None and not targets.on_loopback(self.listen):
            message = "needs web.token_file to be set, since others than this machine can reach it"
            raise ConflictError(((("listen",), ("token_file",)), message))
        return self


class AlertSettings(_Table):
    """Whom to tell. Both may hold tokens, and are kept as secrets."""

    urls: kinds.Secrets = ()
    webhook: kinds.Webhook = None


class Settings(BaseSettings):
    """The whole configuration. `source` is the file it was read from, `state_dir` where state is kept.

    Made by `load`, which passes `layers`: sources, the strongest first.
    """

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=False
    )

    source: Path | None = None
    state_dir: kinds.Directory = Path("/var/lib/llama-watchdog")
    dry_run: kinds.Flag = False
    log_level: kinds.LevelChoice = "info"
    log_format: kinds.FormatChoice = "auto"
    web: WebSettings = WebSettings()
    alerts: AlertSettings = AlertSettings()
    servers: dict[str, ServerSettings] = {}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - ours keeps the case of server names
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - a daemon reads no .env of its directory
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - api_key_file does this
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The layers that `load` passes, else the arguments alone; never what just is in the environment."""
        layers = init_settings().get("layers")
        return (init_settings,) if layers is None else tuple(layer.source(settings_cls) for layer in layers)

    @model_validator(mode="after")
    def _one_watch_a_target(self) -> Settings:
        conflicts: list[tuple[tuple[KeyPath, ...], str]] = []
        seen: dict[tuple[str, object], str] = {}
        for name, server in self.servers.items():
            for key, target in server_targets(server).items():
                first = seen.setdefault((key, target), name)
                if first != name:
                    message = f"servers '{first}' and '{name}' have the same {key} ({target}): watch it once"
                    conflicts.append((tuple(("servers", n, key) for n in (name, first)), message))
        if conflicts:
            raise ConflictError(*conflicts)
        return self


def server_targets(server: ServerSettings) -> dict[str, object]:
    """What names the watched server, each in the one form that all its spellings share."""
    targets_of = {
        "url": targets.listens_at(server.url),
        "unit": server.unit,
        "pid_file": server.pid_file,
        "container": server.container,
    }
    return {key: value for key, value in targets_of.items() if value}
