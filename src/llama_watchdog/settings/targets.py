"""What can be watched, and how it is named: urls, units, containers, processes, listening addresses.

What belongs here: the checks that turn such a name into its one normal form. All raise ValueError with what
is allowed, and never repeat a url, which may hold a password.
"""

from __future__ import annotations

import ipaddress
import posixpath
import re

from .errors import shown

_SCHEMES = "http://, https:// or unix://"
_DEFAULT_PORTS = {"http": 80, "https": 443}
_SPLIT = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)")
_AUTHORITY = re.compile(r"(\[[^\]]*\]|[^\[\]:]*)(?::(\d*))?")
_HOST = re.compile(r"[a-z0-9_]([a-z0-9._-]*[a-z0-9.])?")
_SOCKET_PATH_BYTES = 107  # sun_path less its closing NUL, unix(7)

# What one process listening on this machine can be reached by; 0.0.0.0 and :: connect to the loopback too.
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0", "::"})  # noqa: S104 - compared, not bound

_SERVER = re.compile(r"[A-Za-z0-9_.-]{1,64}")
# A leading dash would make it an option of systemctl's.
_UNIT = re.compile(r"[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]*")
_NO_SERVICE = re.compile(r".*\.(socket|target|timer|path|mount|automount|swap|slice|scope|device)", re.DOTALL)
_UNIT_CHARS = 255
_CONTAINER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}")


def server_name(value: str) -> str:
    """The name of a server, as `[servers.NAME]` gives it."""
    if not _SERVER.fullmatch(value) or not value.strip("."):  # the names of directories
        raise ValueError("is no server's name: use 1 to 64 of letters, digits, '_', '.' and '-'")
    return value


def url(value: str) -> str:
    """`http://host:port`, `https://host:port` or `unix:///path`: lower case, and without a closing slash."""
    match = _SPLIT.fullmatch(value)
    if match is None or not value.isprintable() or " " in value:
        raise ValueError(f"must begin with {_SCHEMES}, as in http://127.0.0.1:8080")
    scheme, rest = match[1].lower(), match[2]
    if scheme == "unix":
        return f"unix://{_socket(rest)}"
    if scheme not in _DEFAULT_PORTS:
        raise ValueError(f"must begin with {_SCHEMES}, not with {shown(scheme + '://')}")
    if "@" in rest:
        raise ValueError("may hold no credentials: use api_key_file or headers")
    authority, _, path = rest.partition("/")
    if path or "?" in authority or "#" in authority:
        raise ValueError(
            f"must end after the port: no path, query or fragment, as in {scheme}://127.0.0.1:8080"
        )
    host, port = host_and_port(authority)
    return f"{scheme}://{host}" + ("" if port is None else f":{port}")


def _socket(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError("must name a socket by its absolute path, as in unix:///run/llama.sock")
    if not 1 < len(path.encode()) <= _SOCKET_PATH_BYTES:
        raise ValueError(f"must name a socket by a path of 2 to {_SOCKET_PATH_BYTES} bytes")
    return path


def host_and_port(authority: str) -> tuple[str, int | None]:
    """The host, in lower case and IPv6 in brackets, and the port if one is given."""
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        raise ValueError("must be host:port, with an IPv6 address in brackets, as in [::1]:8080")
    host, port = match[1].lower(), match[2]
    if host.startswith("["):
        try:
            ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            raise ValueError("holds no IPv6 address in its brackets, as [::1]:8080 does") from None
    elif not _HOST.fullmatch(host):
        raise ValueError("must name a host, by name or address, as 127.0.0.1:8080 does")
    if not port:
        return host, None
    if len(port) > 5 or not 0 < int(port) <= 65535:
        raise ValueError("must have a port from 1 to 65535")
    return host, int(port)


def listens_at(url: str) -> str:
    """What a normal url reaches, alike for every spelling of it: two servers may not share it."""
    scheme, _, rest = url.partition("://")
    if scheme == "unix":
        return posixpath.normpath(rest)
    host, port = host_and_port(rest)
    host = host.strip("[]").removesuffix(".")
    try:
        address = ipaddress.ip_address(host)
        host = str(getattr(address, "ipv4_mapped", None) or address)
    except ValueError:
        pass
    return f"{'127.0.0.1' if host in _LOOPBACK else host} port {port or _DEFAULT_PORTS[scheme]}"


def on_loopback(listen: str) -> bool:
    """Whether a listening address can be reached from this machine alone."""
    host = host_and_port(listen)[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(value: str) -> str:
    """`host:port` to listen on."""
    host, port = host_and_port(value)
    if port is None:
        raise ValueError("must be host:port, as in 127.0.0.1:9180")
    return f"{host}:{port}"


def unit(value: str) -> str:
    """A service unit of systemd's, with its suffix."""
    name = value
    if _NO_SERVICE.fullmatch(value):
        raise ValueError(f"{shown(value)} is not a service: use a unit such as llama-server.service")
    if not value.endswith(".service"):
        name = f"{value}.service"
    if not _UNIT.fullmatch(name) or len(name) > _UNIT_CHARS or name.startswith((".service", "@")):
        raise ValueError(f"{shown(value)} is no unit's name: use one such as llama-server.service")
    if name.endswith("@.service"):
        raise ValueError(
            f"{shown(value)} is a template: name an instance of it, as in llama-server@chat.service"
        )
    return name


def container(value: str) -> str:
    """A container's name or id."""
    if not _CONTAINER.fullmatch(value):
        raise ValueError(f"{shown(value)} is no container's name: use letters, digits, '_', '.' and '-'")
    return value


def process_name(value: str) -> str:
    """The name of an executable, as ps shows it."""
    if not value.strip() or "/" in value or not value.isprintable():
        raise ValueError("must be the bare name of an executable, such as llama-server")
    return value
