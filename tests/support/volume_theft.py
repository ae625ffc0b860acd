"""Somebody takes a volume away."""

from dataclasses import replace

import pytest

from tests.support.clusters import LOCAL, Stepped, claim, node, pod, volume
from volsched.log.database import Database

DISKS = (
    volume("n1-small", "3Gi", "node-1"),
    volume("n1-large", "7Gi", "node-1"),
    volume("n0-small", "4Gi", "node-0"),
    volume("n0-large", "8Gi", "node-0"),
    claim("small", "2Gi"),
    claim("large", "6Gi"),
)
CLUSTER = (LOCAL, node("node-0"), node("node-1"), *DISKS)


@pytest.fixture
def stepped(database: Database) -> Stepped:
    stepped = Stepped(database, CLUSTER)
    stepped.settle()
    stepped.create(pod("db", "small", "large"))
    # One effect at a time, so that there is a moment between the two writes.
    stepped.system.executor = replace(stepped.system.executor, batch=1)
    return stepped


def take(stepped: Stepped, name: str) -> None:
    """A foreign writer gives the volume to a claim of its own."""
    found = dict(stepped.cluster.get("PersistentVolume", name) or {})
    owner = {"kind": "PersistentVolumeClaim", "namespace": "elsewhere", "name": "thief", "uid": "uid-thief"}
    stepped.cluster.update("PersistentVolume", {**found, "spec": {**found["spec"], "claimRef": owner}})
