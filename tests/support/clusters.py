"""Small clusters of local volumes, and a system on them that a test steps with its own clock."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from sqlalchemy import select

from volsched.binding.rules.effects import PREBIND
from volsched.cluster.local import LocalCluster
from volsched.cluster.port import whole
from volsched.kube.storage import NO_PROVISIONER
from volsched.lab import manifests
from volsched.lab.manifests import storage_class
from volsched.log import tables
from volsched.log.database import Database
from volsched.log.integrity.verify import verify
from volsched.questions.invariants import violations
from volsched.runtime.clock import SECOND
from volsched.runtime.system import System, embedded

Manifest = manifests.Manifest
START = 1_800_000_000_000_000
node, volume, claim = manifests.node, manifests.local_volume, manifests.claim
LOCAL = storage_class("local", NO_PROVISIONER)
MADE = storage_class("made", "disks.example.com")
"""A class whose volumes are made by somebody else."""


def pod(name: str, *claims: str, annotations: dict[str, str] | None = None) -> Manifest:
    return manifests.pod(name, {f"v{i}": it for i, it in enumerate(claims)}, annotations=annotations or {})


def on_node(pod: Manifest, name: str) -> Manifest:
    """Placed by somebody else."""
    return {**pod, "spec": {**pod["spec"], "nodeName": name}}


class Stepped:
    """A system, its cluster and a clock that only the test moves."""

    def __init__(
        self, database: Database, objects: Iterable[Manifest] = (), *, owner: str = "test", **parts: Any
    ) -> None:
        """`parts` says what takes part besides the usual (`embedded`)."""
        self.database = database
        self.now = START
        ids = itertools.count(1)
        self.system: System = embedded(
            database, owner=owner, clock=lambda: self.now, new_id=lambda: f"{owner}-{next(ids):04}", **parts
        )
        self.create(*objects)

    @property
    def cluster(self) -> LocalCluster:
        assert isinstance(self.system.executor.cluster, LocalCluster)
        return self.system.executor.cluster

    def create(self, *objects: Manifest) -> None:
        for manifest in objects:
            self.cluster.create(manifest["kind"], manifest)

    def step(self, *, after: int = 0) -> int:
        self.now += after
        return self.system.step(self.now)

    def plan_and_write(self) -> None:
        """The scheduler plans and one batch is written; nobody else moves yet."""
        self.system.catch_up(self.now)
        self.system.scheduler.step(self.now)
        self.system.executor.step(PREBIND, self.now)

    def until(self, condition: Callable[[], bool], *, steps: int = 200) -> None:
        """Step a tenth of a second at a time until the condition holds."""
        for _ in range(steps):
            if condition():
                return
            self.step(after=SECOND // 10)
        raise AssertionError(f"it did not come to it within {steps} steps")

    def settle(self, *, quiet: int = 25, steps: int = 600) -> None:
        """Step until nothing has moved for a while (two and a half seconds, beyond the first back-off).

        A tenth of a second at a time; where nothing has moved for half a second, half a second.
        """
        still = 0
        for _ in range(steps):
            pause = 1 if still < 5 else 5
            still = 0 if self.step(after=pause * SECOND // 10) else still + pause
            if still >= quiet:
                return
        raise AssertionError(f"something still moves after {steps} steps")

    def node_of(self, name: str) -> str | None:
        found = self.cluster.get("Pod", f"default/{name}")
        return None if found is None else found["spec"].get("nodeName")

    def volume_of(self, name: str) -> str | None:
        found = self.cluster.get("PersistentVolumeClaim", f"default/{name}")
        return None if found is None else found["spec"].get("volumeName")

    def notices(self, reason: str) -> list[Manifest]:
        """The Kubernetes events of this reason."""
        return [dict(it) for it in whole(self.cluster.list("Event")).objects if it["reason"] == reason]

    def messages(self, reason: str) -> list[str]:
        return [str(it["message"]) for it in self.notices(reason)]

    def bindings(self) -> list[Any]:
        with self.database.read() as connection:
            return list(connection.execute(select(tables.bindings).order_by(tables.bindings.c.planned_at)))

    def legs(self, binding: str) -> list[Any]:
        legs = tables.binding_legs
        with self.database.read() as connection:
            return list(connection.execute(select(legs).where(legs.c.binding == binding).order_by(legs.c.leg)))

    def story(self, binding: str) -> list[str]:
        """What happened to a binding, a line for each of its own events."""
        events = tables.events
        asked = select(events.c.type, events.c.data).where(events.c.stream == f"binding/{binding}")
        with self.database.read() as connection:
            return [f"{row.type} {row.data}" for row in connection.execute(asked.order_by(events.c.version))]


def all_is_well(stepped: Stepped) -> None:
    with stepped.database.read() as connection:
        assert violations(connection, at_rest=True) == []
    assert verify(stepped.database).ok


def one_disk(database: Database, **parts: Any) -> Stepped:
    """A node with a disk, and a claim that fits it."""
    objects = [LOCAL, node("node-0"), volume("disk", "5Gi", "node-0"), claim("data", "4Gi")]
    stepped = Stepped(database, objects, **parts)
    stepped.settle()
    return stepped


def one_disk_used(database: Database, by: str = "db", **parts: Any) -> Stepped:
    """The same, and a pod that is placed with it."""
    stepped = one_disk(database, **parts)
    stepped.create(pod(by, "data"))
    stepped.until(lambda: stepped.node_of(by) == "node-0")
    return stepped


def one_disk_bound(database: Database, **parts: Any) -> Stepped:
    """The same, after the pod is gone: the claim is bound and clean, and used by nobody."""
    stepped = one_disk_used(database, **parts)
    stepped.cluster.delete("Pod", "default/db")
    stepped.settle()
    return stepped


def turned_away(database: Database) -> Stepped:
    """A pod that its only node has rejected, and whose claim is bound there."""
    stepped = one_disk_used(database)
    found = stepped.cluster.get("Pod", "default/db") or {}
    stepped.cluster.unassign_pod("default/db", uid=found["metadata"]["uid"], reason="out of memory")
    stepped.settle()
    return stepped
