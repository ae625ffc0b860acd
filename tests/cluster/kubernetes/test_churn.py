"""An hour of a cluster's life over HTTP, with all that goes wrong there: what is known equals what is listed."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.cluster.conftest import TIME, over_http
from tests.support.churn import Churn
from tests.support.extent import extended, extent
from tests.support.fresh_stores import unsynced_store
from tests.support.patience import wait_until
from tests.support.serving import Served, served
from tests.support.store_samples import NOW, commit
from volsched.api.strict.server import FAULTS_PATH
from volsched.cluster.kubernetes.adapter import KubernetesCluster
from volsched.cluster.kubernetes.metadata_proof import compare
from volsched.cluster.local import LocalCluster
from volsched.cluster.observer import ClusterObserver
from volsched.cluster.port import Manifest, whole
from volsched.cluster.projection import project
from volsched.kube.kinds import key_of
from volsched.log.database import Database
from volsched.log.events.fold import ObjectState
from volsched.log.events.streams import NOUN_OF_KIND, OBSERVED_CLUSTER
from volsched.log.integrity.verify import verify
from volsched.log.reads.as_of import view_at_head
from volsched.log.reads.tail import read_head, read_stream
from volsched.runtime.clock import SECOND

KINDS = (
    "Namespace",
    "Node",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "VolumeAttachment",
    "Pod",
)
FAULTS = (
    "cut-watch",
    "silent-watch",
    "slow-watch",
    "too-many-requests",
    "lagging-replica",
    "no-streamed-lists",
    "expired-page",
)
SILENT_SECONDS = 0.5
HOUR = 3_600


@dataclass
class Followed:
    """A strict server on one store, an observer of it on another; both can be started again."""

    theirs: Database
    ours: Database
    now: int = NOW
    port: int = 0
    running: Served = field(init=False)
    cluster: KubernetesCluster = field(init=False)
    observer: ClusterObserver = field(init=False)
    _server: ExitStack = field(default_factory=ExitStack)
    _client: ExitStack = field(default_factory=ExitStack)

    def start_server(self) -> None:
        self._server.close()
        self.running = self._server.enter_context(served(self.theirs, strict=True, port=self.port))
        self.port = urlsplit(self.running.url).port or 0
        self.running.namespace("kube-system")
        self.running.namespace("db")

    def start_observer(self) -> None:
        self._client.close()
        url = f"http://127.0.0.1:{self.port}"
        adapter = over_http(url, silent_seconds=SILENT_SECONDS, kinds=KINDS, project=project)
        self.cluster = self._client.enter_context(adapter)
        self.observer = ClusterObserver(self.ours, self.cluster, list_versions=self.cluster.versions)
        self.observer.mirror.kinds = KINDS

    def close(self) -> None:
        self._client.close()
        self._server.close()

    def arm(self, fault: str) -> None:
        """Not faster than faults are met. Of a kind that waits to be met no second one is armed.

        A refused follower asks again after up to a minute: a thousand armed faults would take it hours to meet.
        """
        waiting = {it["fault"] for it in self.running.http.get(FAULTS_PATH).json()}
        if fault not in waiting:
            self.running.http.post(FAULTS_PATH, json={"fault": fault, "times": 2, "seconds": 0.05})

    def step(self, seconds: int) -> None:
        self.now += seconds * SECOND
        self.observer.step(self.now)

    def settle(self) -> None:
        """Until everything written is known; nobody writes meanwhile."""

        def is_equal() -> bool:
            self.step(1)
            return not self.differences()

        wait_until(is_equal, progress=lambda: self.observer.mirror.reached, told=self.differences)

    def differences(self) -> dict[str, Any]:
        """Kind → what is known, and what the cluster has: versions by the proof, objects by their content."""
        found: dict[str, Any] = {}
        for kind in KINDS:
            there = whole(self._direct.list(kind))
            versions = {key_of(kind, it): it["metadata"] for it in there.objects}
            known = self.observer.mirror.versions.get(kind, {})
            if {key: (it["uid"], it["resourceVersion"]) for key, it in versions.items()} != known:
                found[kind] = (known, versions)
            theirs = {key_of(kind, it): _content(project(kind, it)) for it in there.objects}
            if (ours := _known(self.ours, kind)) != theirs:
                found[f"{kind} content"] = (ours, theirs)
        return found

    @property
    def _direct(self) -> LocalCluster:
        return store_of(self.theirs)


def store_of(database: Database) -> LocalCluster:
    """The cluster's own store: writes and reads that no fault of HTTP concerns."""

    with database.read() as connection:
        uids = count(read_head(connection).position)
    return LocalCluster(
        database,
        partial(commit, database),
        new_uid=lambda: f"uid-{next(uids)}",
        now_text=lambda: TIME,
    )


def _content(manifest: Manifest | None) -> Manifest | None:
    """A version alone is no news to an observer."""
    if manifest is None:
        return None
    names = {name: value for name, value in manifest["metadata"].items() if name != "resourceVersion"}
    return {**manifest, "metadata": names}


def _known(database: Database, kind: str) -> dict[str, Any]:
    with database.read() as connection:
        found = view_at_head(connection).every(NOUN_OF_KIND[kind])
        return {key: _content(it.manifest) for key, it in found if isinstance(it, ObjectState)}


@pytest.fixture
def followed(tmp_path: Path, migrated_file: Path, sqlite: Database) -> Iterator[Followed]:
    with unsynced_store(shutil.copyfile(migrated_file, tmp_path / "theirs.db")) as theirs:
        followed = Followed(theirs, sqlite)
        followed.start_server()
        followed.start_observer()
        yield followed
        followed.close()


def play(followed: Followed, *, rounds: int, writes: int, seed: int) -> Churn:
    """An hour by the observer's clock, in so many rounds of up to so many writes each."""
    random = Random(seed)
    churn = Churn(store_of(followed.theirs), random)
    for round_ in range(rounds):
        for _ in range(random.randrange(writes)):
            churn.write()
        if random.random() < 0.3:
            followed.arm(random.choice(FAULTS))
        if round_ % (rounds // 4) == rounds // 8:
            followed.start_observer() if random.random() < 0.5 else followed.start_server()
        followed.step(HOUR // rounds)
        if round_ % (rounds // 6) == 0:
            followed.settle()
    followed.settle()
    return churn


def check(followed: Followed) -> None:
    with followed.ours.read() as connection:
        told = [it.type for it in read_stream(connection, OBSERVED_CLUSTER)]
    assert "MirrorDrift" not in told
    assert "ClusterRestored" not in told
    assert not verify(followed.ours).findings
    for kind in KINDS:
        listed = [it for page, _ in followed.cluster.versions(kind) for it in page]
        assert not compare(listed, followed.observer.mirror.versions[kind], cursor=str(10**9))


@extended
def test_an_observer_equals_its_cluster_after_an_hour_in_which_everything_goes_wrong(followed: Followed) -> None:
    churn = play(followed, rounds=extent(60, 3_600), writes=8, seed=1)
    assert churn.writes > 100
    check(followed)
