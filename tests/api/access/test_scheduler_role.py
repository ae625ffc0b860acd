"""The role of a scheduler in another process: what it takes to bind pods and volumes, and nothing else."""

from typing import Any

import httpx
import pytest

from tests.api.access.secured import Secured
from tests.support.clusters import LOCAL, claim, node, pod, volume
from tests.support.serving import collection
from volsched.api.access.callers import Role
from volsched.kube.meta import BOUND_BY_CONTROLLER, SELECTED_NODE

MERGE = {"content-type": "application/merge-patch+json"}
NAMESPACE = "/api/v1/namespaces/default"
CLAIM = f"{NAMESPACE}/persistentvolumeclaims/data"
RESERVATIONS = "/apis/volsched.io/v1/namespaces/default/reservations"


@pytest.fixture
def scheduler(api: Secured) -> httpx.Client:
    admin = api.with_certificate("root", Role.ADMIN)
    other = {**claim("more", "1Gi"), "metadata": {"name": "more", "namespace": "default"}}
    for manifest in (
        LOCAL, node("n1"), volume("disk", "5Gi", "n1"), claim("data", "4Gi"), other,
        pod("db", "data"), pod("held"),
    ):  # fmt: skip
        assert admin.post(collection(manifest), json=manifest).status_code == 201
    return api.with_certificate("my-scheduler", Role.SCHEDULER)


def patch(http: httpx.Client, path: str, body: dict[str, Any]) -> int:
    return http.patch(path, json=body, headers=MERGE).status_code


def test_a_scheduler_binds_volumes_and_pods_and_tells_of_it(scheduler: httpx.Client) -> None:
    for listed in ("pods", "nodes", "namespaces", "persistentvolumes", "persistentvolumeclaims"):
        assert scheduler.get(f"/api/v1/{listed}").status_code == 200
    for listed in ("storageclasses", "csidrivers", "csinodes", "csistoragecapacities", "volumeattachments"):
        assert scheduler.get(f"/apis/storage.k8s.io/v1/{listed}").status_code == 200
    wanted = scheduler.get(CLAIM).json()["metadata"]
    named = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "data", "uid": wanted["uid"]}
    marked = {"metadata": {"annotations": {BOUND_BY_CONTROLLER: "yes"}}, "spec": {"claimRef": named}}
    assert patch(scheduler, "/api/v1/persistentvolumes/disk", marked) == 200
    selected = {"metadata": {"annotations": {SELECTED_NODE: "n1"}}}
    assert patch(scheduler, f"{NAMESPACE}/persistentvolumeclaims/more", selected) == 200
    target = {"kind": "Binding", "metadata": {"name": "db"}, "target": {"kind": "Node", "name": "n1"}}
    assert scheduler.post(f"{NAMESPACE}/pods/db/binding", json=target).status_code == 201
    told = {
        "metadata": {"name": "db.1", "namespace": "default"}, "reason": "Scheduled", "message": "on n1",
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "db"}, "type": "Normal",
    }  # fmt: skip
    assert scheduler.post(f"{NAMESPACE}/events", json=told).status_code == 201


def test_a_scheduler_reserves_and_lets_go(scheduler: httpx.Client) -> None:
    made = scheduler.post(RESERVATIONS, json={"spec": {"pod": "held"}})
    assert made.status_code == 201, made.text
    name = made.json()["metadata"]["name"]
    assert scheduler.get(f"{RESERVATIONS}/{name}").status_code == 200
    assert scheduler.delete(f"{RESERVATIONS}/{name}").status_code == 200


def test_a_scheduler_changes_nothing_else(scheduler: httpx.Client) -> None:
    for manifest in (node("n2"), LOCAL, pod("new"), claim("new", "1Gi"), volume("new", "1Gi", "n1")):
        assert scheduler.post(collection(manifest), json=manifest).status_code == 403
    for path in ("/api/v1/nodes/n1", f"{NAMESPACE}/pods/db", "/apis/storage.k8s.io/v1/storageclasses/local"):
        assert patch(scheduler, path, {"metadata": {"labels": {"a": "b"}}}) == 403
    for path in ("/api/v1/nodes/n1", CLAIM, "/api/v1/persistentvolumes/disk", "/api/v1/namespaces/default"):
        assert scheduler.delete(path).status_code == 403
    for path in (f"{CLAIM}/status", "/api/v1/persistentvolumes/disk/status", "/api/v1/nodes/n1/status"):
        assert patch(scheduler, path, {"status": {"phase": "Bound"}}) == 403
    for path in ("/extender/healthz", "/metrics", "/apis/volsched.io/v1/audit/reads"):
        assert scheduler.get(path).status_code == 403
