"""`volsched observe`: follow a cluster that may only be read, and answer every question about it."""

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from volsched.cli.api_process import ApiProcess, ClientCa, Host, Port, ServedAddress, TlsCert, TlsKey
from volsched.cli.console import Exit, fail, stderr, table_of
from volsched.cli.live import connect_to_cluster, introduce
from volsched.cli.store_option import Db, explained
from volsched.cluster.observer import ClusterObserver, WrongClusterError
from volsched.cluster.permissions import MODES, OBSERVE, READS, excess_of_observer
from volsched.cluster.port import ClusterIdentity
from volsched.cluster.projection import OBSERVED_KINDS
from volsched.log.database import Database
from volsched.log.store import migrate_store, open_store
from volsched.runtime.clock import system_clock
from volsched.runtime.runner import Failed, looping
from volsched.runtime.settings import configuration, database_url
from volsched.runtime.user_files import data_directory

if TYPE_CHECKING:
    from volsched.cluster.kubernetes.adapter import KubernetesCluster

EXAMPLES = """**Examples**

`volsched observe --context prod` follows the cluster, and answers on http://127.0.0.1:8700

`volsched --server http://127.0.0.1:8700 explain pod shop/db-0` asks it from elsewhere
"""
EXCESS_SHOWN = 4
OBSERVED_STORE = "observed.db"
"""The store's name in the user's data directory. It is not that of `volsched up`, which has its own objects."""

Kubeconfig = Annotated[
    Path | None,
    typer.Option("--kubeconfig", metavar="FILE", help="Kubeconfig of the cluster; else as kubectl finds it."),
]
Context = Annotated[str | None, typer.Option("--context", help="Context to use; else the current one.")]
AllowExcess = Annotated[
    bool, typer.Option("--allow-excess", help="Start even if we may write; otherwise that is refused.")
]


def observe(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    db: Db = None,
    host: Host = "127.0.0.1",
    port: Port = 8700,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    client_ca: ClientCa = None,
    allow_excess: AllowExcess = False,
) -> None:
    """Follow a cluster with read permission only, and serve questions, API and metrics about it.

    No scheduler, executor or controller runs here. The store is created if there is none; a store that belongs to
    another cluster is refused.
    """
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    cluster = connect_to_cluster(kubeconfig, context, mode=OBSERVE)
    identity = cluster.describe([*MODES[OBSERVE], *excess_of_observer()])
    kinds = permitted_kinds(identity, allow_excess=allow_excess)
    with closing(cluster), explained():
        url = database_url(db, otherwise=lambda: f"sqlite:///{own_directory() / OBSERVED_STORE}")
        migrate_store(url)
        database = open_store(url, name="volsched observe")
        with closing(database):
            observer = ClusterObserver(
                database,
                cluster,
                silence=lambda: silence_of(cluster),
                trouble=lambda: trouble_of(cluster),
                list_versions=cluster.versions,
            )
            observer.mirror.kinds = kinds
            try:
                observer.attach(identity, system_clock())
            except WrongClusterError as error:
                fail(Exit.CONFLICT, str(error))
            _serve(database, cluster, observer, ServedAddress(host, port, tls_cert, tls_key, client_ca))


_HELD = {True: "yes", False: "NO", None: "-"}
"""None: the mode does not need the permission, so it was not asked about."""


def permitted_kinds(identity: ClusterIdentity, *, allow_excess: bool) -> tuple[str, ...]:
    """The kinds that are served. Prints our permissions; the command ends if one is missing, or too much."""
    introduce(identity)
    table = table_of("kind", *READS, "may write")
    missing: list[str] = []
    excess: list[str] = []
    for kind in OBSERVED_KINDS:
        permissions = {it: may for it, may in identity.may.items() if it.kind == kind}
        reads = {it.verb: may for it, may in permissions.items() if it.verb in READS}
        too_much = [it for it, may in permissions.items() if may and it.verb not in READS]
        if kind in identity.unserved:
            table.add_row(kind, "not served", "", "", "")
            continue
        missing += [f"{verb} {kind}" for verb, may in reads.items() if not may]
        excess += map(str, too_much)
        verbs = ", ".join(dict.fromkeys(it.subresource or it.verb for it in too_much))
        table.add_row(kind, *(_HELD[reads.get(verb)] for verb in READS), verbs or "no")
    stderr.print(table)
    if missing:
        fail(
            Exit.FAILURE,
            f"permission is missing to {', '.join(missing)}; apply what volsched manifests --mode observe prints",
        )
    if excess and not allow_excess:
        more = f" and {len(excess) - EXCESS_SHOWN} more" if len(excess) > EXCESS_SHOWN else ""
        named = ", ".join(excess[:EXCESS_SHOWN]) + more
        fail(
            Exit.FAILURE,
            f"an observer must not be able to write, and this user may {named}: use a service "
            "account with the role of volsched manifests --mode observe, or give --allow-excess",
        )
    return tuple(kind for kind in OBSERVED_KINDS if kind not in identity.unserved)


def silence_of(cluster: "KubernetesCluster") -> Mapping[str, float | None]:
    now = monotonic()
    heard = {kind: health.last_heard for kind, health in cluster.health().items()}
    return {kind: None if at is None else now - at for kind, at in heard.items()}


def trouble_of(cluster: "KubernetesCluster") -> str | None:
    return next((health.trouble for health in cluster.health().values() if health.trouble is not None), None)


def own_directory() -> Path:
    directory = data_directory()
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _serve(
    database: Database, cluster: "KubernetesCluster", observer: ClusterObserver, where: ServedAddress
) -> None:
    from volsched.cluster.kubernetes.streams import reading

    def begin(stack: ExitStack, failed: Failed) -> Callable[[], None]:
        stack.enter_context(reading([cluster.streams[kind] for kind in observer.mirror.kinds]))
        stack.enter_context(looping(observer.step, clock=system_clock, name="volsched-observer", failed=failed))
        return lambda: None

    ApiProcess(
        database=database,
        where=where,
        configuration=configuration(None),
        begin=begin,
        ready_line=lambda url: f"observing; questions, API and metrics on {url} until Ctrl-C",
        failure_line="the observer ended: {}",
        follows=True,
        reserves=False,
        binds=False,
    ).run()
