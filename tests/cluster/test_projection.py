"""What is kept of a foreign object: no secret of anybody. What the rules need: test_projected_decisions.py."""

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.support.given_cluster import GivenCluster
from tests.support.store_samples import NOW
from volsched.cluster.observer import ClusterObserver
from volsched.cluster.projection import ANNOTATIONS, OBSERVED_KINDS, project, shown_projection, words
from volsched.kube.kinds import KINDS
from volsched.kube.meta import SELECTED_NODE
from volsched.log.database import open_database
from volsched.log.migrations import migrate
from volsched.log.retention.backup import back_up
from volsched.log.retention.export import events_of, manifest_of, write_jsonl

CANARY = "c4n4ry-d0-n0t-st0re"
CONTAINER = {
    "name": "main",
    "image": f"registry/{CANARY}:1",
    "command": [CANARY],
    "args": [f"--password={CANARY}"],
    "env": [{"name": "PASSWORD", "value": CANARY}, {"name": "A", "valueFrom": {"secretKeyRef": {"name": CANARY}}}],
    "envFrom": [{"secretRef": {"name": CANARY}}],
    "workingDir": f"/{CANARY}",
    "livenessProbe": {"exec": {"command": [CANARY]}},
    "lifecycle": {"preStop": {"exec": {"command": [CANARY]}}},
    "volumeMounts": [{"name": "data", "mountPath": f"/{CANARY}"}],
    "securityContext": {"seLinuxOptions": {"user": CANARY}},
    "resources": {"requests": {"cpu": "1"}, "claims": [{"name": CANARY}]},
    "ports": [{"containerPort": 80, "name": CANARY}],
}
ANNOTATED = {
    "kubectl.kubernetes.io/last-applied-configuration": CANARY,
    "team.example.com/note": CANARY,
    "volume.kubernetes.io/provisioner-deletion-secret-name": CANARY,
    SELECTED_NODE: "n1",
}
POD_SPEC: dict[str, Any] = {
    "containers": [CONTAINER],
    "initContainers": [CONTAINER],
    "ephemeralContainers": [CONTAINER],
    "imagePullSecrets": [{"name": CANARY}],
    "serviceAccountName": CANARY,
    "hostname": CANARY,
    "hostAliases": [{"ip": "1.2.3.4", "hostnames": [CANARY]}],
    "dnsConfig": {"searches": [CANARY]},
    "securityContext": {"sysctls": [{"name": "a", "value": CANARY}]},
    "volumes": [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "s", "secret": {"secretName": CANARY}},
        {"name": "c", "configMap": {"name": CANARY}},
        {"name": "p", "projected": {"sources": [{"secret": {"name": CANARY}}]}},
        {"name": "h", "hostPath": {"path": f"/{CANARY}"}},
        {
            "name": "i",
            "csi": {
                "driver": "d",
                "volumeAttributes": {"a": CANARY},
                "nodePublishSecretRef": {"name": CANARY},
            },
        },
        {"name": "f", "flexVolume": {"driver": "d", "options": {"password": CANARY}}},
        {
            "name": "e",
            "ephemeral": {
                "volumeClaimTemplate": {
                    "metadata": {"annotations": ANNOTATED},
                    "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"]},
                }
            },
        },
    ],
}

INLINE = {"csi": {"driver": CANARY, "volumeHandle": CANARY, "nodeStageSecretRef": {"name": CANARY}}}


def meta(name: str, namespace: str | None = None, **more: Any) -> dict[str, Any]:
    own = {"name": name, "annotations": dict(ANNOTATED), "managedFields": [{"manager": CANARY}], **more}
    return own if namespace is None else {**own, "namespace": namespace}


def poisoned() -> dict[str, dict[str, Any]]:
    """An object of every kind, with the canary wherever somebody could have left a secret."""
    told = f'mount failed: password={CANARY}, {{"secret": "a {CANARY}"}}\nMounting arguments: -o {CANARY}'
    return {
        "Node": {
            "metadata": meta("n1"),
            "spec": {"providerID": CANARY, "taints": [{"key": "a", "effect": "NoSchedule"}]},
            "status": {
                "allocatable": {"cpu": "4"},
                "images": [{"names": [CANARY]}],
                "addresses": [{"type": "Hostname", "address": CANARY}],
                "nodeInfo": {"kubeletVersion": "v1.37.0", "machineID": CANARY},
                "conditions": [{"type": "Ready", "status": "True", "message": CANARY}],
            },
        },
        "Namespace": {"metadata": meta("shop"), "status": {"phase": "Active"}},
        "PersistentVolume": {
            "metadata": meta("pv-1"),
            "spec": {
                "capacity": {"storage": "1Gi"},
                "mountOptions": [f"password={CANARY}"],
                "csi": {
                    "driver": "d",
                    "volumeHandle": "v1",
                    "volumeAttributes": {"a": CANARY},
                    "nodeStageSecretRef": {"name": CANARY},
                },
            },
            "status": {"phase": "Failed", "message": told},
        },
        "PersistentVolumeClaim": {
            "metadata": meta("data", "shop"),
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            "status": {"phase": "Pending", "conditions": [{"type": "X", "status": "True", "message": told}]},
        },
        "Pod": {
            "metadata": meta("db-0", "shop"),
            "spec": POD_SPEC,
            "status": {
                "phase": "Running",
                "message": CANARY,
                "podIP": CANARY,
                "containerStatuses": [{"name": "main", "ready": True, "image": CANARY, "containerID": CANARY}],
            },
        },
        "StatefulSet": {
            "metadata": meta("db", "shop"),
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": "db"}},
                "template": {"metadata": {"labels": {"app": "db"}, "annotations": ANNOTATED}, "spec": POD_SPEC},
                "volumeClaimTemplates": [{"metadata": {"name": "data", "annotations": ANNOTATED}, "spec": {}}],
            },
        },
        "StorageClass": {
            "metadata": meta("fast"),
            "provisioner": "d",
            "parameters": {"type": "ssd", "csi.storage.k8s.io/provisioner-secret-name": CANARY},
            "mountOptions": [CANARY],
        },
        "CSIDriver": {"metadata": meta("d"), "spec": {"tokenRequests": [{"audience": CANARY}]}},
        "CSINode": {
            "metadata": meta("n1"),
            "spec": {"drivers": [{"name": "d", "nodeID": "n1", "token": CANARY}], "note": CANARY},
        },
        "CSIStorageCapacity": {"metadata": meta("c1", "shop"), "storageClassName": "fast", "capacity": "1Ti"},
        "VolumeAttachment": {
            "metadata": meta("va"),
            "spec": {
                "attacher": "d",
                "nodeName": "n1",
                "source": {"persistentVolumeName": "pv-1", "inlineVolumeSpec": INLINE},
            },
            "status": {
                "attached": False,
                "attachmentMetadata": {"devicePath": CANARY},
                "attachError": {"message": told},
            },
        },
        "Event": {
            "metadata": meta("db-0.1", "shop"),
            "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "db-0", "fieldPath": CANARY},
            "reason": "FailedMount",
            "type": "Warning",
            "message": told,
            "note": told,
            "related": {"kind": "Secret", "name": CANARY},
            "reportingInstance": CANARY,
            "source": {"component": "kubelet", "host": CANARY},
        },
    }


def observed_bytes(directory: Path, objects: dict[str, dict[str, Any]]) -> bytes:
    """All that is written of a cluster with these objects, each listed once and then changed: the store, its
    write-ahead log, an export and a backup."""
    cluster = GivenCluster()
    without = copy.deepcopy(objects["Pod"])
    without["metadata"]["name"], without["spec"]["volumes"] = "web-0", without["spec"]["volumes"][1:-1]
    database = open_database(f"sqlite:///{directory / 'store.db'}")
    migrate(database)
    observer = ClusterObserver(database, cluster)
    for turn in range(2):
        for kind, manifest in (*objects.items(), ("Pod", without)):
            changed = copy.deepcopy(manifest)
            changed["metadata"]["labels"] = {**changed["metadata"].get("labels", {}), "turn": f"turn-{turn}"}
            cluster.put(kind, changed)
        while observer.step(NOW):
            pass
    with database.read() as connection, (directory / "export.jsonl").open("w") as out:
        manifest_ = manifest_of(connection, now=NOW)
        write_jsonl(out, manifest_, events_of(connection, manifest_))
    back_up(database, out=directory / "backup.jsonl", now=NOW)
    files = {file.name: file.read_bytes() for file in directory.iterdir()}
    database.close()
    assert {"store.db", "store.db-wal", "export.jsonl", "backup.jsonl"} <= files.keys()
    return b"".join(files.values())


def places(value: Any) -> int:
    """In how many fields the canary is."""
    if isinstance(value, dict):
        return sum(map(places, value.values()))
    return sum(map(places, value)) if isinstance(value, list) else int(CANARY in str(value))


def test_a_canary_in_many_places_is_in_no_byte_of_the_store(tmp_path: Path) -> None:
    objects = poisoned()
    assert set(objects) == set(OBSERVED_KINDS)
    assert all(places(manifest) >= 4 for manifest in objects.values())
    assert places(POD_SPEC) >= 30
    written = observed_bytes(tmp_path, objects)
    assert all(it in written for it in (b"db-0", b"web-0", b"turn-0", b"turn-1"))
    assert CANARY.encode() not in written


@pytest.mark.parametrize("kind", ["PersistentVolumeClaim", "Pod"])
def test_a_canary_that_is_kept_is_found(tmp_path: Path, kind: str) -> None:
    """In a label, which is kept: packed data hides no value from a search of the bytes."""
    objects = poisoned()
    objects[kind]["metadata"]["labels"] = {"leak": CANARY}
    assert CANARY.encode() in observed_bytes(tmp_path, objects)


@pytest.mark.parametrize("kind", OBSERVED_KINDS)
def test_what_was_projected_is_projected_to_itself(kind: str) -> None:
    once = project(kind, poisoned()[kind])
    assert once is not None
    assert project(kind, once) == once


def test_events_beside_the_matter_are_not_kept() -> None:
    assert project("Event", {"metadata": {"name": "e"}, "reason": "Pulled"}) is None


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("a password=hunter2 b\nmore", "a password=… b"),
        ("get https://me:hunter2@host/x failed", "get https://…@host/x failed"),
        ('login {"user":"me","password":"hunter2 x"} failed', 'login {"user":"me","password":…} failed'),
        ("login {'accessKey': 'hunter2 x'} failed", "login {'accessKey': …} failed"),
        (r"rpc: {\"secret\": \"hunter2\"} failed", r"rpc: {\"secret\": … failed"),
        ('exec --api-token "hunter2 \\" x" failed', "exec --api-token … failed"),
        ('exec --api-token="hunter2 \\" x" failed', "exec --api-token=… failed"),
        ("Authorization: Bearer hunter2 was refused", "Authorization: … was refused"),
        ("sent bearer hunter2 to it", "sent bearer … to it"),
        ("PUT ?sv=1&sig=hunter2 failed", "PUT ?sv=1&sig=… failed"),
        ("smb_pwd=hunter2", "smb_pwd=…"),
        ("a\x00b\x1b[2J \ud800", "a b [2J  "),
        (f'{"-" * 500}password="hunter2 {"x" * 99}"', f"{'-' * 500}password=…"),
    ],
)
def test_words_are_a_line_without_credentials(said: str, kept: str) -> None:
    assert words(said) == kept


@pytest.mark.parametrize(
    "said",
    [
        "0/3 nodes are available: 3 node(s) had volume node affinity conflict.",
        'persistentvolumeclaim "data" not found. preemption: 0/3 nodes are available',
        'failed to provision volume with StorageClass "fast": rpc error: code = ResourceExhausted desc = no space',
    ],
)
def test_words_that_say_why_are_kept(said: str) -> None:
    assert words(said) == said


def test_the_projection_can_be_read_before_it_is_allowed() -> None:
    lines = shown_projection()
    assert "Pod.spec.containers[].resources.requests.*" in lines
    assert "Pod.spec.volumes[].image (empty)" in lines
    assert not [line for line in lines if "containers[].image" in line or line.endswith((".env", ".command"))]


@pytest.mark.parametrize("kind", [it for it in OBSERVED_KINDS if it != "Event"])
def test_values_differ_in_nothing_but_sources_and_unlisted_annotations(kind: str) -> None:
    whole, kept = (KINDS[kind].read(it) for it in (poisoned()[kind], project(kind, poisoned()[kind]) or {}))
    assert set(kept.meta.annotations) == set(whole.meta.annotations) & set(ANNOTATIONS)
    assert kept.meta.labels == whole.meta.labels
    assert len(getattr(kept, "volumes", ())) == len(getattr(whole, "volumes", ()))
