"""A process that serves the API: its options on the command line, and how it begins and ends.

`up`, `serve api`, `observe` and `attach` differ in what runs beside the API, and in nothing else.
"""

import signal
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from volsched.cli.console import Exit, fail, stderr
from volsched.cli.operator import user
from volsched.log.database import Database
from volsched.runtime.clock import system_clock
from volsched.runtime.extras import missing
from volsched.runtime.runner import Failed
from volsched.runtime.settings import read_settings
from volsched.scheduling.rules.configuration import Configuration

if TYPE_CHECKING:
    from volsched.api.access.tls import Tls
    from volsched.api.limits import Limits
    from volsched.api.listener import Server

Host = Annotated[str, typer.Option("--host", help="Where to listen; beyond loopback only with TLS.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes any free port.")]
TlsCert = Annotated[
    Path | None,
    typer.Option(
        "--tls-cert", metavar="FILE", help="The server's certificate, in PEM; else VOLSCHED_TLS_CERT_FILE."
    ),
]
TlsKey = Annotated[
    Path | None, typer.Option("--tls-key", metavar="FILE", help="Its private key; else VOLSCHED_TLS_KEY_FILE.")
]
ClientCa = Annotated[
    Path | None,
    typer.Option(
        "--client-ca",
        metavar="FILE",
        help="The CA of client certificates; else VOLSCHED_CLIENT_CA_FILE. Without it, tokens only.",
    ),
]
STRICT_LOOPBACK = (
    "--strict lets any caller inject faults, so it is served without TLS and on loopback only; leave one out"
)
Begin = Callable[[ExitStack, Failed], Callable[[], None]]
"""Starts what runs beside the API until the stack is closed; returns what to call after a commit of the API."""


def require_server() -> None:
    """Raise ModuleNotFoundError, which says what to install, before a base install creates a useless store."""
    import_module("uvicorn")


def nothing_beside(_stack: ExitStack, _failed: Failed) -> Callable[[], None]:
    return lambda: None


@dataclass(frozen=True, slots=True)
class ServedAddress:
    """Where the API listens, and its certificate."""

    host: str
    port: int
    certificate: Path | None
    key: Path | None
    client_ca: Path | None
    strict: bool = False

    def tls(self) -> "Tls | None":
        """None: the API is served without TLS. The settings fill in what the command line leaves open."""
        from volsched.api.access.tls import TlsError, load_tls

        settings = read_settings()
        certificate = self.certificate or settings.tls_cert_file
        key = self.key or settings.tls_key_file
        client_ca = self.client_ca or settings.client_ca_file
        if certificate is None and key is None and client_ca is None:
            return None
        if certificate is None or key is None:
            fail(
                Exit.USAGE,
                "TLS needs both --tls-cert and --tls-key, also for --client-ca; create them with: "
                "volsched certs server HOST",
            )
        try:
            return load_tls(certificate, key, client_ca)
        except TlsError as error:
            fail(Exit.USAGE, str(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiProcess:
    database: Database
    where: ServedAddress
    configuration: Configuration
    ready_line: Callable[[str], str]
    """Builds the line that is printed once it listens, from its URL."""
    failure_line: str
    """The message of a failure; `{}` stands for the reason."""
    begin: Begin = nothing_beside
    zonal_upgrade: bool = False
    follows: bool = False
    """The objects belong to a foreign cluster: they are only followed here, and written there."""
    reserves: bool = True
    binds: bool = True
    """Whether reservations are accepted, and whether a process carries out what the extender binds."""

    def run(self) -> None:
        """Serve until Ctrl-C or SIGTERM; a failure of any part ends the command."""
        try:
            # Only these commands need the packages of the extra.
            from volsched.api.listener import ListenError, address, check_access, listen, serve

            tls = self.where.tls()
        except ModuleNotFoundError as error:
            fail(Exit.USAGE, missing(error.name, "server"))
        if self.where.strict and tls is not None:
            fail(Exit.USAGE, STRICT_LOOPBACK)
        servers: list[Server] = []
        deaths: list[Exception] = []

        def failed(error: Exception) -> None:
            deaths.append(error)
            for server in servers:
                server.should_exit = True

        # uvicorn raises a signal again after its graceful shutdown: SIGTERM then ends us as Ctrl-C does.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with ExitStack() as stack:
            try:
                check_access(self.database, self.where.host, tls, now=system_clock())
                listening = stack.enter_context(closing(listen(self.where.host, self.where.port, tls)))
            except ListenError as error:
                fail(Exit.USAGE, str(error))
            wake = self.begin(stack, failed)
            stderr.print(self.ready_line(address(listening, tls)))
            died = serve(
                self.database,
                listening,
                clock=system_clock,
                actor=f"api/{user()}",
                zonal_upgrade=self.zonal_upgrade,
                committed=wake,
                configuration=self.configuration,
                started=servers.append,
                tls=tls,
                limits=limits_of_settings(),
                strict=self.where.strict,
                read_only=self.follows,
                follows=self.follows,
                reserves=self.reserves,
                binds=self.binds,
            )
        if died is not None or deaths:
            fail(Exit.FAILURE, self.failure_line.format(died or deaths[0]))


def limits_of_settings() -> "Limits":
    from volsched.api.limits import Limits

    settings = read_settings()
    return Limits(
        requests_per_second=settings.requests_per_second,
        body_bytes_per_second=settings.body_bytes_per_second,
        watches=settings.most_watches,
        watches_per_caller=settings.most_watches_per_caller,
        waiting_bytes=settings.most_waiting_bytes,
        body_bytes=settings.most_body_bytes,
        hypothesis_seconds=settings.hypothesis_seconds,
        long_seconds=settings.long_seconds,
        header_seconds=settings.header_seconds,
        body_seconds=settings.body_seconds,
        keep_alive_seconds=settings.keep_alive_seconds,
    )
