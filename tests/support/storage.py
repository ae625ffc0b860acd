"""Clusters whose volumes are made on demand: by our own provisioners, or by one in a process of its own."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.support.clusters import Manifest, Stepped, claim, node, pod
from volsched.cluster.port import whole
from volsched.log.database import Database
from volsched.provisioning.external import External
from volsched.provisioning.protocol import Surroundings, Unfinished
from volsched.provisioning.simulated import SIMULATED, Array, Simulated
from volsched.pv_controller.rules import PluginError, Provision, VolumePlugin
from volsched.runtime.clock import SECOND
from volsched.runtime.world import World

ZONE = "topology.kubernetes.io/zone"
OUTSIDE = "sim.example.com"
CLAIM, VOLUME = "PersistentVolumeClaim", "PersistentVolume"


def made_by(
    provisioner: str,
    name: str = "made",
    *,
    policy: str = "Delete",
    mode: str = "WaitForFirstConsumer",
    **fields: Any,
) -> Manifest:
    """A class. What is not a field of one is a parameter."""
    known = {key: fields.pop(key) for key in ("allowedTopologies", "mountOptions") if key in fields}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "reclaimPolicy": policy,
        "volumeBindingMode": mode,
        "parameters": fields,
        **known,
    }


def csi_node(name: str, driver: str = OUTSIDE, keys: Iterable[str] = (ZONE,)) -> Manifest:
    drivers = [{"name": driver, "nodeID": name, "topologyKeys": list(keys)}]
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name},
        "spec": {"drivers": drivers},
    }


def in_zones(zones: str) -> list[Manifest]:
    """A node, with its CSINode, for every zone: `n-a` in zone `a`."""
    nodes = [node(f"n-{zone}", **{ZONE: zone}) for zone in zones]
    return [*nodes, *(csi_node(f"n-{zone}") for zone in zones)]


def asked(name: str = "data", size: str = "5Gi", class_name: str = "made", **spec: Any) -> Manifest:
    wanted = claim(name, size, class_name)
    return {**wanted, "spec": {**wanted["spec"], **spec}}


class Cluster(Stepped):
    """A stepped system with eyes for what provisioners do; with an array it has a provisioner outside too."""

    def __init__(
        self, database: Database, objects: Iterable[Manifest] = (), *, outside: Array | None = None, **parts: Any
    ) -> None:
        super().__init__(database, **parts)
        self.outside: External | None = None
        if outside is not None:
            world = World(database)
            ids = iter(range(1, 1_000_000))
            self.outside = External(database, world, OUTSIDE, outside, lambda: f"outside-{next(ids)}")
        self.create(*objects)

    def step(self, *, after: int = 0) -> int:
        progress = super().step(after=after)
        if self.outside is not None:
            self.outside.update(self.outside.world.catch_up(), self.now)
            progress += self.outside.step(self.now)
        return progress

    def rest(self, *, after: int = SECOND, quiet: int = 4, steps: int = 400) -> None:
        """Step until nothing has moved for some time."""
        still = 0
        for _ in range(steps):
            still = 0 if self.step(after=after) else still + 1
            if still >= quiet:
                return
        raise AssertionError(f"something still moves after {steps} steps")

    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.step(after=SECOND)

    def delete(self, kind: str, name: str) -> None:
        self.cluster.delete(kind, name if kind == VOLUME else f"default/{name}")

    def claim(self, name: str = "data") -> Any:
        return self.cluster.get(CLAIM, f"default/{name}")

    def volume(self, name: str = "data") -> Any:
        """The volume that the claim is bound to."""
        bound = self.volume_of(name)
        return None if bound is None else self.cluster.get(VOLUME, bound)

    def volumes(self) -> dict[str, Any]:
        return {it["metadata"]["name"]: it for it in whole(self.cluster.list(VOLUME)).objects}

    def zones(self, name: str = "data") -> list[str]:
        terms = self.volume(name)["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        return [value for term in terms for it in term["matchExpressions"] for value in it["values"]]

    def notes(self, name: str = "data") -> dict[str, str]:
        return dict(self.claim(name)["metadata"].get("annotations", {}))

    def told(self, reason: str | None = None) -> list[str]:
        events = whole(self.cluster.list("Event")).objects
        return [it["message"] if reason else it["reason"] for it in events if reason in (None, it["reason"])]


@dataclass
class Kit:
    """One way to provision with an array: the class, and the cluster in which it works."""

    array: Array
    external: bool

    @property
    def provisioner(self) -> str:
        return OUTSIDE if self.external else SIMULATED

    def cluster(self, database: Database, *objects: Manifest, zones: str = "ab", **parts: Any) -> Cluster:
        """Again on the same store it is the same array, as storage survives those who use it."""
        ours = {} if self.external else {"provisioners": [Simulated(self.array)]}
        outside = self.array if self.external else None
        return Cluster(
            database, [*(in_zones(zones) if objects else ()), *objects], outside=outside, **ours, **parts
        )

    def made(self, **fields: Any) -> Manifest:
        return made_by(self.provisioner, **fields)


def using(name: str = "app", *claims: str, seconds: int | None = None) -> Manifest:
    """A pod that waits so long for its volumes."""
    notes = {} if seconds is None else {"volsched.io/bind-timeout-seconds": str(seconds)}
    return pod(name, *(claims or ("data",)), annotations=notes)


class Scripted:
    """A provisioner that does what a test says, call by call; the last word holds for ever."""

    plugin = VolumePlugin(name="volsched.io/scripted", sources=frozenset())

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls: list[str] = []

    def provision(self, request: Provision, now: int) -> Any:
        self.calls.append(request.volume_name)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return Unfinished(now + SECOND) if answer is None else answer

    def delete(self, volume: Any, now: int) -> Unfinished | None:  # noqa: ARG002
        self.calls.append(f"delete {volume['metadata']['name']}")
        return None

    def recycle(self, volume: Any, now: int) -> Unfinished | None:  # noqa: ARG002
        raise PluginError("not here")

    def observe(self, surroundings: Surroundings) -> None: ...

    def capacities(self) -> tuple[()]:
        return ()

    def volume_names(self) -> tuple[()]:
        return ()

    def discard(self, name: str) -> bool:  # noqa: ARG002
        return False
