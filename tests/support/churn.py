"""A cluster in which things come, change and go, by chance that can be repeated: whoever follows it has work."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.support.port_manifests import claim, node, pod, volume
from volsched.cluster.port import CallRefusedError, Cluster
from volsched.kube.kinds import key_of

Maker = Callable[[str], tuple[str, dict[str, Any]]]


def _class(name: str) -> tuple[str, dict[str, Any]]:
    made = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
    return "StorageClass", {**made, "provisioner": "disk.example.com"}


def _attachment(name: str) -> tuple[str, dict[str, Any]]:
    made = {"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": name}}
    source = {"persistentVolumeName": f"pv-{name}"}
    return "VolumeAttachment", {
        **made,
        "spec": {"attacher": "disk.example.com", "nodeName": "n", "source": source},
    }


MAKERS: tuple[Maker, ...] = (
    lambda name: ("Node", node(f"n-{name}")),
    lambda name: ("PersistentVolume", volume(f"pv-{name}", on=f"n-{name}")),
    lambda name: ("PersistentVolumeClaim", claim(f"c-{name}")),
    lambda name: ("Pod", pod(f"p-{name}", f"c-{name}")),
    # The same name, with claims and without: a follower keeps them in two places.
    lambda name: ("Pod", pod(f"p-{name}")),
    _class,
    _attachment,
)


@dataclass
class Churn:
    cluster: Cluster
    random: Random
    names: int = 12
    """Few, so that things are made again under a name that was there before."""
    writes: int = field(default=0, init=False)

    def write(self) -> None:
        """One create, change or deletion, as it comes; what is refused is no write."""
        kind, manifest = self.random.choice(MAKERS)(str(self.random.randrange(self.names)))
        key = key_of(kind, manifest)
        held = self.cluster.get(kind, key)
        with suppress(CallRefusedError):
            if held is None:
                self.cluster.create(kind, manifest)
            elif self.random.random() < 0.3:
                self.cluster.delete(kind, key)
            else:
                self._change(kind, key, held["metadata"]["resourceVersion"])
            self.writes += 1

    def _change(self, kind: str, key: str, version: str) -> None:
        """Half of the changes are of a label, which is kept; the others of what nobody keeps."""
        value = str(self.random.randrange(1_000))
        where = "labels" if self.random.random() < 0.5 else "annotations"
        self.cluster.patch(kind, key, {"metadata": {where: {"example.com/churn": value}}}, version=version)
