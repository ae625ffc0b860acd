"""Clusters whose volumes are directories under a root, and what there is under it."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.clusters import node
from tests.support.storage import CLAIM, VOLUME, Cluster, made_by
from volsched.log.database import Database
from volsched.provisioning.host_path import HOST_PATH, RECORDS, HostPath

on_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


def directories(root: Path) -> set[str]:
    """What there is under the root, which must be what there are records of."""
    found = {it.name for it in root.iterdir()} - {RECORDS}
    assert found == {it.name for it in (root / RECORDS).iterdir()}
    return found


def on_host(database: Database, root: Path, *objects: dict[str, Any], **parts: Any) -> Cluster:
    given = [made_by(HOST_PATH), node("n1"), *objects] if objects else []
    return Cluster(database, given, provisioners=[HostPath(root)], **parts)


def bound(cluster: Cluster, name: str = "app") -> Cluster:
    cluster.until(lambda: cluster.node_of(name) is not None, steps=300)
    return cluster


def give_up(cluster: Cluster, name: str = "data") -> Cluster:
    """Pod and claim are deleted."""
    cluster.delete("Pod", "app")
    cluster.delete(CLAIM, name)
    cluster.rest()
    return cluster


def with_policy(cluster: Cluster, policy: str) -> None:
    held = cluster.volume()
    cluster.cluster.update(VOLUME, {**held, "spec": {**held["spec"], "persistentVolumeReclaimPolicy": policy}})
