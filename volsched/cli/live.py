"""`--live`: list the cluster that kubectl talks to once, answer a question from that, and store nothing."""

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
"""Requests of one command: it checks its permissions and lists every kind."""
MOST_LISTS = 12
"""A list that expires is restarted: half an answer is useless."""
SHOWS_EVENTS = frozenset({"describe"})
"""Verbs that show the cluster's events; other verbs do not list these, because there may be very many."""


def connect_to_cluster(kubeconfig: Path | None, context: str | None, *, mode: str) -> "KubernetesCluster":
    """A client of the cluster, before its first request; an unusable kubeconfig ends the command."""
    try:
        from volsched.cluster.kubernetes.adapter import OBSERVE_BURST, OBSERVE_PER_SECOND, connect
        from volsched.cluster.kubernetes.backoff import TokenBucket
        from volsched.cluster.kubernetes.kubeconfig import KubeconfigError
        from volsched.cluster.permissions import OBSERVE
        from volsched.cluster.projection import OBSERVED_KINDS, project
    except ModuleNotFoundError as error:
        fail(Exit.USAGE, missing(error.name, "cluster"))
    # An observer sends as many requests at its start, and few from then on.
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
    """The cluster as it is now, in a store for this command, in memory if there is room.

    `keeps_all`: pods without claims and the cluster's own events are in its log too.
    """
    from volsched.cluster.observer import ClusterObserver
    from volsched.cluster.projection import OBSERVED_KINDS
    from volsched.log.migrations import scratch_store
    from volsched.runtime.clock import system_clock

    cluster = connect_to_cluster(choice.kubeconfig, choice.context, mode="live")
    asks_events = keeps_all or choice.verb in SHOWS_EVENTS
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
            fail(Exit.FAILURE, f"{identity.url} changes faster than it is listed; retry, or observe it")
        yield database


def require_answer(identity: "ClusterIdentity") -> None:
    """Print the cluster's warnings; the command ends if it cannot be reached or is no cluster."""
    if not identity.reachable or identity.trouble is not None:
        fail(Exit.FAILURE, identity.trouble or f"{identity.url} does not answer")
    for warning in identity.warnings:
        warn(warning)


def introduce(identity: "ClusterIdentity") -> None:
    """Do `require_answer`, and print which cluster it is."""
    require_answer(identity)
    console.stderr.print(f"cluster {identity.uid or 'unknown'}, Kubernetes {identity.version}, {identity.url}")


def _listable(cluster: "KubernetesCluster", kinds: Sequence[str]) -> tuple[tuple[str, ...], "ClusterIdentity"]:
    """The kinds that the server has; the command ends if it cannot be reached or we may not list one of them."""
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
