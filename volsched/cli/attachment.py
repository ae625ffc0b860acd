"""A process that acts on a real cluster: `attach`, and `serve scheduler --cluster`, begin in the same way.

Before anything is written, our permissions are compared with those that the mode needs. The store must belong to
this cluster.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer

from volsched.binding.recovery import Sweep
from volsched.cli.console import Exit, fail, stderr, table_of
from volsched.cli.live import introduce, warn
from volsched.cli.observe import silence_of, trouble_of
from volsched.cluster.installation_lock import DURATION_SECONDS, InstallationLock, holder_of
from volsched.cluster.observer import ClusterObserver, WrongClusterError
from volsched.cluster.permissions import ADVISE, GATE_MODE, LOCKS, MODES, OWN, WATCHED_KINDS
from volsched.cluster.port import ClusterIdentity, Permission
from volsched.kube.meta import ATTACHED_SCHEDULERS, CLUSTER_SCHEDULERS, GATE
from volsched.log.database import Database
from volsched.log.errors import WrongModeError
from volsched.runtime.clock import system_clock
from volsched.runtime.extras import missing
from volsched.runtime.runner import calls_side_by_side, looping, repeat_until
from volsched.runtime.settings import Settings
from volsched.runtime.system import Adviser, Bell, ProcessRole, System, embedded
from volsched.scheduling.rules.configuration import Configuration

if TYPE_CHECKING:
    from volsched.binding.executor import SideBySide
    from volsched.cluster.kubernetes.adapter import KubernetesCluster

CONNECTIONS = 16
_log = logging.getLogger("volsched.lock")


class AttachMode(StrEnum):
    advise = ADVISE
    gate = GATE_MODE
    own = OWN


TakeOver = Annotated[
    bool,
    typer.Option(
        "--take-over-default-scheduler",
        help="Place pods of schedulerName default-scheduler too. Stop kube-scheduler first: two schedulers that "
        "place the same pods overcommit nodes and fight for volumes.",
    ),
]


def acting_on(kubeconfig: Path | None, context: str | None, mode: AttachMode) -> "KubernetesCluster":
    """A client of the cluster, before its first request; an unusable kubeconfig ends the command."""
    try:
        from volsched.cluster.kubernetes.acting_cluster import acting_cluster
        from volsched.cluster.kubernetes.kubeconfig import KubeconfigError
    except ModuleNotFoundError as error:
        fail(Exit.USAGE, missing(error.name, "cluster"))
    try:
        return acting_cluster(mode.value, kubeconfig, context)
    except KubeconfigError as error:
        fail(Exit.USAGE, str(error))


@dataclass(frozen=True, slots=True)
class Attachment:
    """Creates systems for a cluster: a new one each time the store has failed and recovered."""

    cluster: "KubernetesCluster"
    identity: ClusterIdentity
    kinds: tuple[str, ...]
    names: tuple[str, ...]
    """The schedulerNames whose pods are placed."""
    mode: AttachMode

    @contextmanager
    def advisers(self, database: Database) -> Iterator[Callable[[], Adviser]]:
        """Creates advisers while the context lasts. They write nothing into the cluster, so they need no lock."""
        from volsched.cluster.kubernetes.streams import reading

        self._check_store(database)
        with reading([self.cluster.streams[it] for it in self.kinds]):
            yield lambda: Adviser(self._observer(database), Sweep(database, f"sweep/{uuid4().hex[:12]}"))

    def _check_store(self, database: Database) -> None:
        try:
            self._observer(database)
        except (WrongClusterError, WrongModeError) as error:
            fail(Exit.CONFLICT, str(error))

    @contextmanager
    def systems(
        self, database: Database, decides: Configuration, bell: Bell | None
    ) -> Iterator[Callable[[], System]]:
        """Creates systems while the context lasts, and keeps the installation lock.

        The command ends if the store belongs to another cluster, or the cluster to another installation.
        """
        from volsched.cluster.kubernetes.streams import reading

        self._check_store(database)
        lock = InstallationLock(
            self.cluster,
            LOCKS[self.mode],
            lambda: holder_of(database, self.mode.value),
            clock=system_clock,
            monotonic=monotonic,
        )
        _take(lock)
        with (
            calls_side_by_side(CONNECTIONS) as pool,
            reading([self.cluster.streams[it] for it in self.kinds]),
            looping(lock.step, clock=system_clock, name="volsched-lock", failed=_log_death),
        ):
            yield lambda: self._system(database, decides, bell, pool, lock.is_held)

    def _system(
        self,
        database: Database,
        decides: Configuration,
        bell: Bell | None,
        side_by_side: "SideBySide",
        may_act: Callable[[], bool],
    ) -> System:
        return embedded(
            database,
            owner=uuid4().hex[:12],
            clock=system_clock,
            new_id=lambda: uuid4().hex[:12],
            cluster=self.cluster,
            observer=self._observer(database),
            roles={ProcessRole.SCHEDULER},
            # Replicas on one PostgreSQL agree on who begins with which pods.
            share=None,
            names=self.names,
            gate=GATE if self.mode is AttachMode.gate else None,
            configuration=decides,
            side_by_side=side_by_side,
            bell=bell,
            may_act=may_act,
            lease=Settings().effect_lease(attached=True),
        )

    def _observer(self, database: Database) -> ClusterObserver:
        observer = ClusterObserver(
            database,
            self.cluster,
            silence=lambda: silence_of(self.cluster),
            trouble=lambda: trouble_of(self.cluster),
            mode=self.mode.value,
        )
        observer.mirror.kinds = self.kinds
        observer.attach(self.identity, system_clock())
        return observer


def _take(lock: InstallationLock) -> None:
    """Take the lock or end the command. A lock whose holder is gone is ours after fifteen seconds."""
    lock.step()
    if not lock.is_held() and lock.trouble is not None:
        warn(f"{lock.trouble} (waiting {DURATION_SECONDS} s, in case it is gone)")
    repeat_until(lock.step, lambda: lock.is_held() or lock.rival_is_alive, clock=system_clock)
    if lock.rival_is_alive:
        fail(Exit.CONFLICT, lock.trouble or "another installation acts on this cluster")


def _log_death(error: Exception) -> None:
    """Without renewals the lock expires, and nothing is written any more."""
    _log.error("the installation lock is not renewed any more: %s", error)


def attachment_to(
    kubeconfig: Path | None, context: str | None, mode: AttachMode, *, takes_over_default: bool = False
) -> Attachment:
    """The cluster with its identity and our permissions; the command ends if a permission is missing."""
    if takes_over_default and mode is not AttachMode.own:
        fail(Exit.USAGE, f"{mode} mode places no pods; --take-over-default-scheduler is for mode own")
    names = (*ATTACHED_SCHEDULERS, *(CLUSTER_SCHEDULERS if takes_over_default else ()))
    cluster = acting_on(kubeconfig, context, mode)
    identity = cluster.describe(MODES[mode])
    return Attachment(cluster, identity, _permitted_kinds(identity, mode), names, mode)


def _permitted_kinds(identity: ClusterIdentity, mode: AttachMode) -> tuple[str, ...]:
    """The kinds that are served. Prints needed and missing verbs; the command ends if one is missing."""
    introduce(identity)
    needed: dict[str, list[Permission]] = {}
    for permission in MODES[mode]:
        below = f"/{permission.subresource}" if permission.subresource else ""
        needed.setdefault(f"{permission.kind}{below}", []).append(permission)
    table = table_of("resource", "we need", "we lack")
    missing: list[str] = []
    for resource, permissions in needed.items():
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
