"""The installation lock on a strict API server: who may act, judged by nobody's clock but one's own."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.cluster.conftest import over_http
from tests.support.attached_cluster import attached, ours, two_nodes
from tests.support.serving import Served, strict_cluster
from tests.support.store_samples import NOW
from volsched.cluster.installation_lock import DEADLINE_SECONDS, InstallationLock, holder_of
from volsched.cluster.kubernetes.adapter import KubernetesCluster
from volsched.cluster.observer import ClusterObserver
from volsched.cluster.permissions import GATE_MODE, OWN
from volsched.log.database import Database, open_database
from volsched.log.errors import WrongModeError

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/volsched-volsched"


@dataclass
class Machine:
    """A process with a clock of its own."""

    lock: InstallationLock
    time: float

    def wait(self, seconds: float) -> bool:
        """Whether it may act after so long; it looks once."""
        self.time += seconds
        self.lock.step()
        return self.lock.is_held()


@pytest.fixture
def strict() -> Iterator[Served]:
    with strict_cluster() as running:
        running.namespace("kube-system")
        yield running


@pytest.fixture
def cluster(strict: Served) -> Iterator[KubernetesCluster]:
    with over_http(strict.url, kinds=(), mode="own") as adapter:
        yield adapter


def machine(cluster: KubernetesCluster, holder: str | None, *, time: float = 0.0) -> Machine:
    lock = InstallationLock(cluster, "volsched-volsched", lambda: holder, clock=lambda: NOW, monotonic=lambda: 0.0)
    made = Machine(lock, time)
    lock.monotonic = lambda: made.time
    return made


def test_one_installation_holds_it_and_another_learns_which(cluster: KubernetesCluster) -> None:
    first, second = machine(cluster, "first"), machine(cluster, "second", time=1_000.0)
    assert first.wait(0)
    assert not second.wait(0)
    for _ in range(20):
        assert first.wait(2)
        assert not second.wait(2)
    assert second.lock.rival_is_alive
    assert "kube-system/volsched-volsched is held by another installation, first" in str(second.lock.trouble)


def test_whoever_cannot_renew_it_stops_before_another_may_begin(
    cluster: KubernetesCluster, strict: Served
) -> None:
    first, second = machine(cluster, "first"), machine(cluster, "second")
    assert first.wait(0)
    assert not second.wait(0)
    first.time += DEADLINE_SECONDS - 1
    assert first.lock.is_held()
    first.time += 1
    assert not first.lock.is_held()
    assert not second.wait(14)
    assert not second.lock.rival_is_alive
    assert second.wait(2)
    # It comes back, and finds that it is late.
    assert not first.wait(10)
    assert strict.http.get(LEASE).json()["spec"]["leaseTransitions"] == 1


def test_times_that_others_have_written_are_not_compared_with_ours(
    cluster: KubernetesCluster, strict: Served
) -> None:
    first, second = machine(cluster, "first"), machine(cluster, "second")
    assert first.wait(0)
    record = strict.http.get(LEASE).json()
    for renewed in ("1999-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"):
        record["spec"]["renewTime"] = renewed
        record = strict.http.put(LEASE, json=record).json()
        assert not second.wait(14)
    assert second.wait(16)


def test_all_processes_of_an_installation_hold_it_together(cluster: KubernetesCluster) -> None:
    one, other = machine(cluster, "first"), machine(cluster, "first", time=500.0)
    for _ in range(5):
        assert one.wait(2)
        assert other.wait(2)


def test_a_lock_that_was_given_up_is_taken_at_once(cluster: KubernetesCluster, strict: Served) -> None:
    assert machine(cluster, "first").wait(0)
    record = strict.http.get(LEASE).json()
    record["spec"]["holderIdentity"] = ""
    assert strict.http.put(LEASE, json=record).status_code == 200
    assert machine(cluster, "second").wait(0)


def test_an_answer_that_is_lost_is_no_reason_to_stop_and_silence_is(
    cluster: KubernetesCluster, strict: Served
) -> None:
    first = machine(cluster, "first")
    assert first.wait(0)
    assert (
        strict.http.post(
            "/strict/faults", json={"fault": "too-many-requests", "resource": "leases", "times": 100}
        ).status_code
        == 201
    )
    assert first.wait(2)
    assert not first.wait(9)
    assert first.lock.trouble


def test_the_holder_is_the_store_where_it_is(sqlite: Database, tmp_path: Path, cluster: KubernetesCluster) -> None:
    assert holder_of(sqlite, OWN) is None
    assert not machine(cluster, None).wait(0)
    ClusterObserver(sqlite, cluster, mode=OWN).attach(cluster.describe(), NOW)
    again = open_database(f"sqlite:///{tmp_path / '.' / 'store.db'}")
    copy = open_database(f"sqlite:///{shutil.copyfile(tmp_path / 'store.db', tmp_path / 'copy.db')}")
    assert holder_of(again, OWN) == holder_of(sqlite, OWN) is not None
    assert holder_of(copy, OWN) != holder_of(sqlite, OWN)
    for it in (again, copy):
        it.close()


def test_a_store_that_decides_in_one_mode_is_nobodys_lock_in_another(
    sqlite: Database, cluster: KubernetesCluster
) -> None:
    """A worker of gate mode would call a pod of own mode done: it has no gate."""
    ClusterObserver(sqlite, cluster).attach(cluster.describe(), NOW)
    assert holder_of(sqlite, GATE_MODE) is not None
    ClusterObserver(sqlite, cluster, mode=OWN).attach(cluster.describe(), NOW)
    with pytest.raises(WrongModeError, match=r"decides in mode own.*use another store for mode gate"):
        ClusterObserver(sqlite, cluster, mode=GATE_MODE).attach(cluster.describe(), NOW)
    # Whoever only observes it meanwhile does not make it free for another mode.
    ClusterObserver(sqlite, cluster).attach(replace(cluster.describe(), version="1.99"), NOW)
    with pytest.raises(WrongModeError):
        holder_of(sqlite, GATE_MODE)
    assert holder_of(sqlite, OWN) is not None


def test_an_installation_that_loses_it_writes_nothing_more(strict: Served, sqlite: Database) -> None:
    with attached(strict, sqlite) as it:
        it.create(*two_nodes())
        time = [0.0]
        lock = it.lock(lambda: time[0], lambda: "first")
        lock.step()
        it.may_act = lock.is_held
        strict.create(ours("db", "data"))
        it.until(lambda: it.given_to("small-1"))
        time[0] += DEADLINE_SECONDS
        it.controller.bind()
        said = len(it.sent)
        for _ in range(5):
            it.system.step(it.now())
        # The claim is seen to be bound, and yet nobody binds the pod.
        assert (len(it.sent), it.node_of("db")) == (said, None)
        lock.step()
        it.until(lambda: it.node_of("db") == "n1")
