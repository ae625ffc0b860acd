"""Every cluster that we can play, behind the one port."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from random import Random

import pytest

from tests.support.fresh_stores import unsynced
from tests.support.patience import HANG_SECONDS
from tests.support.real_cluster import GivenAccess, refusal_of_writes
from tests.support.serving import served
from tests.support.store_samples import commit
from volsched.cluster.foreign_api import ForeignApi
from volsched.cluster.kubernetes import requests
from volsched.cluster.kubernetes.adapter import KubernetesCluster, attach
from volsched.cluster.kubernetes.backoff import TokenBucket
from volsched.cluster.kubernetes.kubeconfig import ClusterAccess
from volsched.cluster.kubernetes.streams import reading
from volsched.cluster.kubernetes.transport import Transport
from volsched.cluster.local import LocalCluster
from volsched.cluster.port import KUBERNETES, CallRefusedError, Capabilities, Cluster, whole
from volsched.cluster.projection import Projection, everything
from volsched.cluster.simulated import SimulatedCluster
from volsched.kube.kinds import key_of
from volsched.log.database import open_database

WATCHED = ("Node", "PersistentVolume", "PersistentVolumeClaim", "Pod")
UNLIMITED = 1e6
TIME = "2026-11-16T12:00:00Z"


@contextmanager
def over_http(
    url: str,
    *,
    silent_seconds: float = HANG_SECONDS,
    kinds: Sequence[str] = WATCHED,
    project: Projection = everything,
    mode: str = "observe",
    capabilities: Capabilities = KUBERNETES,
) -> Iterator[KubernetesCluster]:
    transport = attach(
        ClusterAccess(server=url),
        mode=mode,
        bucket=TokenBucket(UNLIMITED, UNLIMITED),
        silent_seconds=silent_seconds,
    )
    adapter = KubernetesCluster(
        transport, kinds=kinds, random=Random(1), project=project, capabilities=capabilities
    )
    with reading(list(adapter.streams.values())):
        yield adapter
    adapter.close()


def real_cluster(given: GivenAccess) -> Iterator[Cluster]:
    """A scratch control plane of this machine, without controllers; whatever it has of our kinds is deleted."""
    transport = attach(given.access, bucket=TokenBucket(UNLIMITED, UNLIMITED))
    adapter = KubernetesCluster(transport, kinds=WATCHED)
    if (refusal := refusal_of_writes(given, adapter.describe().uid)) is not None:
        pytest.skip(refusal)
    empty(adapter, transport)
    with suppress(CallRefusedError):
        adapter.create("Namespace", {"metadata": {"name": "db"}})
    with reading(list(adapter.streams.values())):
        yield adapter
    empty(adapter, transport)
    adapter.close()


def empty(adapter: KubernetesCluster, transport: Transport) -> None:
    for kind in WATCHED:
        for manifest in whole(adapter.list(kind)).objects:
            key = key_of(kind, manifest)
            if manifest["metadata"].get("finalizers"):
                version = manifest["metadata"]["resourceVersion"]
                adapter.patch(kind, key, {"metadata": {"finalizers": None}}, version=version)
            request = requests.delete(kind, key, uid=None, version=None)
            assert request.body is not None
            with suppress(CallRefusedError):
                transport.call(replace(request, body={**request.body, "gracePeriodSeconds": 0}))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The port's suite, over every cluster that there is; a real one only where somebody names it."""
    if metafunc.module.__name__.rpartition(".")[2] == "test_port" and "cluster" in metafunc.fixturenames:
        real = (
            [pytest.param("real", marks=pytest.mark.real_cluster)]
            if metafunc.config.getoption("--kubeconfig") and metafunc.config.getoption("--empty-it")
            else []
        )
        metafunc.parametrize(
            "cluster", ["local", "simulated", "simulated in pages", "kubernetes", *real], indirect=True
        )


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path, migrated_file: Path) -> Iterator[Cluster]:
    if request.param == "real":
        option = request.config.getoption
        yield from real_cluster(
            GivenAccess(
                kubeconfig=Path(option("--kubeconfig")),
                context=option("--context"),
                allow_writes=option("--allow-writes"),
                confirmed_uid=option("--yes-this-cluster"),
            )
        )
        return
    if request.param.startswith("simulated"):
        page_size = 1 if request.param.endswith("pages") else 500
        yield SimulatedCluster(ForeignApi(now_text=lambda: TIME, page_size=page_size), Random(1))
        return
    database = open_database(f"sqlite:///{shutil.copyfile(migrated_file, tmp_path / 'store.db')}")
    unsynced(database)
    if request.param == "kubernetes":
        # Our own API plays the real one: what it takes and answers goes over HTTP.
        with served(database, strict=True) as running, over_http(running.url) as adapter:
            running.namespace("db")
            yield adapter
        database.close()
        return

    uids = count(1)
    yield LocalCluster(
        database,
        partial(commit, database),
        new_uid=lambda: f"uid-{next(uids)}",
        now_text=lambda: TIME,
    )
    database.close()
