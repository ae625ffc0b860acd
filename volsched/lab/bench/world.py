"""What pods are bound in where binding is measured: nodes with local volumes, and pods with claims for them."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from volsched.lab.bench.log import must
from volsched.log.commands import Command
from volsched.log.database import Database
from volsched.log.transaction import execute
from volsched.objects import door
from volsched.objects.object_write import Author
from volsched.runtime.clock import SECOND

Clock = Callable[[], float]
CREATED_TOGETHER = 200
BIRTH = "2026-01-01T00:00:00Z"


def create(database: Database, manifests: Iterator[dict[str, Any]], ids: Iterator[str], clock: Clock) -> None:
    while batch := list(itertools.islice(manifests, CREATED_TOGETHER)):
        must(execute(database, [_creating(it, next(ids)) for it in batch], now=micros(clock())))


def _creating(manifest: dict[str, Any], uid: str) -> Command:
    return door.create(manifest["kind"], manifest, Author("bench", BIRTH), uid=uid).command


def cluster(nodes: int, volumes: int) -> Iterator[dict[str, Any]]:
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bench"}}
    yield {
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
    }  # fmt: skip
    for number in range(nodes):
        name = f"node-{number:05}"
        labels = {"kubernetes.io/hostname": name}
        yield {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    for number in range(volumes):
        host = {
            "key": "kubernetes.io/hostname",
            "operator": "In",
            "values": [f"node-{number % nodes:05}"],
        }
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"disk-{number:06}"},
            "spec": {
                "capacity": {"storage": f"{10 + number % 7}Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "local",
                "persistentVolumeReclaimPolicy": "Retain",
                "local": {"path": f"/mnt/{number}"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [host]}]}},
            },
        }


def pods_with_claims(name: str, pods: int, claims: int) -> Iterator[dict[str, Any]]:
    for number in range(pods):
        names = [f"{name}-{number}-{claim}" for claim in range(claims)]
        for claim in names:
            yield {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": claim, "namespace": "bench"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": "local",
                    "resources": {"requests": {"storage": "9Gi"}},
                },
            }
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{number}", "namespace": "bench"},
            "spec": {"containers": [{"name": "main", "image": "app"}], "volumes": _mounts(names)},
        }


def _mounts(claims: Sequence[str]) -> list[dict[str, Any]]:
    return [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": name}} for i, name in enumerate(claims)]


def micros(seconds: float) -> int:
    return int(seconds * SECOND)
