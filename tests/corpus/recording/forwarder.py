"""A TCP proxy before a server, as a container engine or a web server would be one."""

from __future__ import annotations

import subprocess


class Forwarder:
    """A TCP proxy in a process of its own, with another name than the server's."""

    def __init__(self, behind: int) -> None:
        socat = f"""
import socket, threading
behind = ("127.0.0.1", {behind})
def pump(a, b):
    try:
        while data := a.recv(65536):
            b.sendall(data)
    except OSError:
        pass
    for s in (a, b):
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
door = socket.create_server(("127.0.0.1", 0))
print(door.getsockname()[1], flush=True)
while True:
    client, _ = door.accept()
    server = socket.create_connection(behind)
    for pair in ((client, server), (server, client)):
        threading.Thread(target=pump, args=pair, daemon=True).start()
"""
        self._process = subprocess.Popen(["python3", "-c", socat], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait(timeout=10)
