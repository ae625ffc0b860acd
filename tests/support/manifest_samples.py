"""One small valid manifest of every kind, and a way to change one field of it."""

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from volsched.kube.kinds import KINDS
from volsched.kube.manifest_reader import Loaded, load_manifests
from volsched.kube.problems import ManifestError, Place

REMOVED = object()

_TERMS = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]}
_CLAIM_SPEC = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}

_BODIES: dict[str, dict[str, Any]] = {
    "Node": {"spec": {"taints": [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]}},
    "Namespace": {},
    "PersistentVolume": {
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "disk.example.com", "volumeHandle": "v-1"},
            "nodeAffinity": {"required": _TERMS},
            "claimRef": {"namespace": "shop", "name": "data"},
        }
    },
    "PersistentVolumeClaim": {"spec": {**_CLAIM_SPEC, "selector": {"matchLabels": {"disk": "ssd"}}}},
    "Pod": {
        "spec": {
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _TERMS},
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {}}}
                    ]
                },
            },
            "tolerations": [{"key": "dedicated", "operator": "Exists"}],
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
            ],
            "containers": [
                {"name": "main", "image": "app", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}
            ],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": _CLAIM_SPEC}}},
            ],
        }
    },
    "Event": {"involvedObject": {"kind": "Pod", "name": "db-0"}, "reason": "Scheduled"},
    "StatefulSet": {
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "db"}},
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [{"name": "main", "image": "app"}]},
            },
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": _CLAIM_SPEC}],
        }
    },
    "StorageClass": {
        "provisioner": "disk.example.com",
        "parameters": {"type": "ssd"},
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}],
    },
    "CSIDriver": {"spec": {"storageCapacity": True}},
    "CSINode": {
        "spec": {
            "drivers": [
                {
                    "name": "disk.example.com",
                    "nodeID": "n1",
                    "topologyKeys": ["zone"],
                    "allocatable": {"count": 3},
                }
            ]
        }
    },
    "CSIStorageCapacity": {
        "storageClassName": "fast",
        "nodeTopology": {"matchLabels": {"zone": "a"}},
        "capacity": "1Ti",
    },
    "VolumeAttachment": {
        "spec": {"attacher": "disk.example.com", "nodeName": "n1", "source": {"persistentVolumeName": "pv-1"}}
    },
    "Service": {"spec": {"clusterIP": "None", "selector": {"app": "db"}, "ports": [{"port": 5432}]}},
    "ControllerRevision": {"data": {"spec": {"template": {"$patch": "replace"}}}, "revision": 1},
    "PodDisruptionBudget": {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}}},
    "PriorityClass": {"value": 1000, "description": "before others"},
}


def sample(kind: str, *, name: str = "one") -> dict[str, Any]:
    head = {"apiVersion": KINDS[kind].api_version, "kind": kind, "metadata": {"name": name}}
    return copy.deepcopy({**head, **_BODIES[kind]})


def changed(manifest: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The manifest with another value at `spec/volumes/0/name`; parents that are missing are made."""
    result: dict[str, Any] = copy.deepcopy(dict(manifest))
    steps: list[Any] = [int(step) if step.isdecimal() else step for step in path.split("/")]
    *parents, last = steps
    holder: Any = result
    for step in parents:
        holder = holder[step] if isinstance(holder, list) else holder.setdefault(step, {})
    if value is REMOVED:
        del holder[last]
    elif isinstance(holder, list) and last == len(holder):
        holder.append(value)
    else:
        holder[last] = value
    return result


def load(*manifests: Any) -> list[Loaded]:
    return load_manifests("\n".join(json.dumps(manifest) for manifest in manifests).encode(), source="in.json")


def problems(*manifests: Any) -> list[str]:
    """What is said about the manifests, without the place; empty where they are accepted."""
    try:
        load(*manifests)
    except ManifestError as error:
        return [str(replace(problem, place=Place(""), subject="")) for problem in error.problems]
    return []


def verdict(kind: str, *changes: tuple[str, Any]) -> list[str]:
    manifest = sample(kind)
    for path, value in changes:
        manifest = changed(manifest, path, value)
    return problems(manifest)


def only_problem(kind: str, *changes: tuple[str, Any]) -> str:
    found = verdict(kind, *changes)
    assert len(found) == 1, found
    return found[0]
