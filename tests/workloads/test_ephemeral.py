"""Generic ephemeral volumes: which claims are made, and which are refused."""

from typing import Any

import pytest

from tests.support.objects import read
from volsched.kube.storage import Claim
from volsched.kube.workloads import Pod
from volsched.log.events.fold import ObjectState
from volsched.workloads.rules.ownership import ephemeral_claims, has_templates, lacking

Manifest = dict[str, Any]
TEMPLATE = {
    "metadata": {"labels": {"l": "1"}, "annotations": {"a": "2"}, "name": "ignored"},
    "spec": {"accessModes": ["ReadWriteOnce"]},
}
OWN = [{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "u1", "controller": True}]


def a_pod(**metadata: Any) -> Manifest:
    volumes = [
        {"name": "a", "ephemeral": {"volumeClaimTemplate": TEMPLATE}},
        {"name": "b", "persistentVolumeClaim": {"claimName": "other"}},
        {"name": "c", "emptyDir": {}},
    ]
    named = {"name": "web", "namespace": "shop", "uid": "u1", **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": {"volumes": volumes}}


def a_claim(owners: list[Manifest], **metadata: Any) -> Claim:
    named = {"name": "web-a", "namespace": "shop", "ownerReferences": owners, **metadata}
    value = read("PersistentVolumeClaim", {"metadata": named})
    assert isinstance(value, Claim)
    return value


def asked(manifest: Manifest, *claims: Claim) -> tuple[list[str], list[str]]:
    pod = read("Pod", manifest)
    assert isinstance(pod, Pod)
    found = lacking(pod, manifest, {claim.key: claim for claim in claims})
    return [it["metadata"]["name"] for it in found.claims], list(found.refusals)


REFUSED = ["ephemeral volume a: PVC shop/web-a was not created for pod shop/web (pod is not owner)"]


@pytest.mark.parametrize(
    ("pod", "claims", "expected"),
    [
        (a_pod(), [], (["web-a"], [])),
        (a_pod(), [a_claim(OWN)], ([], [])),
        (a_pod(), [a_claim(OWN, deletionTimestamp="t")], ([], [])),
        (a_pod(), [a_claim([])], ([], REFUSED)),
        (a_pod(), [a_claim([{**OWN[0], "uid": "u0"}])], ([], REFUSED)),
        (a_pod(), [a_claim([{**OWN[0], "controller": False}])], ([], REFUSED)),
        (a_pod(deletionTimestamp="t"), [], ([], [])),
        (a_pod(deletionTimestamp="t"), [a_claim([])], ([], [])),
    ],
    ids=[
        "missing", "there", "going", "nobody's", "of the pod before", "owned, not controlled", "pod is going",
        "pod is going, a foreign claim",
    ],
)  # fmt: skip
def test_what_a_pod_lacks(pod: Manifest, claims: list[Claim], expected: tuple[list[str], list[str]]) -> None:
    assert asked(pod, *claims) == expected


def test_a_claim_as_it_is_made() -> None:
    manifest = a_pod()
    pod = read("Pod", manifest)
    assert isinstance(pod, Pod)
    assert ephemeral_claims(pod) == ("shop/web-a",)
    (made,) = lacking(pod, manifest, {}).claims
    assert made == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "web-a",
            "namespace": "shop",
            "labels": {"l": "1"},
            "annotations": {"a": "2"},
            "ownerReferences": [{**OWN[0], "blockOwnerDeletion": True}],
        },
        "spec": {"accessModes": ["ReadWriteOnce"]},
    }


@pytest.mark.parametrize(
    ("spec", "has"),
    [
        ({}, False),
        ({"volumes": []}, False),
        ({"volumes": [{"name": "a", "emptyDir": {}}]}, False),
        ({"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "ephemeral": {}}]}, True),
    ],
)
def test_pods_without_templates_are_reported_at_sight(spec: Manifest, has: bool) -> None:
    assert has_templates(ObjectState(1, 1, {"spec": spec})) is has
