"""What a process drill keeps the system busy with: pods with claims, created over the API, and their fate."""

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, select

from volsched.binding.rules.phases import LegPhase
from volsched.lab.bench.world import cluster, pods_with_claims
from volsched.lab.drills.process_scenario import Work
from volsched.lab.stack.load import CONNECTIONS, LOOK_SECONDS, PATHS, Load, LoadClient
from volsched.log import tables
from volsched.log.database import Database
from volsched.scheduling.planner import TIMEOUT_SECONDS

NEVER: dict[str, Any] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "never"},
    "provisioner": "nobody.example.com",
    "volumeBindingMode": "WaitForFirstConsumer",
}
SLOW_SECONDS = 3
SLOW: dict[str, Any] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "slow"},
    "provisioner": "volsched.io/simulated",
    "parameters": {"latencySeconds": str(SLOW_SECONDS), "topologyKeys": "kubernetes.io/hostname"},
    "volumeBindingMode": "WaitForFirstConsumer",
}
REQUEST_SECONDS = 10.0
THIEF = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "namespace": "elsewhere",
    "name": "thief",
    "uid": "7e1f0000-0000-4000-8000-000000000000",
}
"""A claim that nobody here knows."""


@dataclass(slots=True)
class Pods:
    client: LoadClient
    work: Work
    load: Load
    _deleted: int = 0
    _slow: int = 0
    """Pods whose storage takes its time, created so far."""
    _unsent: list[dict[str, Any]] = field(default_factory=list)
    """Of the next such pod, what the API has not taken yet."""
    _nodes: list[dict[str, Any]] = field(default_factory=list)
    """That are still to be given."""

    @classmethod
    def prepared(cls, url: str, work: Work) -> "Pods":
        """With the cluster made, and pods that will wait created; the load itself has not begun."""
        client = LoadClient(url)
        timeout = {} if work.timeout is None else {TIMEOUT_SECONDS: str(work.timeout)}
        load = Load(client, work.per_second, most=work.pods, name="pod", claims=work.claims, annotations=timeout)
        it = cls(client, work, load)
        made = list(cluster(work.nodes, work.volumes))
        it._nodes = [manifest for manifest in made if manifest["kind"] == "Node"]
        it._create([*(manifest for manifest in made if manifest["kind"] != "Node"), NEVER, SLOW])
        if not work.withheld:
            it.give_nodes()
        it._create(list(_stuck(work.stuck)))
        return it

    @property
    def sent(self) -> bool:
        return self.load.sent >= self.work.pods and self._slow >= self.work.slow

    @property
    def expected(self) -> int:
        """Pods that must have a node in the end."""
        return self.load.sent + self._slow

    def step(self, now: int) -> int:
        """What is due of the load; pods with slow storage are spread over it, and one comes before all others."""
        if self._slow < self.work.slow and self.load.sent * self.work.slow >= self._slow * self.work.pods:
            left = self._unsent or list(_with_class(f"slow-{self._slow}", 2, "slow"))
            # Claims first: what the API has not taken of them is sent again before the pod is.
            claims, pod = [it for it in left if it["kind"] != "Pod"], left[-1]
            self._unsent = [*self.client.create(claims), pod] if claims else self.client.create([pod])
            self._slow += not self._unsent
            return len(left) - len(self._unsent)
        return self.load.step(now)

    def give_nodes(self) -> None:
        self._create(self._nodes)
        self._nodes = []

    def delete_stuck(self) -> bool:
        """Whether all are gone; those that the API did not take are asked for again."""
        while self._deleted < self.work.stuck:
            url = f"{self.client.url}{PATHS['Pod']}/stuck-{self._deleted}-0"
            try:
                urllib.request.urlopen(
                    urllib.request.Request(url, method="DELETE"), timeout=REQUEST_SECONDS
                ).close()
            except urllib.error.HTTPError as error:
                if error.code != 404:
                    return False
            except (OSError, http.client.HTTPException):
                return False
            self._deleted += 1
        return True

    def give_away(self, volume: str) -> bool:
        """To a claim of somebody else; False: the API did not take it, ask again."""
        body = json.dumps({"spec": {"claimRef": THIEF}}).encode()
        url, form = f"{self.client.url}{PATHS['PersistentVolume']}/{volume}", "application/merge-patch+json"
        asked = urllib.request.Request(url, body, {"Content-Type": form}, method="PATCH")
        try:
            urllib.request.urlopen(asked, timeout=REQUEST_SECONDS).close()
        except (OSError, http.client.HTTPException):
            return False
        return True

    def close(self) -> None:
        self.client.close()

    def _create(self, manifests: list[dict[str, Any]]) -> None:
        for first in range(0, len(manifests), CONNECTIONS):
            left = manifests[first : first + CONNECTIONS]
            while left := self.client.create(left):
                time.sleep(LOOK_SECONDS)


def _stuck(count: int) -> Iterator[dict[str, Any]]:
    """Three claims each, of which nobody makes the last."""
    for number in range(count):
        yield from _with_class(f"stuck-{number}", 3, "never")


def _with_class(name: str, count: int, storage_class: str) -> Iterator[dict[str, Any]]:
    """A pod with so many claims, of which the last is of this class; it comes after them."""
    *claims, pod = pods_with_claims(name, 1, count)
    claims[-1]["spec"]["storageClassName"] = storage_class
    yield from (*claims, pod)


def is_slow(pod: str) -> bool:
    """Whether its storage takes its time."""
    return pod.partition("/")[2].startswith("slow-")


def bound_pods(database: Database) -> int:
    pods = tables.pods
    return _count(database, select(func.count()).select_from(pods).where(pods.c.node.is_not(None)))


def unbound_pods(database: Database) -> int:
    pods = tables.pods
    return _count(database, select(func.count()).select_from(pods).where(pods.c.node.is_(None)))


def open_bindings(database: Database) -> int:
    return _count(database, select(func.count()).select_from(tables.bindings).where(tables.bindings.c.open))


def queued_effects(database: Database) -> int:
    return _count(database, select(func.count()).select_from(tables.effects))


def unwritten_volumes(database: Database) -> dict[str, str]:
    """Open binding → a volume that it has decided on, and not written yet."""
    legs, bindings = tables.binding_legs, tables.bindings
    asked = (
        select(legs.c.binding, legs.c.volume)
        .join(bindings, bindings.c.id == legs.c.binding)
        .where(bindings.c.open, legs.c.state == LegPhase.ASSUMED, legs.c.volume.is_not(None))
        .order_by(legs.c.binding, legs.c.leg.desc())
    )
    with database.read() as connection:
        return {row.binding: row.volume for row in connection.execute(asked)}


def partly_bound(database: Database) -> int:
    """Open bindings of which some legs are bound and others are not."""
    legs, bindings = tables.binding_legs, tables.bindings
    done = func.count().filter(legs.c.state == LegPhase.BOUND)
    asked = (
        select(legs.c.binding)
        .join(bindings, bindings.c.id == legs.c.binding)
        .where(bindings.c.open)
        .group_by(legs.c.binding)
        .having(done > 0, done < func.count())
    )
    return _count(database, select(func.count()).select_from(asked.subquery()))


def _count(database: Database, asked: Any) -> int:
    with database.read() as connection:
        return int(connection.execute(asked).scalar() or 0)
