"""A cluster that somebody else runs: what may be read there, and how little may be written, and by whose word.

Writes need three things at once: `--allow-writes`, a server on loopback, and the uid of its namespace kube-system
on the command line, so that no forgotten kubeconfig is ever written to. What is made carries a label and is
deleted by its uid, also after a failure.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import SystemRandom
from typing import Any
from urllib.parse import urlsplit

from volsched.cluster.kubernetes.access_files import find_access
from volsched.cluster.kubernetes.adapter import KubernetesCluster, attach
from volsched.cluster.kubernetes.backoff import TokenBucket
from volsched.cluster.kubernetes.kubeconfig import ClusterAccess
from volsched.cluster.port import CallRefusedError, Manifest
from volsched.kube.kinds import KINDS, key_of

LABEL = "volsched.io/test"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
UNLIMITED = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenAccess:
    """As the command line of pytest has it."""

    kubeconfig: Path
    context: str | None = None
    allow_writes: bool = False
    confirmed_uid: str | None = None

    @property
    def access(self) -> ClusterAccess:
        return find_access(self.kubeconfig, self.context)


def refusal_of_writes(given: GivenAccess, uid: str | None) -> str | None:
    """Why nothing may be written to the cluster of this uid; None: it may."""
    if not given.allow_writes:
        return "nothing is written without --allow-writes"
    if (host := urlsplit(given.access.server).hostname) not in LOOPBACK:
        return f"{host} is not this machine: nothing is written to a cluster elsewhere"
    if uid is None or given.confirmed_uid != uid:
        return f"confirm which cluster is written to with --yes-this-cluster {uid} (the uid of kube-system)"
    return None


@contextmanager
def opened_cluster(given: GivenAccess, **options: Any) -> Iterator[KubernetesCluster]:
    cluster = KubernetesCluster(attach(given.access, bucket=TokenBucket(UNLIMITED, UNLIMITED)), **options)
    try:
        yield cluster
    finally:
        cluster.close()


@dataclass
class TestObjects:
    """Everything that a test makes; nothing of it is ever mounted, because no node has the label it asks for."""

    __test__ = False
    cluster: KubernetesCluster
    run: str = field(default_factory=lambda: f"{SystemRandom().getrandbits(40):010x}")
    made: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Of the namespace, of the class, and before the name of everything else."""
        return f"volsched-test-{self.run}"

    def create(self, kind: str, manifest: Manifest) -> Manifest:
        names: dict[str, Any] = {**manifest["metadata"], "labels": {LABEL: self.run}}
        if KINDS[kind].namespaced:
            names["namespace"] = self.name
        whole = {"apiVersion": KINDS[kind].api_version, "kind": kind, **manifest, "metadata": names}
        made = self.cluster.create(kind, whole)
        self.made.append((kind, key_of(kind, made), made["metadata"]["uid"]))
        return made

    def volume(self, name: str) -> Manifest:
        nowhere = {"key": LABEL, "operator": "In", "values": [self.run]}
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": self.name,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": "/nowhere"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [nowhere]}]}},
        }
        return self.create("PersistentVolume", {"metadata": {"name": f"{self.name}-{name}"}, "spec": spec})

    def claim(self, name: str) -> Manifest:
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": self.name,
        }
        return self.create("PersistentVolumeClaim", {"metadata": {"name": name}, "spec": spec})

    def begin(self) -> None:
        self.create("Namespace", {"metadata": {"name": self.name}})
        lazily = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
        self.create("StorageClass", {"metadata": {"name": self.name}, **lazily})

    def delete(self) -> list[str]:
        """The last first; answers what is left, which a controller may still hold by a finalizer."""
        left = []
        for kind, key, uid in reversed(self.made):
            with suppress(CallRefusedError):
                self.cluster.delete(kind, key, uid=uid)
            held = self.cluster.get(kind, key)
            if held is not None and held["metadata"]["uid"] == uid and "deletionTimestamp" not in held["metadata"]:
                left.append(f"{kind} {key}")
        return left
