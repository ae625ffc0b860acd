"""What kube-scheduler and kube-controller-manager 1.37 send, as it was recorded on this API with their defaults.

Both bound pods with several claims, filled a StatefulSet and let go of protected objects; here the same requests
come again: the same methods, paths and content types, and bodies in protobuf.
"""

import json
from typing import Any

import httpx
import pytest

from tests.api.protobuf_encoder import PROTOBUF, encoded, encoded_message, enveloped, field
from tests.support.clusters import LOCAL, claim
from tests.support.patience import HANG_SECONDS
from tests.support.serving import Served

ACCEPT = {"accept": f"{PROTOBUF}, */*"}
SENT = {**ACCEPT, "content-type": PROTOBUF}
PATCH = {**ACCEPT, "content-type": "application/strategic-merge-patch+json"}
WATCH = "allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&watch=true"
FOLLOWED = (
    "/api/v1/namespaces",
    "/api/v1/nodes",
    "/api/v1/persistentvolumeclaims",
    "/api/v1/persistentvolumes",
    "/api/v1/pods",
    "/api/v1/pods?fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed",
    "/api/v1/replicationcontrollers",
    "/api/v1/services",
    "/apis/apps/v1/controllerrevisions",
    "/apis/apps/v1/replicasets",
    "/apis/apps/v1/statefulsets",
    "/apis/policy/v1/poddisruptionbudgets",
    "/apis/resource.k8s.io/v1/deviceclasses",
    "/apis/resource.k8s.io/v1/devicetaintrules",
    "/apis/resource.k8s.io/v1/resourceclaims",
    "/apis/resource.k8s.io/v1/resourceslices",
    "/apis/storage.k8s.io/v1/csidrivers",
    "/apis/storage.k8s.io/v1/csinodes",
    "/apis/storage.k8s.io/v1/csistoragecapacities",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/storage.k8s.io/v1/volumeattachments",
)
"""Until each of these has told what there is, neither of the two does anything."""
CORE = "/api/v1/namespaces/default"
CLAIM, VOLUME = f"{CORE}/persistentvolumeclaims/data", "/api/v1/persistentvolumes/disk"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
Manifest = dict[str, Any]


def send(api: Served, method: str, path: str, manifest: Manifest, *, code: int = 200) -> Manifest:
    answer = api.http.request(method, path, headers=SENT, content=encoded(manifest))
    assert answer.status_code == code, answer.text
    assert answer.headers["content-type"] == "application/json"
    told: Manifest = answer.json()
    return told


def got(api: Served, path: str) -> Manifest:
    told: Manifest = api.http.get(path, headers=ACCEPT).json()
    return told


@pytest.mark.parametrize("path", FOLLOWED)
def test_what_exists_is_reported_to_the_end(shared: Served, path: str) -> None:
    asked = f"{path}{'&' if '?' in path else '?'}{WATCH}"
    with shared.http.stream("GET", asked, headers=ACCEPT) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            event = json.loads(line)
            if event["type"] == "BOOKMARK":
                break
    assert event["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert shared.http.get(path, headers=ACCEPT).json()["items"] == []


def lease(holder: str, renewed: str, **metadata: str) -> Manifest:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "kube-scheduler", "namespace": "kube-system", **metadata},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-11-17T16:29:30.183683Z",
            "renewTime": renewed,
            "leaseTransitions": 0,
        },
    }


def test_a_leader_is_elected(api: Served) -> None:
    position = got(api, "/api/v1/pods")["metadata"]["resourceVersion"]
    mine = f"{LEASES}/kube-scheduler"
    assert api.http.get(mine, headers=ACCEPT).status_code == 404
    first = send(api, "POST", LEASES, lease("a", "2026-11-17T16:29:30.183683Z"), code=201)["metadata"]
    send(api, "POST", LEASES, lease("b", "2026-11-17T16:29:30.183683Z"), code=409)
    seen = {"uid": first["uid"], "resourceVersion": first["resourceVersion"]}
    renewed = send(api, "PUT", mine, lease("a", "2026-11-17T16:29:32.183683Z", **seen))
    assert renewed["metadata"]["resourceVersion"] != first["resourceVersion"]
    # Another candidate that saw the lease before it was renewed does not get it.
    send(api, "PUT", mine, lease("b", "2026-11-17T16:29:33.183683Z", **seen), code=409)
    held = got(api, mine)
    assert held["spec"] == lease("a", "2026-11-17T16:29:32.183683Z")["spec"]
    assert [it["metadata"]["name"] for it in got(api, LEASES)["items"]] == ["kube-scheduler"]
    # Thousands of renewals a day leave no trace in the log.
    assert got(api, "/api/v1/pods")["metadata"]["resourceVersion"] == position
    options = {"apiVersion": "coordination.k8s.io/v1", "kind": "DeleteOptions", "preconditions": seen}
    send(api, "DELETE", mine, options, code=409)
    send(api, "DELETE", mine, {**options, "preconditions": {"uid": first["uid"]}})
    assert api.http.get(mine, headers=ACCEPT).status_code == 404


def world(api: Served) -> None:
    api.create(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}},
        LOCAL,
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "disk", "labels": {"tier": ""}},
            "spec": {
                "capacity": {"storage": "8Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "local",
                "csi": {"driver": "d", "volumeHandle": "h", "volumeAttributes": {"a": ""}},
                "nodeAffinity": {
                    "required": {"nodeSelectorTerms": [{"matchFields": [
                        {"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}
                },
            },
        },
        claim("data", "6Gi"),
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "db", "namespace": "default"},
            "spec": {
                "containers": [{"name": "db", "image": "db", "env": [{"name": "A", "value": "1"}]}],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            },
        },
    )  # fmt: skip


def test_a_claim_is_bound_and_its_pod_too(api: Served) -> None:
    world(api)
    # kube-scheduler: where the pod is to go, and which volume is its claim's.
    nominated = api.http.patch(
        f"{CORE}/pods/db/status", headers=PATCH, json={"status": {"nominatedNodeName": "n1"}}
    )
    assert nominated.status_code == 200
    volume, claim = got(api, VOLUME), got(api, CLAIM)
    ref = {
        "kind": "PersistentVolumeClaim",
        "namespace": "default",
        "name": "data",
        "uid": claim["metadata"]["uid"],
        "apiVersion": "v1",
        "resourceVersion": claim["metadata"]["resourceVersion"],
    }
    marked = {"pv.kubernetes.io/bound-by-controller": "yes"}
    wanted = {
        **volume,
        "metadata": {**volume["metadata"], "annotations": marked},
        "spec": {**volume["spec"], "claimRef": ref},
    }
    put = send(api, "PUT", VOLUME, wanted)
    assert {**put, "metadata": 0} == {**wanted, "metadata": 0}, "nothing that was there is lost"
    # kube-controller-manager: the rest of it, a status each.
    put = send(api, "PUT", f"{VOLUME}/status", {**put, "status": {"phase": "Bound"}})
    assert put["status"] == {"phase": "Bound"}
    completed = {**marked, "pv.kubernetes.io/bind-completed": "yes"}
    wanted = {
        **claim,
        "metadata": {**claim["metadata"], "annotations": completed},
        "spec": {**claim["spec"], "volumeName": "disk"},
    }
    put = send(api, "PUT", CLAIM, wanted)
    status = {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "8Gi"}}
    assert send(api, "PUT", f"{CLAIM}/status", {**put, "status": status})["status"] == status
    # Whoever has seen the claim before that is late.
    send(api, "PUT", f"{CLAIM}/status", {**put, "status": {"phase": "Lost"}}, code=409)
    # kube-scheduler again.
    pod = got(api, f"{CORE}/pods/db")
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "db", "namespace": "default", "uid": pod["metadata"]["uid"]},
        "target": {"kind": "Node", "name": "n1"},
    }
    send(api, "POST", f"{CORE}/pods/db/binding", binding, code=201)
    bound = got(api, f"{CORE}/pods/db")
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["spec"]["containers"] == pod["spec"]["containers"]


def test_a_field_of_a_newer_client_is_refused_and_nothing_is_changed(api: Served) -> None:
    world(api)
    volume = got(api, VOLUME)
    content = {name: value for name, value in volume.items() if name not in ("apiVersion", "kind")}
    content["metadata"] = {**content["metadata"], "labels": {"tier": "gold"}}
    body = encoded_message(content, "core.PersistentVolume") + field(2, field(77, "of 1.40"))
    answer = api.http.put(VOLUME, headers=SENT, content=enveloped("PersistentVolume", body))
    assert answer.status_code == 415
    assert "field number 77 of core.PersistentVolumeSpec is not known here" in answer.json()["message"]
    assert got(api, VOLUME) == volume


def test_events_of_both_groups_are_the_same_events(api: Served) -> None:
    regarding = {"kind": "Pod", "namespace": "default", "name": "db", "uid": "u", "apiVersion": "v1"}
    told = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "db.18e8e208e5994b1c", "namespace": "default"},
        "eventTime": "2026-11-17T16:29:39.346772Z",
        "reportingController": "default-scheduler",
        "reportingInstance": "default-scheduler-vm",
        "action": "Binding",
        "reason": "Scheduled",
        "regarding": regarding,
        "note": "Successfully assigned default/db to n1",
        "type": "Normal",
    }
    new = "/apis/events.k8s.io/v1/namespaces/default/events"
    made = send(api, "POST", new, told, code=201)
    assert {**made, "metadata": 0} == {**told, "metadata": 0}
    name = told["metadata"]["name"]  # type: ignore[index]
    core = got(api, f"{CORE}/events/{name}")
    assert (core["apiVersion"], core["message"], core["involvedObject"]) == ("v1", told["note"], regarding)
    assert core["reportingComponent"] == "default-scheduler"
    series = {"series": {"count": 2, "lastObservedTime": "2026-11-17T16:30:39.346772Z"}}
    patched = api.http.patch(f"{new}/{name}", headers=PATCH, json=series).json()
    assert (patched["note"], patched["series"]) == (told["note"], series["series"])
    assert got(api, f"{CORE}/events/{name}")["series"] == series["series"]
    assert [it["regarding"] for it in got(api, new)["items"]] == [regarding]
    with api.http.stream("GET", f"{new}?watch=true&timeoutSeconds={HANG_SECONDS}", headers=ACCEPT) as answer:
        first = json.loads(next(answer.iter_lines()))
    assert (first["type"], first["object"]["regarding"]) == ("ADDED", regarding)
    shown = api.http.get(new, headers={"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}).json()
    assert "<unknown>" not in shown["rows"][0]["cells"]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        # The first and the last word by word as a server of 1.37 said it (recordings 49b and 49e).
        (
            {"eventTime": None, "reportingInstance": "", "type": "Error"},
            '[eventTime: Required value, type: Invalid value: "": has invalid value: Error]',
        ),
        ({"reportingInstance": ""}, "reportingInstance: Required value"),
        ({"reason": "r" * 129}, "reason: Too long: may not be more than 128 bytes"),
        ({"note": "n" * 1025}, "message: Too long: may not be more than 1024 bytes"),
        ({"deprecatedCount": 2}, 'count: Invalid value: "": needs to be unset'),
        (
            {"regarding": {"apiVersion": "v1", "kind": "PersistentVolume", "name": "disk-1"}},
            'involvedObject.namespace: Invalid value: "": does not match event.namespace',
        ),
    ],
)
def test_a_new_event_is_refused_as_a_real_server_refuses_it(
    api: Served, changed: dict[str, Any], words: str
) -> None:
    api.namespace("shop")
    told = {
        "metadata": {"name": "waiting.2"},
        "eventTime": "2026-01-01T00:32:00.000000Z",
        "reportingController": "volsched.io/scheduler",
        "reportingInstance": "volsched-0",
        "action": "Binding",
        "reason": "FailedScheduling",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "waiting"},
        "note": "0/2 nodes are available.",
        "type": "Warning",
    }
    new = "/apis/events.k8s.io/v1/namespaces/shop/events"
    refused = api.http.post(new, json={**told, **changed})
    answer = refused.json()
    assert refused.status_code == 422
    assert answer["message"] == f'Event "waiting.2" is invalid: {words}'
    assert (answer["details"]["name"], answer["details"]["kind"]) == ("waiting.2", "Event")
    assert api.http.post(new, json=told).status_code == 201


def test_a_stateful_set_is_filled(api: Served) -> None:
    sets, revisions = (
        "/apis/apps/v1/namespaces/default/statefulsets",
        "/apis/apps/v1/namespaces/default/controllerrevisions",
    )
    template = {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "db", "image": "db"}]}}
    (made,) = api.create(
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "db", "namespace": "default"},
            "spec": {"serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template},
        }
    )
    # Without it kube-controller-manager dies.
    assert made["spec"]["revisionHistoryLimit"] == 10
    owner = {"kind": "StatefulSet", "name": "db", "uid": made["metadata"]["uid"], "apiVersion": "apps/v1",
             "controller": True, "blockOwnerDeletion": True}  # fmt: skip
    revision = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"name": "db-849888ccd5", "labels": {"app": "db"}, "ownerReferences": [owner]},
        "data": {"spec": {"template": {**template, "$patch": "replace"}}},
        "revision": 1,
    }
    kept = send(api, "POST", revisions, revision, code=201)
    assert (kept["data"], kept["revision"]) == (revision["data"], 1)
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data-db-0", "namespace": "default", "labels": {"app": "db"}},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "",
        },
    }
    assert send(api, "POST", f"{CORE}/persistentvolumeclaims", claim, code=201)["spec"]["storageClassName"] == ""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "db-0", "generateName": "db-", "namespace": "default", "labels": {"app": "db"},
                     "ownerReferences": [owner]},
        "spec": {**template["spec"], "hostname": "db-0", "subdomain": "db",
                 "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}]},
    }  # fmt: skip
    assert send(api, "POST", f"{CORE}/pods", pod, code=201)["metadata"]["ownerReferences"] == [owner]
    status = {"observedGeneration": 1, "replicas": 1, "currentReplicas": 1, "updatedReplicas": 1,
              "currentRevision": "db-849888ccd5", "updateRevision": "db-849888ccd5", "collisionCount": 0,
              "availableReplicas": 0}  # fmt: skip
    assert send(api, "PUT", f"{sets}/db/status", {**got(api, f"{sets}/db"), "status": status})["status"] == status
    gone = send(api, "DELETE", f"{CORE}/pods/db-0", {"apiVersion": "v1", "kind": "DeleteOptions"})
    assert gone["metadata"]["name"] == "db-0"
    assert api.http.get(f"{CORE}/pods/db-0").status_code == 404


def test_what_is_protected_goes_when_its_protection_does(api: Served) -> None:
    world(api)
    assert api.http.delete(CLAIM).json()["metadata"]["deletionTimestamp"]
    claim = got(api, CLAIM)
    assert claim["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    metadata = {name: value for name, value in claim["metadata"].items() if name != "finalizers"}
    send(api, "PUT", CLAIM, {**claim, "metadata": metadata})
    assert api.http.get(CLAIM).status_code == 404


def test_what_is_not_kept_cannot_be_made_and_leases_cannot_be_watched(shared: Served) -> None:
    def told(answer: httpx.Response) -> tuple[int, str]:
        return answer.status_code, answer.json()["message"]

    sets = "/apis/apps/v1/namespaces/default/replicasets"
    assert told(shared.http.post(sets, json={})) == (
        405, "replicasets are not kept here: there are none, and none can be created",
    )  # fmt: skip
    assert shared.http.get(f"{sets}/web").status_code == 404
    assert told(shared.http.get(f"{LEASES}?watch=1")) == (405, "leases cannot be watched; get them instead")
