"""What is kept of a foreign object is all that a rule reads: on raw and on projected objects they decide alike."""

from collections.abc import Iterator
from dataclasses import is_dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AliasPath
from pydantic.fields import FieldInfo

from tests.support.objects import affinity, needs
from volsched.cluster.projection import OBSERVED_KINDS, project, shown_projection
from volsched.kube.kinds import KINDS
from volsched.kube.meta import BIND_COMPLETED, DEFAULT_CLASS_KEYS, HOSTNAME, SELECTED_NODE, ZONE
from volsched.kube.object_values import Object
from volsched.kube.quantity import Quantity
from volsched.kube.storage import VolumeSource
from volsched.questions.explain.explain import explain_pod
from volsched.questions.simulate.changes import index_of
from volsched.scheduling.rules.profile import PROFILES

NOISE = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "example.com/x": "y"}
names = st.sampled_from(["a", "b", "c"])
zones = st.sampled_from(["z1", "z2"])


def _meta(
    name: str, namespace: str = "", annotations: dict[str, str] | None = None, **more: Any
) -> dict[str, Any]:
    own: dict[str, Any] = {"name": name, "uid": f"uid-{name}", "annotations": NOISE | (annotations or {})}
    return own | ({"namespace": namespace} if namespace else {}) | {"managedFields": [{"manager": "m"}]} | more


@st.composite
def manifests(draw: st.DrawFn) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = [
        (
            "StorageClass",
            {
                "metadata": _meta(cls, annotations={DEFAULT_CLASS_KEYS[0]: "true"} if cls == "local" else {}),
                "provisioner": "d" if cls == "dyn" else "kubernetes.io/no-provisioner",
                "volumeBindingMode": "WaitForFirstConsumer",
                "parameters": {"secret": "s"},
            },
        )
        for cls in ("local", "dyn")
    ]
    found.append(("CSIDriver", {"metadata": _meta("d"), "spec": {"storageCapacity": draw(st.booleans())}}))
    for index in range(draw(st.integers(1, 3))):
        node, zone = f"n{index}", draw(zones)
        taints = [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}] if draw(st.booleans()) else []
        cpu = draw(st.sampled_from(["1", "4"]))
        status = {
            "allocatable": {"cpu": cpu, "pods": "10"},
            "capacity": {"cpu": "64"},
            "images": [{"names": ["i"]}],
        }
        labels = {HOSTNAME: node, ZONE: zone}
        spec = {"taints": taints, "unschedulable": draw(st.booleans()), "podCIDR": "10.0.0.0/24"}
        found.append(("Node", {"metadata": _meta(node, labels=labels), "spec": spec, "status": status}))
        drivers = [{"name": "d", "nodeID": node, "topologyKeys": [ZONE], "allocatable": {"count": 1}}]
        found.append(("CSINode", {"metadata": _meta(node), "spec": {"drivers": drivers}}))
    for index in range(draw(st.integers(0, 3))):
        reach = affinity({"matchExpressions": [needs(ZONE, "In", draw(zones))]})
        spec = {
            "capacity": {"storage": draw(st.sampled_from(["1Gi", "5Gi"]))},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": draw(st.sampled_from(["local", "dyn"])),
            "nodeAffinity": reach,
            "mountOptions": ["ro"],
            "csi": {"driver": "d", "volumeHandle": f"h{index}", "volumeAttributes": {"x": "y"}},
        }
        found.append(
            ("PersistentVolume", {"metadata": _meta(f"pv{index}"), "spec": spec, "status": {"phase": "Available"}})
        )
    volumes = [name for kind, it in found if kind == "PersistentVolume" for name in [it["metadata"]["name"]]]
    for name in ("a", "b"):
        bound = draw(st.sampled_from([None, *volumes])) if name == "a" else None
        marks = {BIND_COMPLETED: "yes"} if bound else {}
        marks |= {SELECTED_NODE: "n0"} if draw(st.booleans()) and not bound else {}
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": draw(st.sampled_from(["local", "dyn"])),
            "resources": {"requests": {"storage": draw(st.sampled_from(["1Gi", "5Gi"]))}},
        } | ({"volumeName": bound} if bound else {})
        claim = {"metadata": _meta(name, "shop", marks), "spec": spec, "status": {"phase": "Pending"}}
        found.append(("PersistentVolumeClaim", claim))
    capacity = {"metadata": _meta("cap", "shop"), "storageClassName": "dyn", "capacity": "3Gi", "nodeTopology": {}}
    found.append(("CSIStorageCapacity", capacity))
    if volumes:
        source = {
            "persistentVolumeName": draw(st.sampled_from(volumes)),
            "inlineVolumeSpec": {"csi": {"driver": "x"}},
        }
        spec = {"attacher": "d", "nodeName": "n0", "source": source}
        told = {"attached": draw(st.booleans()), "attachmentMetadata": {"path": "/dev/x"}}
        found.append(("VolumeAttachment", {"metadata": _meta("va"), "spec": spec, "status": told}))
    for name in ("p", "q", "r"):
        found.append(("Pod", draw(pods(name))))
    return found


@st.composite
def pods(draw: st.DrawFn, name: str) -> dict[str, Any]:
    disk = {"name": "i", "gcePersistentDisk": {"pdName": "disk", "fsType": "ext4"}}
    uses = draw(st.lists(st.sampled_from(["a", "b", "missing"]), max_size=2, unique=True))
    volumes: list[dict[str, Any]] = [{"name": it, "persistentVolumeClaim": {"claimName": it}} for it in uses]
    inline = {"name": "in", "csi": {"driver": "d", "volumeAttributes": {"a": "b"}}}
    template = {
        "metadata": {"annotations": NOISE},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "dyn",
            "resources": {"requests": {"storage": "2Gi"}},
        },
    }
    ephemeral = {"name": "e", "ephemeral": {"volumeClaimTemplate": template}}
    secret = {"name": "s", "secret": {"secretName": "s"}}
    volumes += draw(st.lists(st.sampled_from([disk, inline, ephemeral, secret]), max_size=2, unique_by=str))
    container = {
        "name": "main",
        "image": "i",
        "env": [{"name": "A", "value": "b"}],
        "resources": {"requests": {"cpu": draw(st.sampled_from(["500m", "2"]))}},
    }
    spec: dict[str, Any] = {"containers": [container], "volumes": volumes, "serviceAccountName": "s"}
    if draw(st.booleans()):
        spec["initContainers"] = [container | {"restartPolicy": "Always"}]
    if draw(st.booleans()):
        spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    if draw(st.booleans()):
        term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": ZONE}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    if draw(st.booleans()):
        spec["overhead"] = {"cpu": "250m"}
    if draw(st.booleans()):
        spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
        spec["topologySpreadConstraints"] = [spread | {"labelSelector": {"matchLabels": {"app": "x"}}}]
    if name != "p":
        spec["nodeName"] = "n0"
    return {"metadata": _meta(name, "shop", labels={"app": "x"}), "spec": spec, "status": {"phase": "Running"}}


def values(objects: list[tuple[str, dict[str, Any]]]) -> Iterator[Object]:
    return (KINDS[kind].read(manifest) for kind, manifest in objects)


def read_paths(prefix: str, type_: Any) -> Iterator[str]:
    """Every place of a manifest that a value of this type is read from, with `[]` for the entries of a list."""
    camel = getattr(type_, "__pydantic_config__", {}).get("alias_generator", str)
    for name, hint in get_type_hints(type_, include_extras=True).items():
        places = [it.validation_alias for it in getattr(hint, "__metadata__", ()) if isinstance(it, FieldInfo)]
        steps = places[0].path if places and isinstance(places[0], AliasPath) else [camel(name)]
        yield from _below(".".join([prefix, *map(str, steps)]), hint)


def _below(path: str, hint: Any) -> Iterator[str]:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if isinstance(hint, UnionType) or get_origin(hint) is Union:
        (hint,) = (it for it in get_args(hint) if it is not type(None))
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) is tuple and _values(get_args(hint)[0]):
        yield from _below(f"{path}[]", get_args(hint)[0])
    elif is_dataclass(hint) and hint not in (VolumeSource, Quantity):
        yield from read_paths(path, hint)
    else:
        yield path


def _values(hint: Any) -> bool:
    return is_dataclass(get_args(hint)[0] if get_origin(hint) is Annotated else hint)


BY_RULES_OF_THEIR_OWN = frozenset({"PersistentVolume.spec", "Pod.spec.volumes[].source"})
"""Sources: which of their fields tell two disks apart is the projection's."""
OF_NO_RULE = ("metadata.ownerReferences[].blockOwnerDeletion", "involvedObject.resourceVersion")
"""What only a garbage collector and a writer of events need, and neither runs for a foreign cluster."""


@pytest.mark.parametrize("kind", OBSERVED_KINDS)
def test_whatever_a_value_is_read_from_is_kept(kind: str) -> None:
    """Every field that a rule could ask for, and not only those that examples have."""
    lines = [it.partition(" (")[0].replace('["', ".").replace('"]', "") for it in shown_projection()]
    trees = tuple(it.removesuffix("*") for it in lines if it.endswith(".*"))
    read = set(read_paths(kind, KINDS[kind].value)) - BY_RULES_OF_THEIR_OWN
    paths = {it for it in read if not it.endswith(OF_NO_RULE)}
    assert len(paths) >= 10
    lost = {
        path
        for path in paths
        if not f"{path}.".replace("[]", "").startswith(tuple(it.replace("[]", "") for it in trees))
        and not any(line == path or line.startswith((f"{path}.", f"{path}[")) for line in lines)
    }
    assert not lost


@settings(max_examples=60, deadline=None)
@given(manifests(), st.sampled_from(sorted(PROFILES)))
def test_the_rules_answer_equally_on_the_raw_and_on_the_projected_objects(
    raw: list[tuple[str, dict[str, Any]]], profile: str
) -> None:
    kept: list[tuple[str, dict[str, Any]]] = [(kind, project(kind, manifest) or {}) for kind, manifest in raw]
    answers = []
    for objects in (raw, kept):
        index = index_of(values(objects), profile=PROFILES[profile])
        answers.append(explain_pod(index, index.snapshot.pods["shop/p"]))
    assert answers[0] == answers[1]
