"""Where a llama-server serves, for a watch that stands so near that nobody needs to tell it.

What belongs here: from its flags, its variables and its listening sockets to one url, or to none rather than
to a guess.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Iterable, Mapping, Sequence

from llama_watchdog.probes import sockets
from llama_watchdog.probes.procfs import ProcessFolder

_FLAGS = {"--host": "host", "--port": "port", "--ssl-key-file": "key", "--ssl-cert-file": "certificate"}
_VARIABLES = {
    "LLAMA_ARG_HOST": "host",
    "LLAMA_ARG_PORT": "port",
    "LLAMA_ARG_SSL_KEY_FILE": "key",
    "LLAMA_ARG_SSL_CERT_FILE": "certificate",
}
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where it listens, not where we do


def stated_url(arguments: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """The url at which a server with this command line and environment serves, as a client here reaches it.

    None where no port is stated: 8080 of old, 9931 in newer builds. Of several hosts, parted by commas as
    newer builds take them, the first. The host is not checked for being one.
    """
    said = _said(arguments, environment)
    host = said.get("host", "").split(",")[0].strip() or "127.0.0.1"
    if host.endswith(".sock"):
        return f"unix://{host}" if host.startswith("/") else None
    port = said.get("port", "").strip()
    if not (port.isascii() and port.isdecimal() and 0 < int(port) <= 65535):
        return None
    return _url(_LOOPBACK.get(host, host), int(port), secure=_is_secure(said))


def served_url(folder: ProcessFolder) -> str | None:
    """As stated; else by the one port on which the process listens, as far as we may see. Reads /proc."""
    arguments, environment = folder.arguments(), folder.environment() or {}
    stated = stated_url(arguments, environment)
    held, listening = folder.sockets(), sockets.tcp()
    if stated is not None or not held or listening is None:
        return stated
    own = sorted((entry for entry in listening if entry.inode in held), key=lambda entry: len(entry.address))
    if len({entry.port for entry in own}) != 1:
        return None
    family = socket.AF_INET if len(own[0].address) == 4 else socket.AF_INET6
    host = socket.inet_ntop(family, own[0].address)
    return _url(_LOOPBACK.get(host, host), own[0].port, secure=_is_secure(_said(arguments, environment)))


def _said(arguments: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The last flag, else the variable, as llama-server takes them."""
    said = {option: environment[name] for name, option in _VARIABLES.items() if name in environment}
    rest: Iterable[str] = iter(arguments[1:])
    for argument in rest:
        name, equals, value = argument.partition("=")
        option = _FLAGS.get(name.replace("_", "-"))
        if option is not None:
            said[option] = value if equals else next(iter(rest), "")
    return said


def _is_secure(said: Mapping[str, str]) -> bool:
    """Whether it speaks TLS: with a key and a certificate, and no sooner."""
    return bool(said.get("key") and said.get("certificate"))


def _url(host: str, port: int, *, secure: bool) -> str:
    with contextlib.suppress(ValueError):  # a name
        host = f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
    return f"{'https' if secure else 'http'}://{host}:{port}"
