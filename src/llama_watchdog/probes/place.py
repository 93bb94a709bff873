"""Where a url leads on this machine: its port or socket path, and which of its host's addresses are ours.

What belongs here is reading the url and resolving its host; never who answers there.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil

_PORTS = {"http": 80, "https": 443}
_LOOPBACK = ("127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Place:
    """A url's end: a host and port, or the path of a unix socket. As text: "port 8080"."""

    host: str
    port: int
    path: Path | None = None

    def __str__(self) -> str:
        return f"port {self.port}" if self.path is None else str(self.path)


def parse(url: str) -> Place:
    """Raises ValueError where it is no http, https or unix url."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return Place("", 0, Path(parts.path))
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{url}: no http, https or unix url")
    return Place(parts.hostname, parts.port or _PORTS[parts.scheme])


def always_here(place: Place) -> frozenset[bytes] | None:
    """The packed addresses of a host that can only be this machine; None where it must be looked up."""
    if place.path is not None:
        return frozenset()
    if place.host == "localhost":
        return _packed(_LOOPBACK)
    try:
        address = ipaddress.ip_address(place.host)
    except ValueError:
        return None
    if address.is_unspecified:
        return _packed(text for text in _LOOPBACK if ipaddress.ip_address(text).version == address.version)
    return _packed([place.host]) if address.is_loopback else None


def look_up(place: Place) -> frozenset[bytes]:
    """Those of the host's packed addresses that are this machine's now: none for another machine.

    Asks the system's resolver for a name, and so can take long. Raises OSError where the name isn't known.
    """
    found = socket.getaddrinfo(place.host, None, type=socket.SOCK_STREAM)
    addresses = _packed(str(entry[4][0]) for entry in found)
    ours = _packed(
        entry.address
        for interface in psutil.net_if_addrs().values()
        for entry in interface
        if entry.family in (socket.AF_INET, socket.AF_INET6)
    )
    return frozenset(a for a in addresses if a in ours or ipaddress.ip_address(a).is_loopback)


def _packed(addresses: Iterable[str]) -> frozenset[bytes]:
    """4 or 16 bytes each, without an IPv6 zone; IPv4 written as IPv6 becomes IPv4."""
    packed = set()
    for text in addresses:
        address = ipaddress.ip_address(text.partition("%")[0])
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        packed.add((mapped or address).packed)
    return frozenset(packed)
