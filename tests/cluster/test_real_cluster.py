"""A cluster that somebody names with --kubeconfig: read first, and written to only where that is confirmed.

`pytest -m real_cluster --kubeconfig FILE [--context NAME] [--allow-writes --yes-this-cluster UID]`
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.extent import extent
from tests.support.patience import wait_until
from tests.support.real_cluster import GivenAccess, TestObjects, opened_cluster, refusal_of_writes
from volsched.cluster.kubernetes.adapter import KubernetesCluster
from volsched.cluster.kubernetes.streams import reading
from volsched.cluster.observer import PROOF_EVERY, ClusterObserver
from volsched.cluster.permissions import MODES, OBSERVE
from volsched.cluster.port import CallRefusedError, Refusal, whole
from volsched.cluster.projection import OBSERVED_KINDS, project
from volsched.log.database import Database
from volsched.log.observed_cluster import drifted_kinds
from volsched.runtime.clock import SECOND, system_clock

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "%s"}}]
users: [{name: u, user: {token: t}}]
"""


@pytest.fixture
def given(pytestconfig: pytest.Config) -> GivenAccess:
    if pytestconfig.getoption("--kubeconfig") is None:
        pytest.skip("name a cluster with --kubeconfig")
    return GivenAccess(
        kubeconfig=Path(pytestconfig.getoption("--kubeconfig")),
        context=pytestconfig.getoption("--context"),
        allow_writes=pytestconfig.getoption("--allow-writes"),
        confirmed_uid=pytestconfig.getoption("--yes-this-cluster"),
    )


@pytest.fixture
def real(given: GivenAccess) -> Iterator[KubernetesCluster]:
    with opened_cluster(given, kinds=OBSERVED_KINDS, project=project) as cluster:
        yield cluster


@pytest.fixture
def objects(given: GivenAccess) -> Iterator[TestObjects]:
    with opened_cluster(given, kinds=()) as cluster:
        refusal = refusal_of_writes(given, cluster.describe().uid)
        if refusal is not None:
            pytest.skip(refusal)
        made = TestObjects(cluster)
        try:
            made.begin()
            yield made
        finally:
            assert made.delete() == []


@pytest.mark.parametrize(
    ("server", "changed", "says"),
    [
        ("https://127.0.0.1:6443", {"allow_writes": False}, "--allow-writes"),
        ("https://prod.example.com", {}, "prod.example.com is not this machine"),
        ("https://127.0.0.1:6443", {"confirmed_uid": None}, "--yes-this-cluster cluster-1"),
        ("https://127.0.0.1:6443", {"confirmed_uid": "cluster-2"}, "--yes-this-cluster cluster-1"),
        ("https://127.0.0.1:6443", {}, None),
    ],
)
def test_nothing_is_written_without_every_confirmation(
    tmp_path: Path, server: str, changed: dict[str, bool | None], says: str | None
) -> None:
    file = tmp_path / "config"
    file.write_text(KUBECONFIG % server)
    asked = GivenAccess(kubeconfig=file, allow_writes=True, confirmed_uid="cluster-1")
    refusal = refusal_of_writes(replace(asked, **changed), "cluster-1")  # type: ignore[arg-type]
    assert refusal is None if says is None else says in str(refusal)


@pytest.mark.real_cluster
def test_it_says_who_it_is_and_what_we_may(real: KubernetesCluster) -> None:
    identity = real.describe(MODES[OBSERVE])
    assert identity.trouble is None
    assert identity.uid
    assert identity.version is not None
    assert all(identity.may.values()), f"missing: {[it for it, may in identity.may.items() if not may]}"
    assert not identity.unserved


@pytest.mark.real_cluster
def test_what_is_followed_is_what_is_listed(real: KubernetesCluster, sqlite: Database) -> None:
    """List, watch for a minute, list again: nothing differs by uid or version."""
    observer = ClusterObserver(sqlite, real, list_versions=real.versions)
    start = system_clock()
    with reading(list(real.streams.values())):
        wait_until(lambda: observer.step(system_clock()) == 0 and observer.mirror.is_listed)

        def is_over() -> bool:
            observer.step(system_clock())
            return system_clock() > start + extent(5, 60) * SECOND

        wait_until(is_over, progress=system_clock)
        # A whole round of the proof, by a clock that runs ahead: every kind twice, a minute apart.
        later = system_clock() + PROOF_EVERY
        for step in range(2 * len(OBSERVED_KINDS) + 20):
            observer.step(later + step * 10 * SECOND)
    with sqlite.read() as connection:
        assert drifted_kinds(connection) == []


@pytest.mark.real_cluster
def test_a_volume_is_promised_at_the_version_that_was_read_and_no_other(objects: TestObjects) -> None:
    cluster = objects.cluster
    volume, claim = objects.volume("disk"), objects.claim("data")
    key = volume["metadata"]["name"]
    names = claim["metadata"]
    reference = {"kind": "PersistentVolumeClaim", "namespace": names["namespace"], "name": names["name"]}
    promise = {"spec": {"claimRef": {**reference, "uid": names["uid"]}}}
    with pytest.raises(CallRefusedError) as refused:
        cluster.patch("PersistentVolume", key, promise, version="1")
    assert refused.value.refusal is Refusal.CONFLICT

    def is_promised() -> bool:
        """Its controllers write it too: whoever is refused reads again."""
        held = cluster.get("PersistentVolume", key)
        assert held is not None
        with suppress(CallRefusedError):
            written = cluster.patch("PersistentVolume", key, promise, version=held["metadata"]["resourceVersion"])
            return bool(written["spec"]["claimRef"]["uid"] == names["uid"])
        return False

    wait_until(is_promised)
    listed = {it["metadata"]["name"] for it in whole(cluster.list("PersistentVolume")).objects}
    assert key in listed
