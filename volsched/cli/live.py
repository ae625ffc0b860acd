"""`--live`: a question about the cluster that kubectl talks to, listed once, answered, and stored nowhere."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from volsched.cli import console
from volsched.cli.console import Exit, fail
from volsched.cli.remote.server_options import ServerChoice
from volsched.runtime.extras import missing

if TYPE_CHECKING:
    from volsched.cluster.kubernetes.adapter import KubernetesCluster
    from volsched.cluster.port import ClusterIdentity
    from volsched.log.database import Database

BURST = 120
PER_SECOND = 10
"""Requests of one command: what it may do there, and a list of every kind."""
MOST_LISTS = 12
"""A list that expires is begun again; half an answer is none."""
TELLS_EVENTS = frozenset({"describe"})
"""Verbs that show what the cluster's components said; no other lists its events, which may be very many."""


def connected(kubeconfig: Path | None, context: str | None, *, mode: str) -> "KubernetesCluster":
    """The cluster, not asked yet; the end of the command where there is no way to it."""
    try:
        from volsched.cluster.kubernetes.adapter import OBSERVE_BURST, OBSERVE_PER_SECOND, connect
        from volsched.cluster.kubernetes.backoff import TokenBucket
        from volsched.cluster.kubernetes.kubeconfig import KubeconfigError
        from volsched.cluster.permissions import OBSERVE
        from volsched.cluster.projection import OBSERVED_KINDS, project
    except ModuleNotFoundError as error:
        fail(Exit.USAGE, missing(error.name, "cluster"))
    # Whoever stays asks as much when it begins, and little from then on.
    stays = TokenBucket(OBSERVE_PER_SECOND, OBSERVE_BURST, at_start=BURST)
    bucket = stays if mode == OBSERVE else TokenBucket(PER_SECOND, BURST)
    try:
        return connect(
            kubeconfig,
            context,
            mode=mode,
            kinds=OBSERVED_KINDS,
            project=project,
            bucket=bucket,
        )
    except KubeconfigError as error:
        fail(Exit.USAGE, str(error))


@contextmanager
def live_store(choice: ServerChoice, *, keeps_all: bool = False) -> Iterator["Database"]:
    """The cluster as it is now, in a store that lives in memory where there is room for one, and ends with us.

    `keeps_all`: pods without claims and the cluster's own events are in its log too.
    """
    from volsched.cluster.observer import ClusterObserver
    from volsched.cluster.projection import OBSERVED_KINDS
    from volsched.log.migrations import scratch_store
    from volsched.runtime.clock import system_clock

    cluster = connected(choice.kubeconfig, choice.context, mode="live")
    asks_events = keeps_all or choice.verb in TELLS_EVENTS
    kinds, identity = _listable(cluster, tuple(it for it in OBSERVED_KINDS if it != "Event" or asks_events))
    with closing(cluster), scratch_store(in_memory=True) as database:
        now = system_clock()
        observer = ClusterObserver(database, cluster)
        observer.attach(identity, now)
        observer.mirror.kinds, observer.mirror.only_observes = kinds, not keeps_all
        for _ in range(MOST_LISTS):
            progress = observer.mirror.step(now)
            if progress.unanswered is not None:
                fail(Exit.FAILURE, progress.unanswered)
            for stream, error in progress.refused.items():
                warn(f"{stream} is left out: {error}")
            if observer.mirror.is_listed:
                break
        else:
            fail(Exit.FAILURE, f"{identity.url} changes faster than it is listed; ask again, or observe it")
        yield database


def require_answer(identity: "ClusterIdentity") -> None:
    """Print the cluster's warnings; the end of the command where it is not reached, or is not one."""
    if not identity.reachable or identity.trouble is not None:
        fail(Exit.FAILURE, identity.trouble or f"{identity.url} does not answer")
    for warning in identity.warnings:
        warn(warning)


def introduce(identity: "ClusterIdentity") -> None:
    """As `require_answer`, and print which cluster it is."""
    require_answer(identity)
    console.stderr.print(f"cluster {identity.uid or 'unknown'}, Kubernetes {identity.version}, {identity.url}")


def _listable(cluster: "KubernetesCluster", kinds: Sequence[str]) -> tuple[tuple[str, ...], "ClusterIdentity"]:
    """The kinds that the server has; the end of the command where it is not reached, or one may not be listed."""
    from volsched.cluster.port import Permission

    identity = cluster.describe([Permission("list", kind) for kind in kinds])
    require_answer(identity)
    if identity.unserved:
        warn(f"{identity.url} has no {', '.join(identity.unserved)}; answering without")
    missing = sorted(it.kind for it, may in identity.may.items() if not may and it.kind not in identity.unserved)
    if missing:
        fail(
            Exit.FAILURE,
            f"the user of this context may not list {', '.join(missing)} in all namespaces; bind it to the role "
            "that volsched manifests --mode observe prints",
        )
    return tuple(kind for kind in kinds if kind not in identity.unserved), identity


def warn(message: str) -> None:
    from rich.markup import escape

    console.stderr.print(f"[bold yellow]warning:[/] {escape(message)}")
