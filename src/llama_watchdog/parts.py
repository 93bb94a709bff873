"""From one server's settings to what a watch of it is made of: its supervisor, its eyes and its hands."""

from __future__ import annotations

from llama_watchdog.actions.hands import Hands, Restart, by_command
from llama_watchdog.core.observation import Watch
from llama_watchdog.probes import place
from llama_watchdog.probes.gpu import GpuProbe
from llama_watchdog.probes.llama_http import LlamaHttp
from llama_watchdog.probes.observer import Observer
from llama_watchdog.probes.process import ProcessProbe
from llama_watchdog.settings import ConfigError, ServerSettings
from llama_watchdog.supervisors.base import Supervisor
from llama_watchdog.supervisors.container import Container
from llama_watchdog.supervisors.systemd import SystemdUnit

# How long a poll waits for answers before it reports them as pending. An idle server answers in
# milliseconds; what takes longer is seen at the next poll.
PATIENCE = 1.0


def supervisor_of(server: ServerSettings) -> Supervisor | None:
    """Who runs the server, as configured; None: nobody that can be asked."""
    if server.unit:
        return SystemdUnit(server.unit)
    if server.container:
        return Container(server.container)
    return None


def observer_of(
    server: ServerSettings, *, supervisor: Supervisor | None = None, patience: float = PATIENCE
) -> Observer:
    """The eyes on a server; `supervisor`: who runs it, if not as configured.

    Raises ConfigError where its key, headers or certificates can't be used.
    """
    supervisor = supervisor or supervisor_of(server)
    return Observer(
        http=_http(server, patience),
        process=ProcessProbe(
            url=server.url,
            process_name=server.process_name,
            supervisor=supervisor,
            pid_file=server.pid_file,
        ),
        gpu=GpuProbe(),
        supervisor=supervisor,
        watch=Watch(server=server.name, interval=server.probe.interval),
    )


def _http(server: ServerSettings, patience: float) -> LlamaHttp:
    try:
        return LlamaHttp(
            server.url,
            api_key=server.key(),
            ca_file=server.ca_file,
            headers=server.plain_headers(),
            health_timeout=server.probe.health_timeout,
            slots_timeout=server.probe.slots_timeout,
            patience=min(patience, server.probe.slots_timeout),
        )
    except OSError as error:
        where = f"servers.{server.name}.ca_file: {server.ca_file}"
        raise ConfigError(f"{where}: {error.strerror or 'no certificates can be read from it'}") from None
    except ValueError as error:
        raise ConfigError(f"servers.{server.name}: {error}") from None


def hands_of(server: ServerSettings, *, dry_run: bool, supervisor: Supervisor | None = None) -> Hands:
    """What can be done to a server, as configured; `supervisor`: who runs it, if not so.

    Raises ConfigError where only `llama-watchdog exec` could do it.
    """
    via = server.restart.via
    if via == "child" and supervisor is None:
        raise ConfigError(
            f"servers.{server.name}.restart.via: 'child' is what `llama-watchdog exec` does; "
            "use auto, systemd, container, command or none"
        )
    supervisor = supervisor or supervisor_of(server)
    restart: Restart | None = None
    if via in ("systemd", "container", "child") or (via == "auto" and supervisor is not None):
        restart = supervisor.restart if supervisor is not None else None
    elif via == "command" or (via == "auto" and server.restart.command):
        restart = by_command(server.restart.command)
    return Hands(port=_own_port(server.url), supervisor=supervisor, restart=restart, dry_run=dry_run)


def _own_port(url: str) -> int | None:
    """The port whose connections may be closed: only where it is certainly this machine's."""
    where = place.parse(url)
    return where.port if where.path is None and place.always_here(where) else None
