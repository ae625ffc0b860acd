"""The role of a node: itself, the pods that are bound to it, the claims that these use."""

import httpx
import pytest

from tests.api.access.secured import Secured
from tests.support.clusters import claim, node, pod
from tests.support.serving import collection
from volsched.api.access.callers import Role

MERGE = {"content-type": "application/merge-patch+json"}
PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"


@pytest.fixture
def n1(api: Secured) -> httpx.Client:
    """The node n1, where pod `mine` runs with claim `used`; pod `theirs` runs on n2 with claim `other`."""
    admin = api.with_certificate("root", Role.ADMIN)
    for name, where, uses in (("mine", "n1", "used"), ("theirs", "n2", "other")):
        placed = pod(name, uses)
        placed["spec"]["nodeName"] = where
        for manifest in (node(where), claim(uses, "1Gi"), placed):
            assert admin.post(collection(manifest), json=manifest).status_code == 201
    return api.with_certificate("n1", Role.NODE)


def patched(http: httpx.Client, path: str) -> int:
    return http.patch(path, json={"status": {"message": "seen"}}, headers=MERGE).status_code


def test_a_node_writes_its_own_status_alone(n1: httpx.Client) -> None:
    assert patched(n1, "/api/v1/nodes/n1/status") == 200
    assert patched(n1, "/api/v1/nodes/n2/status") == 403
    assert patched(n1, "/api/v1/nodes/n1") == 403


def test_a_node_deals_with_its_own_pods_alone(n1: httpx.Client) -> None:
    assert n1.get(f"{PODS}/mine").status_code == 200
    assert patched(n1, f"{PODS}/mine/status") == 200
    for refused in (f"{PODS}/theirs", f"{PODS}/nope"):
        assert n1.get(refused).status_code == 403
        assert patched(n1, f"{refused}/status") == 403
        assert n1.delete(refused).status_code == 403
    assert n1.delete(f"{PODS}/mine").status_code == 200


def test_a_node_lists_its_own_pods_alone(n1: httpx.Client) -> None:
    found = n1.get("/api/v1/pods", params={"fieldSelector": "spec.nodeName=n1"})
    assert [it["metadata"]["name"] for it in found.json()["items"]] == ["mine"]
    for selector in ("", "spec.nodeName=n2", "spec.nodeName!=n1", "status.phase=Running"):
        assert n1.get("/api/v1/pods", params={"fieldSelector": selector}).status_code == 403
    twice = "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1&fieldSelector="
    assert n1.get(twice).status_code == 403
    assert n1.get("/api/v1/pods", params={"fieldSelector": "spec.nodeName"}).status_code == 400


def test_a_node_says_of_claims_that_its_pods_use_what_became_of_them(n1: httpx.Client) -> None:
    dirty = {"status": {"dataState": "Dirty"}}
    assert n1.patch(f"{CLAIMS}/used/status", json=dirty, headers=MERGE).status_code == 200
    assert n1.patch(f"{CLAIMS}/other/status", json=dirty, headers=MERGE).status_code == 403
    assert n1.patch(f"{CLAIMS}/used", json=dirty, headers=MERGE).status_code == 403
