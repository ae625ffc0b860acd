"""Listening: a socket, uvicorn on it, and an orderly shutdown."""

import asyncio
import math
import socket
from collections.abc import Callable
from contextlib import suppress

import uvicorn

from volsched.api.access.hosts import is_loopback
from volsched.api.access.tls import Tls
from volsched.api.app import Api
from volsched.api.connection import Connection, LimitsConfig
from volsched.api.limits import DEFAULT_LIMITS, Limits
from volsched.api.watch_cache import RING
from volsched.log.database import Database
from volsched.log.tokens import usable_tokens
from volsched.runtime.clock import Clock
from volsched.scheduling.rules.configuration import DEFAULT, Configuration

GRACE_SECONDS = 5
"""How long requests may take to end after a shutdown request."""
TICK_SECONDS = 1.0
BEYOND_LOOPBACK = (
    'cannot listen on "{host}" without TLS: every caller would be an administrator. Create certificates with '
    '"volsched certs init" and "volsched certs server HOST" and give them with --tls-cert, --tls-key and '
    "--client-ca, or stay on loopback (--host 127.0.0.1)"
)
NO_AUTHENTICATION = (
    'cannot listen on "{host}": no caller could authenticate. Give an authority of client certificates with '
    '--client-ca, or issue a token with "volsched token create NAME --role ROLE"'
)


class ListenError(Exception):
    """The server cannot listen at the given address; the message says what to do."""


def check_access(database: Database, host: str, tls: Tls | None, *, now: int) -> None:
    """Beyond loopback there must be TLS, and with TLS a way to authenticate; raises ListenError."""
    if tls is None:
        if not is_loopback(host):
            raise ListenError(BEYOND_LOOPBACK.format(host=host))
        return
    if not tls.client_certificates:
        with database.read() as connection:
            if not usable_tokens(connection, now=now):
                raise ListenError(NO_AUTHENTICATION.format(host=host))


def listen(host: str, port: int, tls: Tls | None = None) -> socket.socket:
    """A socket, on loopback where there is no TLS; port 0 takes any free one."""
    if tls is None and not is_loopback(host):
        raise ListenError(BEYOND_LOOPBACK.format(host=host))
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise ListenError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}; choose another with --port"
        ) from None


def address(listening: socket.socket, tls: Tls | None = None) -> str:
    """`http://127.0.0.1:8700`."""
    host, port = listening.getsockname()[:2]
    scheme = "http" if tls is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class Server(uvicorn.Server):
    """Ends watches before it waits for requests: they would take an hour. Without requests, it sleeps."""

    _is_over = False
    _wake: Callable[[], object] = staticmethod(lambda: None)

    @property
    def should_exit(self) -> bool:
        return self._is_over

    @should_exit.setter
    def should_exit(self, is_over: bool) -> None:
        """Set in any thread, and by signals."""
        self._is_over = is_over
        if is_over:
            self._wake()

    async def main_loop(self) -> None:
        """uvicorn's own loop polls `should_exit` ten times a second; the Date header needs a tick a second."""
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        self._wake = lambda: loop.is_closed() or loop.call_soon_threadsafe(over.set)
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), TICK_SECONDS)

    def __init__(self, api: Api, tls: Tls | None = None) -> None:
        config = LimitsConfig(
            api.app,
            http=Connection,
            # There is nothing to upgrade to.
            ws="none",
            ssl_context_factory=None if tls is None else lambda *_: tls.context,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
            lifespan="on",
            timeout_keep_alive=math.ceil(api.limits.keep_alive_seconds),
        )
        config.limits = api.limits
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
    configuration: Configuration = DEFAULT,
    started: Callable[[Server], None] = lambda _: None,
    tls: Tls | None = None,
    limits: Limits = DEFAULT_LIMITS,
    strict: bool = False,
    read_only: bool = False,
    follows: bool = False,
    reserves: bool = True,
    binds: bool = True,
) -> Exception | None:
    """Serve until stopped; returns the fatal error, if there was one. In the main thread, Ctrl-C stops it.

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
        configuration=configuration,
        hosts=None if tls is None else tls.hosts,
        limits=limits,
        strict=strict,
        read_only=read_only,
        follows=follows,
        reserves=reserves,
        binds=binds,
    )
    server = Server(api, tls)
    started(server)
    # uvicorn shuts down first, and then raises the signal again.
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listening])
    return deaths[0] if deaths else None
