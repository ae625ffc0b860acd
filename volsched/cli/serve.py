"""Serving: `up`, the whole system in one process, and `serve`, the stack's single processes."""

import os
import signal
import threading
from collections.abc import Callable, Collection
from contextlib import ExitStack, closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from volsched.cli.console import Exit, fail, stderr
from volsched.cli.log_options import (
    LogFormatOption,
    LogLevelOption,
    VerboseOption,
    note_log_choice,
    start_logging,
)
from volsched.cli.operator import user
from volsched.cli.store_option import Db, opened
from volsched.library import whole_system
from volsched.log.database import Database
from volsched.objects.rules.admission import SYSTEM_NAMESPACES
from volsched.objects.submission import ensure_namespaces
from volsched.runtime.anchors import anchor_plan, anchoring
from volsched.runtime.clock import skew_from, system_clock
from volsched.runtime.fault_points import ArmingError, arm_from
from volsched.runtime.health_check import Heartbeat
from volsched.runtime.runner import RestartingSystem, looping, waking
from volsched.runtime.settings import Settings, configuration, read_settings
from volsched.runtime.system import Bell, ProcessRole, System
from volsched.scheduling.rules.configuration import Configuration, ConfigurationError
from volsched.workloads.controllers import Upkeep

if TYPE_CHECKING:
    from volsched.api.access.tls import Tls
    from volsched.api.limits import Limits
    from volsched.api.listener import Server

UP_EXAMPLES = """**Examples**

`volsched up` then, elsewhere, `kubectl -s http://127.0.0.1:8700 apply -f cluster.yaml`

`kubectl -s http://127.0.0.1:8700 get pods -A -w` follows along

`volsched up --host 0.0.0.0 --tls-cert server.crt --tls-key server.key --client-ca ca.crt` for other machines
"""
API_EXAMPLES = """**Examples**

`volsched serve api --port 8700` serves the API of a store; schedulers and workers run elsewhere
"""
SCHEDULER_EXAMPLES = """**Examples**

`volsched serve scheduler` places and binds pods; several may run on one store

`VOLSCHED_SCHEDULER_SHARE=2/4 volsched serve scheduler` is the second of four, and begins with its own pods
"""
CONTROLLER_EXAMPLES = """**Examples**

`volsched serve controller` completes bindings, provisions, reclaims and keeps StatefulSets; one of several acts

`volsched serve controller --without node-agent` where the nodes have agents of their own

`volsched serve controller --without provisioners --without stateful-sets`
"""


class Optional(StrEnum):
    """What may be left out."""

    NODE_AGENT = "node-agent"
    PROVISIONERS = "provisioners"
    ZONAL_UPGRADE = Upkeep.ZONAL_UPGRADE.value
    STATEFUL_SETS = Upkeep.STATEFUL_SETS.value
    EPHEMERAL_CLAIMS = Upkeep.EPHEMERAL_CLAIMS.value
    GARBAGE_COLLECTION = Upkeep.GARBAGE_COLLECTION.value
    STALE_NODES = Upkeep.STALE_NODES.value
    DISRUPTION_BUDGETS = Upkeep.DISRUPTION_BUDGETS.value
    NAMESPACES = Upkeep.NAMESPACES.value
    EXPIRY = Upkeep.EXPIRY.value


Without = Annotated[list[Optional] | None, typer.Option("--without", help="Leave this out; may be given often.")]
Config = Annotated[Path | None, typer.Option(help="The scheduler's configuration; else VOLSCHED_CONFIG.")]
Host = Annotated[str, typer.Option("--host", help="Where to listen; beyond loopback only with TLS.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes any that is free.")]
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
        help="Whose client certificates are believed; else VOLSCHED_CLIENT_CA_FILE. Without, tokens only.",
    ),
]

Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Refuse and misbehave as a real API server and its network do, to try a client; on loopback only.",
    ),
]
STRICT_LOOPBACK = (
    "--strict lets anybody order faults, so it is served without TLS and on loopback only; leave one out"
)

SIGNAL_SECONDS = 1.0
"""So late a signal may be noticed. The kernel may give it to another thread, above all where the process was
stopped when it came, and Python acts on it only when the main thread wakes: without an end to the wait, never."""
app = typer.Typer(help="Run one process of a stack.", no_args_is_help=True)


@app.command("api", epilog=API_EXAMPLES)
def api(
    db: Db = None,
    host: Host = "127.0.0.1",
    port: Port = 8700,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    client_ca: ClientCa = None,
    strict: Strict = False,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Serve the Kubernetes-style API, health and metrics; nothing is scheduled by this process."""
    note_log_choice(log_level, log_format, verbose)
    start_logging(serves=True)
    with opened(db, name="volsched api", makes=True) as database:
        where = ServedAddress(host, port, tls_cert, tls_key, client_ca, strict)
        _serve(database, where, None, configured(None))


@app.command("scheduler", epilog=SCHEDULER_EXAMPLES)
def scheduler(
    db: Db = None,
    config: Config = None,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Place pods and plan their bindings, until Ctrl-C. Workers carry them out; without Redis, this process."""
    note_log_choice(log_level, log_format, verbose)
    _work(
        db,
        ProcessRole.SCHEDULER,
        lambda database, bell: whole_system(database, config=config, bell=bell, roles=(ProcessRole.SCHEDULER,)),
    )


@app.command("controller", epilog=CONTROLLER_EXAMPLES)
def controller(
    db: Db = None,
    without: Without = None,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Run the PV controller, provisioners, small controllers and node agent, until Ctrl-C."""
    note_log_choice(log_level, log_format, verbose)
    _work(
        db,
        ProcessRole.CONTROLLER,
        lambda database, bell: whole_system(
            database, bell=bell, roles=(ProcessRole.CONTROLLER,), **_chosen(without or ())
        ),
    )


def up(
    db: Db = None,
    host: Host = "127.0.0.1",
    port: Port = 8700,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    client_ca: ClientCa = None,
    config: Config = None,
    without: Without = None,
    strict: Strict = False,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Run the whole system in one process: API, scheduler, controllers, workers, node agent, provisioners."""

    note_log_choice(log_level, log_format, verbose)
    start_logging(serves=True)

    def make(database: Database) -> System:
        return whole_system(database, config=config, **_chosen(without or ()))

    with opened(db, name="volsched up", makes=True) as database:
        try:
            make(database)
            plan = anchor_plan(read_settings())
        except ConfigurationError as error:
            fail(Exit.USAGE, *error.problems)
        where = ServedAddress(host, port, tls_cert, tls_key, client_ca, strict)
        with anchoring(database, plan, system_clock):
            _serve(database, where, lambda: make(database), configured(config))


def _work(db: str | None, role: ProcessRole, make: Callable[[Database, Bell | None], System]) -> None:
    """One role of the system, repeated until it is told to end; SIGTERM ends it as Ctrl-C does."""
    arm_process()
    start_logging(serves=True)
    ended = threading.Event()
    deaths: list[Exception] = []

    def failed(error: Exception) -> None:
        deaths.append(error)
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with opened(db, name=f"volsched {role}", makes=True) as database:
        bell = bell_of_settings(database)
        try:
            make(database, bell)
            plan = anchor_plan(read_settings()) if role is ProcessRole.CONTROLLER else None
        except ConfigurationError as error:
            fail(Exit.USAGE, *error.problems)
        _serve_metrics(database)
        standing = RestartingSystem(lambda: make(database, bell))
        beating = Heartbeat(read_settings().heartbeat_file).around(standing.step)
        with (
            closing(standing),
            looping(beating, clock=system_clock, name="volsched-system", failed=failed) as loop,
            waking(database, loop),
            anchoring(database, plan, system_clock),
        ):
            stderr.print("at work until Ctrl-C")
            while not ended.wait(SIGNAL_SECONDS):
                pass
    if deaths:
        fail(Exit.FAILURE, f"it ended: {deaths[0]}; what was acknowledged is kept, start it again")


def _serve_metrics(database: Database) -> None:
    """What this process measures of itself, where the settings say so: the API's process cannot know it."""
    port = read_settings().metrics_port
    if port is None:
        return
    try:
        from volsched.api.health import serve_process_metrics
    except ModuleNotFoundError as error:
        fail(Exit.USAGE, f"{error.name} is not installed; run: pip install 'volsched[server]'")
    try:
        serve_process_metrics(database, port)
    except OSError as error:
        fail(Exit.USAGE, f"VOLSCHED_METRICS_PORT: port {port} cannot be had ({error.strerror}); name another")


def arm_process() -> None:
    """What a drill has in mind with this process."""
    try:
        arm_from(os.environ)
        skew_from(os.environ)
    except ArmingError as error:
        fail(Exit.USAGE, str(error))


def _chosen(without: Collection[Optional]) -> dict[str, Any]:
    """What `whole_system` is told of what is left out."""
    return {
        "node_agent": Optional.NODE_AGENT not in without,
        "other_agents": Optional.NODE_AGENT in without,
        "provisioners": () if Optional.PROVISIONERS in without else None,
        "without": {it for it in Upkeep if it.value in without},
    }


def bell_of_settings(database: Database) -> Bell | None:
    """What wakes the workers, where the settings name a Redis; without one, this process is its own worker."""
    redis = read_settings().redis_url
    if redis is None:
        return None
    try:
        from volsched.binding.wakeup import RedisBell
    except ModuleNotFoundError as error:
        fail(Exit.USAGE, f"{error.name} is not installed; run: pip install 'volsched[stack]'")
    return RedisBell(redis, database, system_clock)


def configured(config: Path | None) -> Configuration:
    """What the extender decides by: the same as the scheduler."""
    try:
        return configuration(config)
    except ConfigurationError as error:
        fail(Exit.USAGE, *error.problems)


@dataclass(frozen=True, slots=True)
class ServedAddress:
    """Where the API listens, and the files that it proves itself with."""

    host: str
    port: int
    certificate: Path | None
    key: Path | None
    client_ca: Path | None
    strict: bool = False

    def tls(self) -> "Tls | None":
        """None: it is served without. What the command line leaves open, the settings say."""
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
                "TLS needs both --tls-cert and --tls-key, also for --client-ca; make them with: "
                "volsched certs server HOST",
            )
        try:
            return load_tls(certificate, key, client_ca)
        except TlsError as error:
            fail(Exit.USAGE, str(error))


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


def _serve(
    database: Database, where: ServedAddress, make: Callable[[], System] | None, decides: Configuration
) -> None:
    arm_process()
    try:
        # Only these commands need what the extra brings.
        from volsched.api.listener import ListenError, address, check_access, listen, serve

        tls = where.tls()
    except ModuleNotFoundError as error:
        fail(Exit.USAGE, f"{error.name} is not installed; run: pip install 'volsched[server]'")
    if where.strict and tls is not None:
        fail(Exit.USAGE, STRICT_LOOPBACK)
    servers: list[Server] = []
    deaths: list[Exception] = []

    def failed(error: Exception) -> None:
        deaths.append(error)
        for server in servers:
            server.should_exit = True

    # uvicorn raises a signal again once it has ended in good order: SIGTERM then ends us as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as stack:
        try:
            check_access(database, where.host, tls, now=system_clock())
            listening = stack.enter_context(closing(listen(where.host, where.port, tls)))
        except ListenError as error:
            fail(Exit.USAGE, str(error))
        url = address(listening, tls)
        hint = (
            f"kubectl -s {url} get pods -A"
            if tls is None
            else f"volsched kubeconfig --server https://HOST:{url.rpartition(':')[2]} …"
        )
        stderr.print(f"serving on {url} until Ctrl-C; try: {hint}")
        wake: Callable[[], None] = lambda: None  # noqa: E731 - replaced where there is somebody to be woken
        if make is not None:
            standing = RestartingSystem(make)
            stack.callback(standing.close)
            loop = looping(standing.step, clock=system_clock, name="volsched-system", failed=failed)
            wake = stack.enter_context(loop).wake
        ensure_namespaces(database, SYSTEM_NAMESPACES, actor=f"api/{user()}", now=system_clock())
        died = serve(
            database,
            listening,
            clock=system_clock,
            actor=f"api/{user()}",
            zonal_upgrade=not Settings().disable_zonal_upgrade,
            committed=wake,
            configuration=decides,
            started=servers.append,
            tls=tls,
            limits=limits_of_settings(),
            strict=where.strict,
        )
    if died is not None or deaths:
        fail(Exit.FAILURE, f"the server ended: {died or deaths[0]}; what was acknowledged is kept, start it again")
