"""Listening: a socket, uvicorn on it, and an orderly end."""

import socket
from collections.abc import Callable
from contextlib import suppress

import uvicorn

from volsched.engine.clock import Clock
from volsched.server.app import Api
from volsched.server.fan import RING
from volsched.server.guarding import is_loopback
from volsched.store.database import Database

GRACE_SECONDS = 5
"""How long requests may take to end once the server is told to."""
BEYOND_LOOPBACK = (
    'cannot listen on "{host}": the API knows no tokens and no TLS yet, and whoever reaches it may do everything; '
    "it is served on loopback only (--host 127.0.0.1). From elsewhere, use: ssh -L {port}:127.0.0.1:{port} HOST"
)


class ListenError(Exception):
    """The server cannot listen where it was told to; the message says what to do."""


def listen(host: str, port: int) -> socket.socket:
    """A socket on loopback; port 0 takes any that is free."""
    if not is_loopback(host):
        raise ListenError(BEYOND_LOOPBACK.format(host=host, port=port or "PORT"))
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise ListenError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}; choose another with --port"
        ) from None


def address(listening: socket.socket) -> str:
    """`http://127.0.0.1:8700`."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """Ends watches before it waits for requests to end: they would take an hour."""

    def __init__(self, api: Api) -> None:
        config = uvicorn.Config(
            api.app,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
            lifespan="on",
        )
        super().__init__(config)
        self._api = api

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._api.fan.stop()
        await super().shutdown(sockets)


def serve(
    database: Database,
    listening: socket.socket,
    *,
    clock: Clock,
    actor: str,
    zonal_upgrade: bool,
    committed: Callable[[], None] = lambda: None,
    ring_size: int = RING,
    started: Callable[[Server], None] = lambda _: None,
) -> Exception | None:
    """Serve until told to end; answers what it died of, if it did. In the main thread, Ctrl-C ends it.

    `started` gets the server, which ends once its `should_exit` is set.
    """
    deaths: list[Exception] = []

    def failed(error: Exception) -> None:
        deaths.append(error)
        server.should_exit = True

    api = Api(
        database,
        clock=clock,
        actor=actor,
        zonal_upgrade=zonal_upgrade,
        committed=committed,
        failed=failed,
        ring_size=ring_size,
    )
    server = Server(api)
    started(server)
    # uvicorn ends in good order first, and then raises the signal again.
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listening])
    return deaths[0] if deaths else None
