"""Every call of a mode is in its role, and the role has nothing that is not called: as a strict server saw it.

Another mode gets a run in `RUNS`: whatever it does in its life, against the served cluster.
"""

from collections.abc import Callable

import pytest

from tests.cluster.conftest import over_http
from tests.support.attached_cluster import (
    Attached,
    attached,
    gated,
    ours,
    permissions_of,
    two_nodes,
    used_permissions,
)
from tests.support.clusters import claim
from tests.support.patience import wait_until
from tests.support.port_manifests import node
from tests.support.serving import Served, served, strict_cluster
from tests.support.store_samples import NOW
from volsched.api.strict.calls import call_of
from volsched.api.strict.server import FAULTS_PATH
from volsched.binding.recovery import Sweep
from volsched.cluster.observer import PROOF_EVERY, ClusterObserver
from volsched.cluster.permissions import ADVISE, GATE_MODE, MODES, OBSERVE, OWN, WATCHED_KINDS
from volsched.cluster.projection import OBSERVED_KINDS, project
from volsched.kube.meta import SELECTED_NODE
from volsched.lab.storage_players import PvController
from volsched.log.database import Database
from volsched.log.reads.open_bindings import open_bindings
from volsched.runtime.clock import SECOND, system_clock
from volsched.runtime.system import Adviser

RESERVATIONS = "/apis/volsched.io/v1/namespaces/default/reservations"


def observe(running: Served, database: Database) -> None:
    """Lists, watches, a watch that is cut, the proof of equality, pages instead of streams."""
    running.namespace("kube-system")
    with over_http(running.url, kinds=OBSERVED_KINDS, project=project) as cluster:
        observer = ClusterObserver(database, cluster, list_versions=cluster.versions)
        observer.attach(cluster.describe(MODES[OBSERVE]), NOW)
        observer.step(NOW)
        running.http.post(FAULTS_PATH, json={"fault": "cut-watch", "resource": "nodes"})
        observer.step(NOW)
        running.create(node("n1"))

        def is_known() -> bool:
            observer.step(NOW)
            return "n1" in observer.mirror.versions.get("Node", {})

        wait_until(is_known)
        wait_until(lambda: all(it.last_heard is not None for it in cluster.health().values()))
        cluster.lists.streams = False
        now = NOW + PROOF_EVERY
        for round_ in range(len(OBSERVED_KINDS) + 1):
            observer.step(now + round_ * 10 * SECOND)
        for kind in OBSERVED_KINDS:
            observer.mirror.list_again(kind, "to see pages")
        observer.step(now)


def take_lock(it: Attached) -> None:
    """Made by the first process of an installation, renewed by its second."""
    for _ in range(2):
        lock = it.lock(lambda: 0.0, lambda: "one")
        lock.step()
        assert lock.is_held()


def write_claims_with_lost_answers(cluster: Attached) -> None:
    """Until the pod is the next that is written: its claims are chosen, and one of them is provisioned."""
    cluster.fault("lost-answer", "persistentvolumes")
    cluster.fault("lost-answer", "persistentvolumeclaims")

    cluster.until(lambda: SELECTED_NODE in cluster.marks(cluster.claim("scratch")), seconds=1)
    cluster.controller.order("scratch")
    cluster.provisioner.provision("scratch")
    cluster.fault("lost-answer", "pods")


def advise(running: Served, database: Database) -> None:
    """Follows the cluster, takes a reservation and answers a filter; bind is refused before anything is sent."""
    running.namespace("kube-system")
    with over_http(running.url, kinds=WATCHED_KINDS, project=project, mode=ADVISE) as cluster:
        observer = ClusterObserver(database, cluster, mode=ADVISE)
        observer.mirror.kinds = WATCHED_KINDS
        observer.attach(cluster.describe(MODES[ADVISE]), system_clock())
        adviser = Adviser(observer, Sweep(database, "sweep/test"))
        (wanting,) = running.create(*two_nodes(), ours("db", "data"))[-1:]
        PvController(running.http).offer()

        with served(database, follows=True, binds=False) as api:

            def fits() -> bool:
                adviser.step(system_clock())
                found = api.http.post("/extender/filter", json={"Pod": wanting, "NodeNames": ["n1"]}).json()
                return bool(found.get("NodeNames") == ["n1"])

            wait_until(fits)
            reserved = api.http.post(RESERVATIONS, json={"spec": {"pod": "db"}})
            assert reserved.status_code == 201, reserved.text
            bind = {"PodName": "db", "PodNamespace": "default", "PodUID": wanting["metadata"]["uid"], "Node": "n1"}
            assert "binds nothing" in api.http.post("/extender/bind", json=bind).json()["Error"]
        # Nobody renews it, and the sweep ends it.
        adviser.step(system_clock() + 3_600 * SECOND)
        with database.read() as connection:
            assert not open_bindings(connection)
        wait_until(lambda: all(health.last_heard is not None for health in cluster.health().values()))
        cluster.lists.streams = False
        for kind in WATCHED_KINDS:
            observer.mirror.list_again(kind, "to see pages")
        adviser.step(system_clock())


def own(running: Served, database: Database) -> None:
    """A pod that is bound, one that fits nowhere, and writes whose answers are lost."""
    with attached(running, database) as it:
        it.create(*two_nodes())
        it.cluster.describe(MODES[OWN])
        take_lock(it)
        running.create(ours("db", "data", "scratch"), claim("huge", "50Gi"), ours("stuck", "huge"))
        write_claims_with_lost_answers(it)

        it.until(lambda: it.controller.bind() == 0 and it.node_of("db") == "n1" and it.has_settled(), seconds=1)
        wait_until(lambda: all(health.last_heard is not None for health in it.cluster.health().values()))
        it.cluster.lists.streams = False
        it.restart()
        it.until(it.has_settled)


def gate(running: Served, database: Database) -> None:
    """A gated pod whose claims are bound after a lost answer, a fence, and one that is let go without a node."""
    with attached(running, database, mode=GATE_MODE) as it:
        it.create(*two_nodes())
        it.cluster.describe(MODES[GATE_MODE])
        take_lock(it)
        running.create(gated("db", "data", "scratch"), claim("huge", "50Gi"), gated("stuck", "huge"))
        write_claims_with_lost_answers(it)

        def are_free() -> bool:
            pods = [it.pod(name)["spec"].get("schedulingGates") for name in ("db", "stuck")]
            return not any(pods) and it.has_settled()

        it.until(are_free, seconds=2, binds=True)
        made = it.pod("stuck")
        it.cluster.fence("Pod", "default/stuck", version=made["metadata"]["resourceVersion"], mark="x")
        it.cluster.get("Node", "n1")
        wait_until(lambda: all(health.last_heard is not None for health in it.cluster.health().values()))
        it.cluster.lists.streams = False
        it.restart()
        it.until(it.has_settled)


RUNS: dict[str, Callable[[Served, Database], None]] = {
    OBSERVE: observe,
    ADVISE: advise,
    GATE_MODE: gate,
    OWN: own,
}


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_calls_what_its_role_allows_and_its_role_allows_nothing_else(mode: str, sqlite: Database) -> None:
    with strict_cluster() as running:
        RUNS[mode](running, sqlite)
        assert used_permissions(running, mode) == permissions_of(mode)


@pytest.mark.parametrize(
    ("method", "path", "query", "call"),
    [
        ("GET", "/api/v1/pods", {}, ("list", "", "pods")),
        ("GET", "/api/v1/pods", {"watch": "1"}, ("watch", "", "pods")),
        ("GET", "/api/v1/namespaces/shop/pods/db", {}, ("get", "", "pods")),
        ("GET", "/api/v1/namespaces/shop", {}, ("get", "", "namespaces")),
        ("PUT", "/api/v1/namespaces/shop/status", {}, ("update", "", "namespaces/status")),
        ("POST", "/api/v1/namespaces/shop/pods/db/binding", {}, ("create", "", "pods/binding")),
        ("PATCH", "/apis/apps/v1/namespaces/shop/statefulsets/s", {}, ("patch", "apps", "statefulsets")),
        ("DELETE", "/api/v1/persistentvolumes/v", {}, ("delete", "", "persistentvolumes")),
        ("DELETE", "/api/v1/persistentvolumes", {}, ("deletecollection", "", "persistentvolumes")),
    ],
)
def test_a_request_is_the_permission_that_it_needs(
    method: str, path: str, query: dict[str, str], call: tuple[str, ...]
) -> None:
    seen = call_of(method, path, query, client="c")
    assert seen is not None
    assert (seen.verb, seen.group, seen.resource) == call


@pytest.mark.parametrize(
    "path", ["/version", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/readyz"]
)
def test_what_names_no_resource_needs_no_permission(path: str) -> None:
    assert call_of("GET", path, {}, client="c") is None
