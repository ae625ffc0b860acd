"""Objects in and out of YAML and JSON: lists, kinds, types, and errors that name all that is wrong."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.support.manifest_samples import REMOVED, changed, load, problems, sample
from volsched.kube.kinds import KINDS
from volsched.kube.manifest_reader import dump_manifests, load_manifests
from volsched.kube.problems import ManifestError, Place
from volsched.kube.quantity import parse_quantity
from volsched.kube.storage import Volume

CLUSTER = Path(__file__).parent / "data" / "cluster.yaml"


def error_of(text: str) -> ManifestError:
    with pytest.raises(ManifestError) as caught:
        load_manifests(text.encode(), source="in.yaml")
    return caught.value


# --- what is read ---------------------------------------------------------------------------------------


def test_a_dump_of_a_healthy_cluster_loads_as_kubectl_prints_it() -> None:
    loaded = load_manifests(CLUSTER.read_bytes(), source="cluster.yaml")
    assert {one.kind.name for one in loaded} == set(KINDS)
    volume = next(one for one in loaded if one.key == "local-pv-5c9ed1")
    assert isinstance(volume.value, Volume)
    assert volume.value.size == parse_quantity("200Gi")
    assert volume.place == Place("cluster.yaml", 1, (3,))
    node = loaded[0].manifest
    assert node["metadata"]["managedFields"][0]["time"] == "2026-03-02T08:14:55Z"
    assert node["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}


def test_what_is_dumped_loads_as_the_same_objects() -> None:
    loaded = load_manifests(CLUSTER.read_bytes(), source="cluster.yaml")
    text = dump_manifests(one.manifest for one in loaded)
    assert load_manifests(text.encode(), source="again.yaml") == loaded
    assert text.count("\n---\n") == len(loaded) - 1


@pytest.mark.parametrize("kind", KINDS)
def test_every_sample_is_valid(kind: str) -> None:
    (loaded,) = load(sample(kind))
    assert (loaded.kind, loaded.value.meta.name) == (KINDS[kind], "one")


def test_manifests_are_defaulted_stripped_of_nulls_and_otherwise_kept() -> None:
    (loaded,) = load(
        changed(changed(sample("PersistentVolumeClaim"), "spec/volumeName", None), "spec/unknown", {"x": 1})
    )
    assert loaded.manifest["metadata"] == {"name": "one", "namespace": "default"}
    assert loaded.manifest["spec"]["unknown"] == {"x": 1}
    assert loaded.manifest["spec"]["volumeMode"] == "Filesystem"
    assert "volumeName" not in loaded.manifest["spec"]
    assert loaded.key == "default/one"


def test_lists_are_expanded_at_every_level_with_their_place() -> None:
    inner = {"apiVersion": "v1", "kind": "List", "items": [sample("Pod"), sample("Node")]}
    outer = {"apiVersion": "v1", "kind": "List", "items": [sample("Namespace"), inner]}
    loaded = load(sample("CSIDriver"), outer)
    assert [(one.kind.name, one.place.document, one.place.items) for one in loaded] == [
        ("CSIDriver", 1, ()),
        ("Namespace", 2, (1,)),
        ("Pod", 2, (2, 1)),
        ("Node", 2, (2, 2)),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_items_of_a_typed_list_need_not_repeat_what_they_are(kind: str) -> None:
    item = changed(changed(sample(kind), "kind", REMOVED), "apiVersion", REMOVED)
    (loaded,) = load({"apiVersion": KINDS[kind].api_version, "kind": f"{kind}List", "items": [item]})
    assert loaded.kind is KINDS[kind]
    assert loaded.manifest["kind"] == kind
    assert loaded.manifest["apiVersion"] == KINDS[kind].api_version


@pytest.mark.parametrize("items", [[], None, REMOVED])
def test_an_empty_list_holds_no_objects(items: Any) -> None:
    assert load(changed({"apiVersion": "v1", "kind": "PodList", "items": []}, "items", items)) == []


def test_no_input_is_no_objects() -> None:
    assert load_manifests(b"", source="in.yaml") == []


@pytest.mark.parametrize(
    "value", ["1e3", "yes", "012", "1_0", "null", "~", "", " a ", "a: b", "y", "0o17", "12:30", "-", "#"]
)
def test_strings_that_look_like_something_else_survive_a_dump(value: str) -> None:
    (loaded,) = load(changed(sample("Node"), "metadata/annotations", {"note": value}))
    text = dump_manifests([loaded.manifest])
    (again,) = load_manifests(text.encode(), source="again.yaml")
    assert again.manifest["metadata"]["annotations"] == {"note": value}


@pytest.mark.parametrize("value", ["1e3", "0o17", "y", "1E5", "08"])
def test_what_other_readers_take_for_a_number_or_boolean_is_quoted(value: str) -> None:
    assert dump_manifests([{"a": value}]) == f"---\na: '{value}'\n"


def test_a_dump_keeps_the_order_of_keys_and_writes_repeated_values_out() -> None:
    shared = {"z": 1, "a": ["x"]}
    assert (
        dump_manifests([{"b": shared, "a": shared}]) == "---\nb:\n  z: 1\n  a:\n  - x\na:\n  z: 1\n  a:\n  - x\n"
    )


# --- which object is meant ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        ({"kind": "Pod"}, "apiVersion: is required; write v1"),
        ({"apiVersion": "v1"}, "kind: is required; write one of Node, "),
        (
            {"apiVersion": "v1", "kind": "ConfigMap"},
            'kind: "ConfigMap" is not a kind that volsched knows; known are ',
        ),
        ({"apiVersion": "v1", "kind": "pod"}, 'kind: "pod" is not a kind that volsched knows; did you mean Pod?'),
        ({"apiVersion": "v1", "kind": "PersistentVolumes"}, "did you mean PersistentVolume?"),
        ({"apiVersion": "v1", "kind": ["Pod"]}, "kind: a list is not a kind"),
        ({"apiVersion": "v1", "kind": 5}, "kind: 5 is not a kind"),
        (
            {"apiVersion": "v1", "kind": "StorageClass"},
            'apiVersion: "v1" is not the apiVersion of this kind; write stor',
        ),
        ({"apiVersion": "storage.k8s.io/v1beta1", "kind": "CSIDriver"}, "write storage.k8s.io/v1"),
        ({"apiVersion": 1, "kind": "Pod"}, "apiVersion: 1 is not the apiVersion"),
        ({"apiVersion": "v2", "kind": "List"}, 'apiVersion: "v2" is not the apiVersion of this kind; write v1'),
        ({"apiVersion": "v1", "kind": "StorageClassList"}, "write storage.k8s.io/v1"),
        ({"apiVersion": "v1", "kind": "List", "items": {}}, "items: {} is not a list"),
        ([], "[] is not an object; write a mapping with apiVersion, kind and metadata"),
        ({"apiVersion": "v1", "kind": "List", "items": [None]}, "null is not an object"),
        ({"apiVersion": "v1", "kind": "List", "items": ["x"]}, '"x" is not an object'),
    ],
)
def test_what_is_no_known_object_is_named(manifest: Any, expected: str) -> None:
    (problem,) = problems(manifest)
    assert expected in problem


def test_the_same_object_twice_names_both_places() -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [sample("Node"), sample("Pod")]}
    with pytest.raises(ManifestError) as caught:
        load(sample("Pod"), sample("Namespace"), listed)
    assert str(caught.value) == (
        'in.json: document 3: item 2: Pod "one": metadata.name: is in the input twice, '
        "first at in.json: document 1; remove one of the two"
    )


def test_one_name_in_two_namespaces_or_kinds_is_no_repetition() -> None:
    assert len(load(sample("Pod"), changed(sample("Pod"), "metadata/namespace", "shop"), sample("Node"))) == 3


def test_an_explicit_default_namespace_is_the_same_key() -> None:
    (problem,) = problems(sample("Pod"), changed(sample("Pod"), "metadata/namespace", "default"))
    assert "is in the input twice" in problem


# --- wrong types ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "path", "value", "expected"),
    [
        ("Node", "metadata", "x", 'metadata: "x" is not a mapping'),
        ("Node", "metadata", ["x"], "metadata: a list is not a mapping"),
        ("Node", "spec", 5, "spec: 5 is not a mapping"),
        ("StatefulSet", "status", "x", 'status: "x" is not a mapping'),
        ("PersistentVolumeClaim", "spec/resources", "x", 'spec.resources: "x" is not a mapping'),
        (
            "PersistentVolumeClaim",
            "spec/resources/requests",
            ["1Gi"],
            "spec.resources.requests: a list is not a mapping",
        ),
        ("PersistentVolume", "spec/capacity", "10Gi", 'spec.capacity: "10Gi" is not a mapping'),
        ("PersistentVolume", "spec/csi", True, "spec.csi: true is not a mapping"),
        ("PersistentVolume", "spec/nodeAffinity/required", [], "spec.nodeAffinity.required: [] is not a mapping"),
        ("Pod", "spec/affinity", [], "spec.affinity: [] is not a mapping"),
        ("Pod", "spec/affinity/nodeAffinity", "x", 'spec.affinity.nodeAffinity: "x" is not a mapping'),
        (
            "Pod",
            "spec/volumes/0/persistentVolumeClaim",
            "data",
            'spec.volumes[0].persistentVolumeClaim: "data" is not a m',
        ),
        ("Pod", "spec/volumes/0", "data", 'spec.volumes[0]: "data" is not a mapping'),
        ("Pod", "spec/containers/0/resources", "x", 'spec.containers[0].resources: "x" is not a mapping'),
        ("Pod", "spec/volumes", {"name": "x"}, "spec.volumes: a mapping is not a list"),
        ("CSINode", "spec/drivers/0/allocatable", 3, "spec.drivers[0].allocatable: 3 is not a mapping"),
        ("StatefulSet", "spec/ordinals", 3, "spec.ordinals: 3 is not a mapping"),
        ("Event", "source", "kubelet", 'source: "kubelet" is not a mapping'),
        ("VolumeAttachment", "spec/source", "pv", 'spec.source: "pv" is not a mapping'),
        (
            "Node",
            "metadata/labels/tier",
            5,
            "metadata.labels.tier: 5 must be a string, not a number; put it in quotes",
        ),
        ("Node", "metadata/labels/tier", True, "true must be a string, not a boolean; put it in quotes"),
        (
            "Node",
            "metadata/annotations",
            {"a/b": {}},
            'metadata.annotations["a/b"]: {} must be a string, not a mapping',
        ),
        ("Node", "metadata/name", 5, "metadata.name: 5 must be a string, not a number; put it in quotes"),
        (
            "Node",
            "spec/unschedulable",
            "true",
            '"true" must be a boolean, not a string; write true or false without',
        ),
        ("StatefulSet", "spec/replicas", "3", '"3" must be a whole number, not a string; write it without quotes'),
        ("StatefulSet", "spec/replicas", 1.5, "1.5 must be a whole number, not a fraction"),
        ("StatefulSet", "spec/replicas", True, "true must be a whole number, not a boolean"),
        (
            "PersistentVolume",
            "spec/accessModes",
            "ReadWriteOnce",
            'spec.accessModes: "ReadWriteOnce" is not a list',
        ),
        ("PersistentVolume", "spec/accessModes/0", 5, "spec.accessModes[0]: 5 must be a string"),
        (
            "PersistentVolume",
            "spec/capacity/storage",
            "10GB",
            'spec.capacity.storage: "10GB" is not a quantity: unknown suffix "GB"; write for example 10Gi',
        ),
        (
            "PersistentVolume",
            "spec/capacity/storage",
            [],
            "spec.capacity.storage: [] must be a quantity such as 10Gi",
        ),
        ("PersistentVolume", "spec/accessModes", [None], "spec.accessModes[0]: is null inside a list"),
        ("Node", "status/images", [{"names": ["a", None]}], "status.images[0].names[1]: is null inside a list"),
        (
            "Pod",
            "spec/volumes/1/ephemeral/volumeClaimTemplate/spec/resources",
            "x",
            "json: cannot unmarshal string into Go struct field PersistentVolumeClaimSpec.spec.volumes.ephemeral",
        ),
        (
            "StatefulSet",
            "spec/template/spec/affinity",
            "x",
            "PodSpec.spec.template.spec.affinity of type v1",
        ),
        ("StatefulSet", "spec/replicas", 2**31, "cannot unmarshal number 2147483648 into Go struct field"),
        ("Pod", "spec/priority", 2**31, "PodSpec.spec.priority of type int32"),
    ],
)
def test_a_wrong_type_is_one_problem_at_its_own_field(kind: str, path: str, value: Any, expected: str) -> None:
    (problem,) = problems(changed(sample(kind), path, value))
    assert expected in problem


# --- all that is wrong ----------------------------------------------------------------------------------


def test_an_error_line_names_place_object_field_value_and_remedy() -> None:
    text = (
        "---\n# none\n---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {name: data-1}\n"
        "spec: {capacity: {storage: 10GB}, accessModes: [ReadWriteOnce], nfs: {server: s, path: /}}\n"
    )
    assert str(error_of(text)) == (
        'in.yaml: document 2: PersistentVolume "data-1": spec.capacity.storage: "10GB" is not a quantity: '
        'unknown suffix "GB"; write for example 10Gi, 10G or 1500m'
    )


def test_a_wrong_type_does_not_hide_the_wrong_types_and_values_of_other_fields_and_objects() -> None:
    volume = changed(changed(sample("PersistentVolume"), "spec/capacity", 5), "spec/volumeMode", 7)
    claim = changed(sample("PersistentVolumeClaim"), "spec/accessModes", ["RWO", "ReadWriteMany", "RWX"])
    with pytest.raises(ManifestError) as caught:
        load(volume, {"apiVersion": "v1", "kind": "Nod"}, claim, sample("Pod"))
    assert not caught.value.unreadable
    assert [
        (problem.place.document, problem.subject, problem.defect.field) for problem in caught.value.problems
    ] == [
        (1, 'PersistentVolume "one"', "spec.capacity"),
        (1, 'PersistentVolume "one"', "spec.volumeMode"),
        (2, "Nod", "kind"),
        (3, 'PersistentVolumeClaim "one"', "spec.accessModes"),
        (3, 'PersistentVolumeClaim "one"', "spec.accessModes"),
    ]


def test_an_unreadable_document_is_all_that_is_reported() -> None:
    error = error_of("kind: Nothing\n---\na: [\n")
    assert error.unreadable
    assert [problem.place.document for problem in error.problems] == [2]


def test_long_and_unprintable_values_are_shortened_to_one_line() -> None:
    manifest = changed(sample("Node"), "metadata/labels", {"a\nb" * 500: "x", "tier": "y\u2028\x1b[31m" * 500})
    lines = problems(manifest)
    assert len(lines) == 4
    assert all(line.isprintable() and len(line) < 700 for line in lines)


def test_thousands_of_defects_are_reported_in_reasonable_time() -> None:
    for labels in ({f"k{n}": n for n in range(5000)}, {f"-{n}": "x" for n in range(5000)}):
        assert len(problems(changed(sample("Node"), "metadata/labels", labels))) == 5000


def test_volumes_of_one_place_share_the_value_of_their_affinity() -> None:
    """A node has very many volumes: each with a value of its own would cost their reader time and memory."""
    first, second = (KINDS["PersistentVolume"].read(sample("PersistentVolume", name=name)) for name in "ab")
    assert isinstance(first, Volume)
    assert isinstance(second, Volume)
    assert first.node_affinity is not None
    assert first.node_affinity is second.node_affinity
    with pytest.raises(ValidationError, match="required"):
        # JSON has no such number, and its writer would make it a missing affinity.
        KINDS["PersistentVolume"].read({"metadata": {}, "spec": {"nodeAffinity": {"required": float("nan")}}})
    values = "spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/values"
    assert problems(changed(sample("PersistentVolume"), values, [True])) == [
        "spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].values[0]: true must be a string, "
        "not a boolean; put it in quotes"
    ]
