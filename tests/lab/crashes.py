"""A small cluster under load that crashes at random places, restarts, and must come to rest in order.

Everything follows from a seed: the cluster, what users and foreign writers do, where the process breaks. A crash
is stepped: the process's memory is thrown away at a named place and a new one starts on the same store. What a
run counts is the crashes that really happened.
"""

import itertools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from sqlalchemy import select

from tests.support.clusters import LOCAL, MADE, START, claim, node, pod, volume
from tests.support.store_samples import commit
from volsched.binding.rules.phases import Phase
from volsched.cluster.local import LocalCluster
from volsched.cluster.port import CallRefusedError, Refusal, whole
from volsched.kube.meta import SELECTED_NODE
from volsched.log import tables
from volsched.log.commands import Command, Done
from volsched.log.database import Database
from volsched.log.integrity.verify import verify
from volsched.questions.invariants import Violation, violations
from volsched.runtime import fault_points
from volsched.runtime.clock import SECOND
from volsched.runtime.system import System, embedded
from volsched.scheduling.pod_reservations import (
    NotToBeReservedError,
    ReservationRequest,
    Reserver,
    UnknownPodError,
)

NODES = ("node-0", "node-1", "node-2")
ROUNDS = 100
CRASH_CHANCE = 0.25
"""At each named place."""
CALM_STEPS = 400
LOOK_EVERY = 8


@dataclass
class Run:
    seed: int
    database: Database
    crashes: int = 0
    now: int = START
    rng: Random = field(init=False)
    system: System = field(init=False)

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.ids = itertools.count(1)
        self.start()

    def start(self) -> None:
        """A new process: nothing is left of the one before but the store."""
        owner = f"run-{next(self.ids)}"
        self.system = embedded(
            self.database,
            owner=owner,
            clock=lambda: self.now,
            new_id=lambda: f"id-{next(self.ids):05}",
            stepwise=self.seed % 2 == 0,
        )

    @property
    def cluster(self) -> LocalCluster:
        assert isinstance(self.system.executor.cluster, LocalCluster)
        return self.system.executor.cluster

    def play(self) -> list[Violation]:
        """The whole run; answers what was wrong when it had come to rest."""
        self._build()
        try:
            for number in range(ROUNDS):
                self._round()
                if number % LOOK_EVERY == 0:
                    self._look()
        finally:
            fault_points.arm(None, drill=False)
        self._calm_down()
        with self.database.read() as connection:
            found = violations(connection, at_rest=True)
        report = verify(self.database)
        return found + [Violation(5, str(finding)) for finding in report.findings]

    def _build(self) -> None:
        rng = self.rng
        objects: list[dict[str, Any]] = [LOCAL, MADE, *map(node, NODES)]
        for number in range(rng.randint(4, 9)):
            objects.append(volume(f"disk-{number}", f"{rng.randint(2, 9)}Gi", rng.choice(NODES)))
        for number in range(rng.randint(3, 6)):
            names = [f"data-{number}-{index}" for index in range(rng.randint(1, 3))]
            for name in names:
                objects.append(claim(name, f"{rng.randint(1, 7)}Gi", rng.choice(("local", "local", "made"))))
            objects.append(pod(f"pod-{number}", *names))
        for manifest in objects:
            self.cluster.create(manifest["kind"], manifest)

    def _round(self) -> None:
        self.now += self.rng.randint(0, 2 * SECOND)
        fault_points.arm(self._maybe_crash, drill=True)
        try:
            self.system.executor = replace(self.system.executor, batch=self.rng.choice((1, 2, 100)))
            self.system.step(self.now)
        except fault_points.FaultError:
            self.crashes += 1
            fault_points.arm(None, drill=False)
            self.now += self.rng.randint(0, 40 * SECOND)
            self.start()
        fault_points.arm(None, drill=False)
        if self.rng.random() < 0.3:
            self._interfere()

    def _look(self) -> None:
        with self.database.read() as connection:
            wrong = violations(connection, at_rest=False)
        assert wrong == [], f"seed {self.seed}: {wrong}"

    def _maybe_crash(self, _point: str) -> None:
        if self.rng.random() < CRASH_CHANCE:
            raise fault_points.FaultError

    def _interfere(self) -> None:
        """Somebody else does something, and may well be refused."""
        deeds = (
            self._provision, self._provision, self._relabel, self._steal, self._use, self._delete,
            self._reserve, self._lease,
        )  # fmt: skip
        with suppress(CallRefusedError, NotToBeReservedError, UnknownPodError):
            self.rng.choice(deeds)()

    def _provision(self) -> None:
        """An external provisioner: a volume for a claim that has a node, and none for one that let go of it."""
        for it in whole(self.cluster.list("PersistentVolume")).objects:
            made = "pv.kubernetes.io/provisioned-by" in it["metadata"].get("annotations", {})
            if made and it["status"]["phase"] == "Released" and "deletionTimestamp" not in it["metadata"]:
                self.cluster.delete("PersistentVolume", it["metadata"]["name"])
        for it in whole(self.cluster.list("PersistentVolumeClaim")).objects:
            host = it["metadata"].get("annotations", {}).get(SELECTED_NODE)
            if host and not it["spec"].get("volumeName") and it["spec"]["storageClassName"] == "made":
                disk = volume(f"pvc-{it['metadata']['uid']}", "9Gi", host, "made")
                disk["metadata"]["annotations"] = {"pv.kubernetes.io/provisioned-by": "disks.example.com"}
                names = {key: it["metadata"][key] for key in ("namespace", "name", "uid")}
                disk["spec"]["claimRef"] = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", **names}
                disk["spec"]["persistentVolumeReclaimPolicy"] = "Delete"
                self.cluster.create("PersistentVolume", disk)

    def _relabel(self) -> None:
        it = self._any("PersistentVolume")
        labels = {"touched": str(self.rng.randint(0, 9))}
        self.cluster.update("PersistentVolume", {**it, "metadata": {**it["metadata"], "labels": labels}})

    def _steal(self) -> None:
        it = self._any("PersistentVolume")
        if "claimRef" not in it["spec"]:
            thief = {"kind": "PersistentVolumeClaim", "namespace": "elsewhere", "name": "thief", "uid": "thief"}
            self.cluster.update("PersistentVolume", {**it, "spec": {**it["spec"], "claimRef": thief}})

    def _use(self) -> None:
        """A node agent starts a pod: its claims may hold data from now on."""
        it = self._any("Pod")
        if it["spec"].get("nodeName"):
            for mount in it["spec"].get("volumes", ()):
                key = f"default/{mount['persistentVolumeClaim']['claimName']}"
                held = self.cluster.get("PersistentVolumeClaim", key) or {}
                used = {**held, "status": {**held["status"], "dataState": "Dirty"}}
                self.cluster.update("PersistentVolumeClaim", used, status=True)

    def _delete(self) -> None:
        it = self._any("Pod")
        if not it["spec"].get("nodeName") and self.rng.random() < 0.3:
            self.cluster.delete("Pod", f"default/{it['metadata']['name']}")

    def _reserve(self) -> None:
        """Somebody holds volumes for a pod, for a while that is over before a run has come to rest."""
        name = self._any("Pod")["metadata"]["name"]
        asked = ReservationRequest(pod=f"default/{name}", seconds=self.rng.randint(1, 30))
        self._reserver().reserve(asked, actor="somebody", now=self.now)

    def _lease(self) -> None:
        """Whoever holds something confirms it, renews it, or gives it up."""
        bindings = tables.bindings
        with self.database.read() as connection:
            asked = select(bindings.c.id).where(bindings.c.state == Phase.RESERVED).order_by(bindings.c.id)
            held = list(connection.execute(asked).scalars())
        if held:
            binding, reserver = self.rng.choice(held), self._reserver()
            acts: tuple[Callable[[], None], ...] = (
                lambda: reserver.confirm(binding, actor="somebody", now=self.now),
                lambda: reserver.renew(binding, seconds=20, actor="somebody", now=self.now),
                lambda: reserver.cancel(binding, reason="no longer needed", actor="somebody"),
            )
            self.rng.choice(acts)()

    def _reserver(self) -> Reserver:
        return Reserver(self.database, self._append, lambda: f"id-{next(self.ids):05}")

    def _append(self, command: Command) -> Done:
        return commit(self.database, command, now=self.now)

    def _any(self, kind: str) -> dict[str, Any]:
        """Refused, like anything else that cannot be done, where there is none."""
        found = whole(self.cluster.list(kind)).objects
        if not found:
            raise CallRefusedError(Refusal.NOT_FOUND, f"there is no {kind} any more")
        return dict(self.rng.choice(found))

    def _calm_down(self) -> None:
        """No more faults: provisioners answer, and everything comes to rest."""
        still = 0
        for _ in range(CALM_STEPS):
            self.now += 2 * SECOND
            with suppress(CallRefusedError):
                self._provision()
            before = self.system.world.position
            self.system.step(self.now)
            self.system.catch_up(self.now)
            # By what is written: the controller looks at everything now and then, which is no sign of anything.
            still = still + 1 if self.system.world.position == before else 0
            # Beyond a lease of a crashed worker and every back-off.
            if still > 20:
                return
