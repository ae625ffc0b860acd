"""Serving: `up`, the whole system in one process, and `serve`, the stack's single processes."""

import os
import signal
import threading
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from volsched.cli.api_process import (
    ApiProcess,
    ClientCa,
    Host,
    Port,
    ServedAddress,
    TlsCert,
    TlsKey,
    require_server,
)
from volsched.cli.attachment import AttachMode, TakeOver, attachment_to
from volsched.cli.console import Exit, fail, stderr
from volsched.cli.log_options import (
    LogFormatOption,
    LogLevelOption,
    VerboseOption,
    note_log_choice,
    start_logging,
)
from volsched.cli.observe import Context, Kubeconfig
from volsched.cli.operator import user
from volsched.cli.store_option import Db, opened
from volsched.kube.meta import CLUSTER_SCHEDULERS
from volsched.library import whole_system
from volsched.log.database import Database
from volsched.log.observed_cluster import attached_cluster
from volsched.objects.rules.admission import SYSTEM_NAMESPACES
from volsched.objects.submission import ensure_namespaces
from volsched.runtime.anchors import anchor_plan, anchoring
from volsched.runtime.clock import skew_from, system_clock
from volsched.runtime.extras import missing
from volsched.runtime.fault_points import ArmingError, arm_from
from volsched.runtime.health_check import Heartbeat
from volsched.runtime.runner import Failed, RestartingSystem, looping, waking
from volsched.runtime.settings import Settings, configuration, read_settings
from volsched.runtime.system import Bell, ProcessRole, System
from volsched.scheduling.rules.configuration import Configuration, ConfigurationError
from volsched.workloads.controllers import Upkeep

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

`volsched serve scheduler --cluster own --context prod` places pods of a real cluster; Celery workers with
`VOLSCHED_ATTACHED_MODE=own` carry it out
"""
CONTROLLER_EXAMPLES = """**Examples**

`volsched serve controller` completes bindings, provisions, reclaims and keeps StatefulSets; one of several acts

`volsched serve controller --without node-agent` where the nodes have agents of their own

`volsched serve controller --without provisioners --without stateful-sets`
"""


class OptionalPart(StrEnum):
    """Parts of the controller process that may be left out."""

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


Without = Annotated[list[OptionalPart] | None, typer.Option("--without", help="Leave this out; may be repeated.")]
Config = Annotated[Path | None, typer.Option(help="The scheduler's configuration; else VOLSCHED_CONFIG.")]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Refuse and misbehave as a real API server and its network do, to test a client; on loopback only.",
    ),
]
ActsOn = Annotated[
    AttachMode | None,
    typer.Option(
        "--cluster",
        help="Act on a real cluster, as attach --mode does, in place of the store's own objects; else "
        "VOLSCHED_ATTACHED_MODE, which workers read too.",
    ),
]

SIGNAL_SECONDS = 1.0
"""How late a signal may be noticed. The kernel may give it to another thread, above all if the process was stopped
when it came, and Python acts on it only when the main thread wakes: without a timeout, never."""
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
    require_server()
    note_log_choice(log_level, log_format, verbose)
    start_logging(serves=True)
    with opened(db, name="volsched api", creates=True) as database:
        where = ServedAddress(host, port, tls_cert, tls_key, client_ca, strict)
        _serve(database, where, None, read_configuration(None))


@app.command("scheduler", epilog=SCHEDULER_EXAMPLES)
def scheduler(
    db: Db = None,
    config: Config = None,
    cluster: ActsOn = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    take_over_default_scheduler: TakeOver = False,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Place pods and plan their bindings, until Ctrl-C. Workers carry them out; without Redis, this process."""
    note_log_choice(log_level, log_format, verbose)
    start_logging(serves=True)
    settings = read_settings()
    mode = cluster or (None if settings.attached_mode is None else AttachMode(settings.attached_mode))
    if mode is AttachMode.advise:
        fail(Exit.USAGE, "an adviser schedules nothing; run volsched attach --mode advise instead")
    if mode is None:
        if kubeconfig is not None or context is not None or take_over_default_scheduler:
            fail(Exit.USAGE, "a cluster is given, but not what to do there: give --cluster own or gate")
        _work(
            db,
            ProcessRole.SCHEDULER,
            lambda database, bell: nullcontext(
                lambda: whole_system(database, config=config, bell=bell, roles=(ProcessRole.SCHEDULER,))
            ),
        )
        return
    attachment = attachment_to(
        kubeconfig or settings.cluster_kubeconfig,
        context or settings.cluster_context,
        mode,
        takes_over_default=take_over_default_scheduler,
    )
    with closing(attachment.cluster):
        configuration = read_configuration(config)
        _work(
            db,
            ProcessRole.SCHEDULER,
            lambda database, bell: attachment.systems(database, configuration, bell),
            attachment.cluster.wake_on_news,
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
        lambda database, bell: nullcontext(
            lambda: whole_system(database, bell=bell, roles=(ProcessRole.CONTROLLER,), **_left_out(without or ()))
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
    require_server()
    note_log_choice(log_level, log_format, verbose)
    start_logging(serves=True)

    def make(database: Database) -> System:
        # In place of a real cluster it is that cluster's scheduler, and leaves our pods to the attached process.
        names = CLUSTER_SCHEDULERS if strict else None
        return whole_system(database, config=config, names=names, **_left_out(without or ()))

    with opened(db, name="volsched up", creates=True) as database:
        try:
            make(database)
            plan = anchor_plan(read_settings())
        except ConfigurationError as error:
            fail(Exit.USAGE, *error.problems)
        where = ServedAddress(host, port, tls_cert, tls_key, client_ca, strict)
        with anchoring(database, plan, system_clock):
            _serve(database, where, lambda: make(database), read_configuration(config))


Systems = Callable[[Database, Bell | None], AbstractContextManager[Callable[[], System]]]
"""Creates systems on a store while the context lasts."""


def _work(
    db: str | None,
    role: ProcessRole,
    systems: Systems,
    wake_on_news: Callable[[Callable[[], None]], None] = lambda _: None,
) -> None:
    """Run one role of the system until it is stopped; SIGTERM ends it as Ctrl-C does.

    `wake_on_news` takes the function that wakes the role for news other than commits.
    """
    arm_process()
    start_logging(serves=True)
    ended = threading.Event()
    deaths: list[Exception] = []

    def failed(error: Exception) -> None:
        deaths.append(error)
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with (
        opened(db, name=f"volsched {role}", creates=True) as database,
        systems(database, bell_of_settings(database)) as make,
    ):
        try:
            make()
            plan = anchor_plan(read_settings()) if role is ProcessRole.CONTROLLER else None
        except ConfigurationError as error:
            fail(Exit.USAGE, *error.problems)
        _serve_metrics(database)
        system = RestartingSystem(make)
        step = Heartbeat(read_settings().heartbeat_file).around(system.step)
        with (
            closing(system),
            looping(
                step, clock=system_clock, name="volsched-system", failed=failed, rest=system.rests_until
            ) as loop,
            waking(database, loop.wake),
            anchoring(database, plan, system_clock),
        ):
            wake_on_news(loop.wake)
            stderr.print("at work until Ctrl-C")
            while not ended.wait(SIGNAL_SECONDS):
                pass
    if deaths:
        fail(Exit.FAILURE, f"the process ended: {deaths[0]}; what was acknowledged is kept, start it again")


def _serve_metrics(database: Database) -> None:
    """Serve the metrics of this process, if the settings name a port: the process of the API has only its own."""
    port = read_settings().metrics_port
    if port is None:
        return
    try:
        from volsched.api.health import serve_process_metrics
    except ModuleNotFoundError as error:
        fail(Exit.USAGE, missing(error.name, "server"))
    try:
        serve_process_metrics(database, port)
    except OSError as error:
        fail(Exit.USAGE, f"VOLSCHED_METRICS_PORT: port {port} cannot be used ({error.strerror}); name another")


def arm_process() -> None:
    """Arm the faults and set the clock skew that a drill names in the environment."""
    try:
        arm_from(os.environ)
        skew_from(os.environ)
    except ArmingError as error:
        fail(Exit.USAGE, str(error))


def _left_out(without: Collection[OptionalPart]) -> dict[str, Any]:
    """The omitted parts, as arguments of `whole_system`."""
    return {
        "node_agent": OptionalPart.NODE_AGENT not in without,
        "other_agents": OptionalPart.NODE_AGENT in without,
        "provisioners": () if OptionalPart.PROVISIONERS in without else None,
        "without": {it for it in Upkeep if it.value in without},
    }


def bell_of_settings(database: Database) -> Bell | None:
    """Wakes the workers if the settings name a Redis; without one, this process is its own worker."""
    redis = read_settings().redis_url
    if redis is None:
        return None
    try:
        from volsched.binding.wakeup import RedisBell
    except ModuleNotFoundError as error:
        fail(Exit.USAGE, missing(error.name, "stack"))
    return RedisBell(redis, database, system_clock)


def read_configuration(config: Path | None) -> Configuration:
    """The scheduler's configuration, which the extender uses too."""
    try:
        return configuration(config)
    except ConfigurationError as error:
        fail(Exit.USAGE, *error.problems)


def _serve(
    database: Database, where: ServedAddress, make: Callable[[], System] | None, configuration: Configuration
) -> None:
    arm_process()

    def begin(stack: ExitStack, failed: Failed) -> Callable[[], None]:
        wake: Callable[[], None] = lambda: None  # noqa: E731 - replaced if there is a system to wake
        if make is not None:
            system = RestartingSystem(make)
            stack.callback(system.close)
            loop = looping(
                system.step, clock=system_clock, name="volsched-system", failed=failed, rest=system.rests_until
            )
            wake = stack.enter_context(loop).wake
        if not follows:
            # Never in a store that mirrors a cluster, not even before its scheduler starts: it must not have any
            # objects of its own. The actor is not `api/`, which stands for a person's request.
            ensure_namespaces(database, SYSTEM_NAMESPACES, actor=f"server/{user()}", now=system_clock())
        return wake

    # `make` has already refused a store with the objects of another cluster.
    follows, mode = _attachment(database) if make is None else (False, None)
    ApiProcess(
        database=database,
        where=where,
        configuration=configuration,
        begin=begin,
        ready_line=_ready_text,
        failure_line="the server ended: {}; what was acknowledged is kept, start it again",
        follows=follows,
        reserves=not follows or mode is not None,
        binds=not follows or mode == AttachMode.own,
        zonal_upgrade=not Settings().disable_zonal_upgrade,
    ).run()


def _attachment(database: Database) -> tuple[bool, str | None]:
    """Whether the store's objects are those of another cluster, and the mode that decides for it, if one does."""
    with database.read() as connection:
        attached = attached_cluster(connection)
    mode = (None if attached is None else attached.get("mode")) or read_settings().attached_mode
    return attached is not None or mode is not None, mode


def _ready_text(url: str) -> str:
    hint = (
        f"volsched kubeconfig --server https://HOST:{url.rpartition(':')[2]} …"
        if url.startswith("https:")
        else f"kubectl -s {url} get pods -A"
    )
    return f"serving on {url} until Ctrl-C; try: {hint}"
