"""The kernel's socket tables, with real sockets."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from llama_watchdog.probes import sockets
from llama_watchdog.probes.sockets import TcpSocket

V4, V6 = b"\x7f\0\0\1", bytes(15) + b"\1"
ANY_V4, ANY_V6 = bytes(4), bytes(16)
OTHER = b"\x0a\0\0\5"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        yield bound


def inode(end: socket.socket) -> int:
    return os.fstat(end.fileno()).st_ino


def listening(address: bytes) -> TcpSocket:
    return TcpSocket(True, address, 8080, bytes(len(address)), 0, 0, 1)


ME, ANOTHER = frozenset({1000}), frozenset({33})


@pytest.mark.parametrize(
    ("table", "dialled"),
    [
        ([listening(V4)], False),
        ([TcpSocket(False, V4, 8080, V4, 40000, 1000, 2), listening(V4)], False),  # accepted
        ([TcpSocket(False, V4, 40001, OTHER, 50052, 1000, 2), listening(V4)], True),
        (None, True),  # nobody can say that it has none
    ],
)
def test_who_has_dialled(
    monkeypatch: pytest.MonkeyPatch, table: list[TcpSocket] | None, *, dialled: bool
) -> None:
    monkeypatch.setattr(sockets, "tcp", lambda **_: table)
    assert sockets.dials(ME) is dialled
    assert sockets.dials(ANOTHER) is (table is None)


def test_every_connection_can_be_listed(listener: socket.socket) -> None:
    with socket.create_connection(listener.getsockname()) as client:
        own = client.getsockname()[1]
        table = sockets.tcp(everything=True)
    assert table is not None
    assert own in {entry.port for entry in table if not entry.listening}


def test_a_listener_and_its_connections(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)) as client:
        accepted, (_, peer_port) = listener.accept()
        with accepted:
            table = sockets.tcp(port=port)
            outgoing = sockets.tcp(peer_port=port)
            assert table is not None
            assert sorted(table) == [
                TcpSocket(False, V4, port, V4, peer_port, os.getuid(), inode(accepted)),
                TcpSocket(True, V4, port, ANY_V4, 0, os.getuid(), inode(listener)),
            ]
            assert outgoing == [TcpSocket(False, V4, peer_port, V4, port, os.getuid(), inode(client))]


def test_a_connection_that_is_not_accepted_yet_is_a_client(listener: socket.socket) -> None:
    """A wedged server accepts nobody: those who wait in its queue are clients all the same."""
    port = listener.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)):
        table = sockets.tcp(port=port)
    assert table is not None
    assert [entry.inode for entry in table if not entry.listening] == [0]


def test_all_listeners(listener: socket.socket) -> None:
    table = sockets.tcp()
    assert table is not None
    assert all(entry.listening for entry in table)
    assert inode(listener) in {entry.inode for entry in table}


def test_without_the_right_to_ask_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under RestrictAddressFamilies= without AF_NETLINK."""

    def refuse(*_: object) -> None:
        raise OSError(97, "Address family not supported by protocol")

    monkeypatch.setattr(socket, "socket", refuse)
    assert sockets.tcp(port=8080) is None


@pytest.mark.parametrize(
    ("bound", "wanted", "served"),
    [
        ([V4, ANY_V4], {V4}, [V4]),  # the exact one is stronger
        ([ANY_V4, ANY_V6], {V4}, [ANY_V4]),
        ([ANY_V6], {V4}, [ANY_V6]),  # :: serves IPv4 as well
        ([ANY_V4], {V6}, []),
        ([ANY_V4, V6], {V4, V6}, [V6]),  # localhost
        ([OTHER], {V4}, []),
        ([OTHER, ANY_V4], {OTHER}, [OTHER]),
        ([], {V4}, []),
    ],
)
def test_which_listener_a_connection_gets_to(
    bound: list[bytes], wanted: set[bytes], served: list[bytes]
) -> None:
    table = [listening(address) for address in bound]
    assert [entry.address for entry in sockets.listeners(table, frozenset(wanted))] == served


def test_clients_of_a_neighbour_on_another_address_are_not_counted() -> None:
    """Two servers can have the same port on two addresses."""
    table = [listening(V4), listening(OTHER)]
    table += [TcpSocket(False, OTHER, 8080, OTHER, 50000, 0, 2), TcpSocket(False, V4, 8080, V4, 50001, 0, 3)]
    assert sockets.clients(table, [table[0]]) == 1
    assert sockets.clients(table, [listening(ANY_V4)]) == 2
