"""`volsched attach`: act on a real cluster, in one process: observe it, decide, and write decisions into it."""

import logging
import signal
from contextlib import ExitStack, closing
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer

from volsched.cli.console import Exit, fail, stderr, table_of
from volsched.cli.live import warn
from volsched.cli.observe import Context, Kubeconfig, own_directory, silence_of
from volsched.cli.operator import user
from volsched.cli.serve import (
    ClientCa,
    Config,
    Host,
    Port,
    ServedAddress,
    TlsCert,
    TlsKey,
    arm_process,
    bell_of_settings,
    configured,
    limits_of_settings,
)
from volsched.cli.store_option import Db, explained
from volsched.cluster.observer import ClusterObserver, WrongClusterError
from volsched.cluster.permissions import GATE_MODE, MODES, OWN, WATCHED_KINDS
from volsched.cluster.port import CallRefusedError, ClusterError, ClusterIdentity, Permission, whole
from volsched.kube.kinds import key_of
from volsched.kube.manifest import has_gate
from volsched.kube.meta import GATE, GAVE_UP
from volsched.log.database import Database
from volsched.log.store import migrate_store, open_store
from volsched.runtime.clock import SECOND, system_clock
from volsched.runtime.runner import RestartingSystem, calls_side_by_side, looping, waking
from volsched.runtime.settings import database_url
from volsched.runtime.system import ProcessRole, System, embedded
from volsched.scheduling.rules.configuration import Configuration
from volsched.scheduling.scheduler import ATTACHED, DEFAULT_SCHEDULER

if TYPE_CHECKING:
    from volsched.api.listener import Server
    from volsched.binding.executor import SideBySide
    from volsched.cluster.kubernetes.adapter import KubernetesCluster

EXAMPLES = """**Examples**

`volsched attach --mode own --context prod` schedules the pods of that cluster whose schedulerName is volsched

`volsched manifests --mode own | kubectl apply -f -` runs it in the cluster, with exactly the permissions it needs

`volsched audit retained` lists what was written and could not be taken back
"""
ATTACHED_STORE = "attached.db"
"""In the user's data directory, beside the observer's: this one knows every pod and every version."""
CONNECTIONS = 16
UNGATE_TRIES = 5
LEASE_SECONDS = 120
"""Longer than a call may take: whoever takes an effect over sooner would only repeat it."""


class AttachMode(StrEnum):
    gate = GATE_MODE
    own = OWN


Mode = Annotated[
    AttachMode,
    typer.Option(
        "--mode",
        help="own: place pods of schedulerName volsched and bind their claims. gate: bind the claims of pods "
        "behind our scheduling gate, and let their own scheduler place them.",
    ),
]
TakeOver = Annotated[
    bool,
    typer.Option(
        "--take-over-default-scheduler",
        help="Place pods of schedulerName default-scheduler too. Stop kube-scheduler first: two schedulers that "
        "place the same pods overcommit nodes and fight for volumes.",
    ),
]


def attach(
    mode: Mode,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    db: Db = None,
    config: Config = None,
    take_over_default_scheduler: TakeOver = False,
    host: Host = "127.0.0.1",
    port: Port = 8700,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    client_ca: ClientCa = None,
) -> None:
    """Schedule pods of a real cluster: its API server is written to, its own controllers do their part.

    Kubernetes never unbinds: a claim that its PV controller has bound stays bound, also if the rest of the pod's
    claims fail. What could not be taken back is listed by `volsched audit retained`.
    """
    arm_process()
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    decides = configured(config)
    if take_over_default_scheduler and mode is AttachMode.gate:
        fail(Exit.USAGE, "gate mode places no pods; --take-over-default-scheduler is for --mode own")
    names = (*ATTACHED, *((DEFAULT_SCHEDULER, "") if take_over_default_scheduler else ()))
    cluster = _connected(kubeconfig, context, mode)
    identity = cluster.describe(MODES[mode])
    kinds = permitted_kinds(identity, mode)
    url = database_url(db) if db is not None else f"sqlite:///{own_directory() / ATTACHED_STORE}"
    with closing(cluster), explained():
        migrate_store(url)
        database = open_store(url, name=f"volsched attach {mode}")
        with closing(database):
            gate = GATE if mode is AttachMode.gate else None
            attachment = _Attachment(database, cluster, identity, kinds, names, gate, decides)
            attachment.check()
            _run(attachment, ServedAddress(host, port, tls_cert, tls_key, client_ca))


def _connected(kubeconfig: Kubeconfig, context: Context, mode: AttachMode) -> "KubernetesCluster":
    try:
        from volsched.cluster.kubernetes.acting_cluster import acting_cluster
        from volsched.cluster.kubernetes.kubeconfig import KubeconfigError
    except ModuleNotFoundError as error:
        fail(Exit.USAGE, f"{error.name} is not installed; run: pip install 'volsched[cluster]'")
    try:
        return acting_cluster(mode.value, kubeconfig, context)
    except KubeconfigError as error:
        fail(Exit.USAGE, str(error))


def permitted_kinds(identity: ClusterIdentity, mode: AttachMode) -> tuple[str, ...]:
    """Prints the verbs wanted and had; the end of the command where one is missing."""
    if not identity.reachable or identity.trouble is not None:
        fail(Exit.FAILURE, identity.trouble or f"{identity.url} does not answer")
    for warning in identity.warnings:
        warn(warning)
    stderr.print(f"cluster {identity.uid or 'unknown'}, Kubernetes {identity.version}, {identity.url}")
    wanted: dict[str, list[Permission]] = {}
    for permission in MODES[mode]:
        below = f"/{permission.subresource}" if permission.subresource else ""
        wanted.setdefault(f"{permission.kind}{below}", []).append(permission)
    table = table_of("resource", "we need", "we lack")
    missing: list[str] = []
    for resource, permissions in wanted.items():
        if resource in identity.unserved:
            table.add_row(resource, "not served", "")
            continue
        lacked = [it.verb for it in permissions if not identity.may.get(it)]
        missing += [f"{verb} {resource}" for verb in lacked]
        table.add_row(resource, ", ".join(it.verb for it in permissions), ", ".join(lacked) or "-")
    stderr.print(table)
    if missing:
        fail(
            Exit.FAILURE,
            f"permission is missing to {', '.join(missing)}; apply what volsched manifests --mode {mode} prints",
        )
    return tuple(kind for kind in WATCHED_KINDS if kind not in identity.unserved)


class _Attachment:
    """What a process is made from, as often as its store fails and comes back."""

    def __init__(
        self,
        database: Database,
        cluster: "KubernetesCluster",
        identity: ClusterIdentity,
        kinds: tuple[str, ...],
        names: tuple[str, ...],
        gate: str | None,
        decides: Configuration,
    ) -> None:
        self.database, self.cluster, self.kinds = database, cluster, kinds
        self._identity, self._names, self._gate, self.decides = identity, names, gate, decides

    def check(self) -> None:
        """The end of the command where the store belongs to another cluster."""
        try:
            self._observer()
        except WrongClusterError as error:
            fail(Exit.CONFLICT, str(error))

    def make(self, side_by_side: "SideBySide") -> System:
        return embedded(
            self.database,
            owner=uuid4().hex[:12],
            clock=system_clock,
            new_id=lambda: uuid4().hex[:12],
            cluster=self.cluster,
            observer=self._observer(),
            roles={ProcessRole.SCHEDULER},
            # Replicas on one PostgreSQL agree on who begins with which pods.
            share=None,
            names=self._names,
            gate=self._gate,
            configuration=self.decides,
            side_by_side=side_by_side,
            bell=bell_of_settings(self.database),
            lease=LEASE_SECONDS * SECOND,
        )

    def _observer(self) -> ClusterObserver:
        observer = ClusterObserver(
            self.database,
            self.cluster,
            silence=lambda: silence_of(self.cluster),
            only_observes=False,
        )
        observer.mirror.kinds = self.kinds
        observer.attach(self._identity, system_clock())
        return observer


def _run(attachment: _Attachment, where: ServedAddress) -> None:
    try:
        from volsched.api.listener import ListenError, address, check_access, listen, serve
    except ModuleNotFoundError as error:
        fail(Exit.USAGE, f"{error.name} is not installed; run: pip install 'volsched[server]'")
    from volsched.cluster.kubernetes.streams import reading

    database, cluster = attachment.database, attachment.cluster
    servers: list[Server] = []
    deaths: list[Exception] = []

    def failed(error: Exception) -> None:
        deaths.append(error)
        for server in servers:
            server.should_exit = True

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    tls = where.tls()
    with ExitStack() as stack:
        try:
            check_access(database, where.host, tls, now=system_clock())
            listening = stack.enter_context(closing(listen(where.host, where.port, tls)))
        except ListenError as error:
            fail(Exit.USAGE, str(error))
        side_by_side = stack.enter_context(calls_side_by_side(CONNECTIONS))
        stack.enter_context(reading([cluster.streams[kind] for kind in attachment.kinds]))
        standing = RestartingSystem(lambda: attachment.make(side_by_side))
        stack.callback(standing.close)
        loop = stack.enter_context(
            looping(standing.step, clock=system_clock, name="volsched-system", failed=failed)
        )
        stack.enter_context(waking(database, loop))
        stderr.print(f"attached; questions, API and metrics on {address(listening, tls)} until Ctrl-C")
        died = serve(
            database,
            listening,
            clock=system_clock,
            actor=f"api/{user()}",
            zonal_upgrade=False,
            committed=loop.wake,
            configuration=attachment.decides,
            started=servers.append,
            tls=tls,
            limits=limits_of_settings(),
            read_only=True,
            follows=True,
        )
    if died is not None or deaths:
        fail(Exit.FAILURE, f"it ended: {died or deaths[0]}; what was acknowledged is kept, start it again")


UNGATE_EXAMPLES = """**Examples**

`volsched ungate --all` when volsched is to be removed, or does not come back: no pod waits for it any more

`volsched ungate shop/db-0 shop/db-1`
"""
Pods = Annotated[list[str] | None, typer.Argument(metavar="[NS/POD]...", help="Pods that wait behind our gate.")]
All = Annotated[bool, typer.Option("--all", help="Every pod of the cluster that does.")]


def ungate(
    pods: Pods = None, all_pods: All = False, kubeconfig: Kubeconfig = None, context: Context = None
) -> None:
    """Remove our scheduling gate from pods; their claims stay as they are, and their own scheduler goes on.

    It needs no store and no running volsched.
    """
    if bool(pods) is all_pods:
        fail(Exit.USAGE, "name pods as NS/POD, or give --all")
    cluster = _connected(kubeconfig, context, AttachMode.gate)
    with closing(cluster):
        try:
            found = [it for it in whole(cluster.list("Pod")).objects if has_gate(it)]
            wanted = [it for it in found if all_pods or key_of("Pod", it) in (pods or ())]
            for pod in wanted:
                _ungate(cluster, key_of("Pod", pod))
        except ClusterError as error:
            fail(Exit.FAILURE, str(error))
    missing = set(pods or ()) - {key_of("Pod", it) for it in wanted}
    if missing:
        fail(Exit.NOT_FOUND, f"not behind the gate {GATE}: {', '.join(sorted(missing))}")
    stderr.print(f"{len(wanted)} pods ungated")


def _ungate(cluster: "KubernetesCluster", key: str) -> None:
    """Tried again where somebody else has just written the pod."""
    for attempt in range(UNGATE_TRIES):
        pod = cluster.get("Pod", key)
        if pod is None or not has_gate(pod):
            return
        try:
            cluster.open_gate(key, pod, annotations={GAVE_UP: f"ungated by {user()}"})
        except CallRefusedError:
            if attempt == UNGATE_TRIES - 1:
                raise
        else:
            typer.echo(f"pod/{key} ungated")
            return
