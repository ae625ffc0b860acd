"""A line between a process and its server that a test can cut, or let go silent."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

CHUNK = 65_536


@dataclass
class Line:
    """Listens on a port of its own and carries everything to where `dial` connects."""

    dial: Callable[[], socket.socket]
    _listening: socket.socket = field(init=False)
    _open: set[socket.socket] = field(default_factory=set)
    _heals: threading.Event = field(default_factory=threading.Event)
    carried: int = 0
    """Connections so far."""

    def __post_init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._heals.set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        port: int = self._listening.getsockname()[1]
        return port

    def cut(self) -> None:
        """End all connections at once, as a firewall does that was restarted."""
        for it in list(self._open):
            with suppress(OSError):
                it.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Nothing arrives and nothing is refused; what was under way then is cut."""
        self._heals.clear()
        try:
            yield
        finally:
            self.cut()
            self._heals.set()

    def close(self) -> None:
        self._listening.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        self._heals.wait()
        try:
            server = self.dial()
        except OSError:
            client.close()
            return
        self.carried += 1
        self._open |= {client, server}
        back = threading.Thread(target=self._pump, args=(server, client), daemon=True)
        back.start()
        self._pump(client, server)
        back.join()
        self._open -= {client, server}
        client.close()
        server.close()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK):
                self._heals.wait()
                target.sendall(data)
        for it in (source, target):
            with suppress(OSError):
                it.shutdown(socket.SHUT_RDWR)


def to_port(port: int) -> Callable[[], socket.socket]:
    return lambda: socket.create_connection(("127.0.0.1", port), timeout=None)


def to_file(path: str) -> Callable[[], socket.socket]:
    """A server that listens on a Unix socket."""

    def dial() -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.connect(path)
        return made

    return dial
