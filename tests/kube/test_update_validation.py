"""Which changes of an existing object are refused."""

import re
from typing import Any

import pytest

from tests.support.call_counts import ComparedText, calls_of
from tests.support.manifest_samples import REMOVED, changed, sample
from volsched.kube.defaults import with_defaults
from volsched.kube.kinds import KINDS
from volsched.kube.meta import BETA_STORAGE_CLASS, ROLLBACK, STABLE_LABELS
from volsched.kube.validation.rules import update_errors

VOLUME_TERM = "spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0"


def old_of(kind: str, **changes: Any) -> dict[str, Any]:
    manifest = sample(kind)
    for path, value in changes.items():
        manifest = changed(manifest, path, value)
    return with_defaults(KINDS[kind], manifest)


def claim(phase: Any = "Pending", **changes: Any) -> dict[str, Any]:
    return old_of("PersistentVolumeClaim", **{"status/phase": phase, **changes})


def refused(old: dict[str, Any], path: str, value: Any, **options: bool) -> list[str]:
    new = changed(old, path, value)
    return [str(error) for error in update_errors(KINDS[old["kind"]], old, new, **options)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_update_that_changes_nothing_is_accepted(kind: str) -> None:
    manifest = old_of(kind)
    assert update_errors(KINDS[kind], manifest, manifest) == []


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("StorageClass", "provisioner", "other.example.com"),
        ("StorageClass", "parameters", {"type": "hdd"}),
        ("StorageClass", "parameters", REMOVED),
        ("StorageClass", "reclaimPolicy", "Retain"),
        ("StorageClass", "volumeBindingMode", "WaitForFirstConsumer"),
        ("PersistentVolume", "spec/volumeMode", "Block"),
        ("PersistentVolumeClaim", "spec/accessModes", ["ReadWriteMany"]),
        ("PersistentVolumeClaim", "spec/volumeMode", "Block"),
        ("PersistentVolumeClaim", "spec/selector", REMOVED),
        ("PersistentVolumeClaim", "spec/dataSource", {"kind": "VolumeSnapshot", "name": "s"}),
        ("PersistentVolumeClaim", "spec/dataSourceRef", {"kind": "VolumeSnapshot", "name": "s"}),
        ("PersistentVolumeClaim", "spec/somethingNew", 1),
        ("CSIStorageCapacity", "storageClassName", "slow"),
        ("CSIStorageCapacity", "nodeTopology", {}),
        ("CSIStorageCapacity", "nodeTopology", REMOVED),
    ],
)
def test_these_fields_never_change(kind: str, path: str, value: Any) -> None:
    found = refused(old_of(kind), path, value)
    field = path.rpartition("/")[2]
    claims = f"spec is immutable after creation(.|\n)*{field[0].upper()}{field[1:]}: "
    assert any(re.search(f"^{field}: .*field is immutable|{claims}", problem) for problem in found), found


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("StorageClass", "allowedTopologies", []),
        ("StorageClass", "mountOptions", ["noatime"]),
        ("StorageClass", "allowVolumeExpansion", True),
        ("PersistentVolume", "spec/capacity/storage", "20Gi"),
        ("PersistentVolume", "spec/accessModes", ["ReadWriteMany"]),
        ("PersistentVolume", "spec/persistentVolumeReclaimPolicy", "Delete"),
        ("PersistentVolume", "spec/storageClassName", "fast"),
        ("PersistentVolume", "spec/claimRef", REMOVED),
        ("PersistentVolume", "spec/volumeAttributesClassName", "gold"),
        ("PersistentVolumeClaim", "metadata/labels", {"a": "b"}),
        ("PersistentVolumeClaim", "spec/resources/requests/storage", "1024Mi"),
        ("PersistentVolumeClaim", "spec/storageClassName", "fast"),
        ("PersistentVolumeClaim", "spec/storageClassName", ""),
        ("PersistentVolumeClaim", "spec/volumeName", "pv-1"),
        ("PersistentVolumeClaim", "status/phase", "Lost"),
        ("CSIDriver", "spec/storageCapacity", False),
        ("CSIStorageCapacity", "capacity", "5Gi"),
        ("CSIStorageCapacity", "maximumVolumeSize", "5Gi"),
        ("Node", "spec/taints", []),
        ("StatefulSet", "spec/replicas", 5),
    ],
)
def test_these_fields_may_change(kind: str, path: str, value: Any) -> None:
    assert refused(old_of(kind), path, value) == []


# --- metadata -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("field", ["name", "namespace", "uid"])
def test_identity_never_changes(kind: str, field: str) -> None:
    old = old_of(kind, **{"metadata/uid": "u-1", "metadata/namespace": "shop"})
    (problem,) = refused(old, f"metadata/{field}", "other")
    assert problem == f'metadata.{field}: Invalid value: "other": field is immutable'


def test_a_manifest_that_does_not_know_the_uid_is_accepted() -> None:
    assert refused(old_of("Pod", **{"metadata/uid": "u-1"}), "metadata/uid", REMOVED) == []


@pytest.mark.parametrize(
    ("deleted", "finalizers", "accepted"),
    [
        (True, ["a.example.com/x"], True),
        (True, [], True),
        (True, ["a.example.com/x", "b.example.com/y"], True),
        (True, ["b.example.com/y", "c.example.com/z"], False),
        (False, ["b.example.com/y", "c.example.com/z"], True),
    ],
)
def test_finalizers_are_not_added_to_what_is_being_deleted(
    deleted: bool, finalizers: list[str], accepted: bool
) -> None:
    old = old_of("PersistentVolume", **{"metadata/finalizers": ["a.example.com/x", "b.example.com/y"]})
    if deleted:
        old = changed(old, "metadata/deletionTimestamp", "2026-11-16T20:00:00Z")
    found = refused(old, "metadata/finalizers", finalizers)
    assert (found == []) is accepted
    assert accepted or 'found new finalizers []string{"c.example.com/z"}' in found[0]


# --- PersistentVolume -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [("spec/csi/volumeHandle", "v-2"), ("spec/csi/driver", "other.example.com"), ("spec/csi", REMOVED)],
)
def test_a_volumes_source_never_changes(change: tuple[str, Any]) -> None:
    found = refused(old_of("PersistentVolume"), *change)
    assert "spec.persistentvolumesource is immutable after creation" in found[-1]


def test_node_affinity_may_be_set_once() -> None:
    old = old_of("PersistentVolume", **{"spec/nodeAffinity": REMOVED})
    assert refused(old, "spec/nodeAffinity", sample("PersistentVolume")["spec"]["nodeAffinity"]) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec/nodeAffinity", REMOVED),
        (f"{VOLUME_TERM}/key", "other"),
        (f"{VOLUME_TERM}/operator", "NotIn"),
        (f"{VOLUME_TERM}/values", ["ssd", "nvme"]),
        ("spec/nodeAffinity/required/nodeSelectorTerms/1", {"matchExpressions": []}),
    ],
)
def test_node_affinity_is_fixed_once_set(path: str, value: Any) -> None:
    (problem,) = refused(old_of("PersistentVolume"), path, value)
    assert problem.endswith("field is immutable, except for updating from beta label to GA")


@pytest.mark.parametrize(("legacy", "stable"), STABLE_LABELS.items())
def test_a_legacy_label_key_may_become_its_stable_one_and_not_back(legacy: str, stable: str) -> None:
    old = old_of("PersistentVolume", **{f"{VOLUME_TERM}/key": legacy})
    assert refused(old, f"{VOLUME_TERM}/key", stable) == []
    assert len(refused(changed(old, f"{VOLUME_TERM}/key", stable), f"{VOLUME_TERM}/key", legacy)) == 1
    both = changed(old, f"{VOLUME_TERM}/values", ["other"])
    assert len(refused(old, "spec", changed(both, f"{VOLUME_TERM}/key", stable)["spec"])) == 1


def test_the_label_table_is_the_one_of_the_specification() -> None:
    assert STABLE_LABELS == {
        "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
        "beta.kubernetes.io/arch": "kubernetes.io/arch",
        "beta.kubernetes.io/os": "kubernetes.io/os",
        "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
    }


def test_a_volumes_attributes_class_is_not_taken_away() -> None:
    old = old_of("PersistentVolume", **{"spec/volumeAttributesClassName": "gold"})
    assert refused(old, "spec/volumeAttributesClassName", "silver") == []
    (problem,) = refused(old, "spec/volumeAttributesClassName", REMOVED)
    assert problem.endswith("update from non-nil value to nil is forbidden")


# --- PersistentVolumeClaim ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "size", "accepted"),
    [
        ("Pending", "2Gi", False),
        ("Lost", "2Gi", False),
        ("Bound", "20Gi", True),
        ("Bound", "10240Mi", True),
        ("Bound", "6Gi", True),
        ("Bound", "5Gi", False),
        ("Bound", "1Gi", False),
    ],
)
def test_a_request_grows_when_bound_and_shrinks_only_above_the_capacity(
    phase: str, size: str, accepted: bool
) -> None:
    path = "spec/resources/requests/storage"
    old = claim(phase=phase, **{path: "10Gi", "status/capacity": {"storage": "5Gi"}})
    found = refused(old, path, size)
    assert (found == []) is accepted
    reason = "less than status.capacity" if phase == "Bound" else "spec is immutable after creation"
    assert accepted or reason in found[0]


@pytest.mark.parametrize(
    "change", [("spec/resources/limits", {"storage": "5Gi"}), ("spec/resources/requests/x", "1")]
)
def test_the_rest_of_a_claims_resources_never_changes(change: tuple[str, Any]) -> None:
    (problem,) = refused(claim(phase="Bound"), *change)
    assert re.search(r"spec is immutable after creation(.|\n)*Resources: ", problem)


@pytest.mark.parametrize(
    ("old", "annotated", "new", "accepted"),
    [
        (REMOVED, None, "fast", True),
        (REMOVED, "fast", "fast", True),
        (REMOVED, "fast", "slow", False),
        (REMOVED, "", "", True),
        ("fast", None, "slow", False),
        ("fast", None, REMOVED, False),
        ("", None, "fast", False),
    ],
)
def test_a_claims_class_is_filled_in_once(old: Any, annotated: str | None, new: Any, accepted: bool) -> None:
    before = changed(claim(**{"spec/storageClassName": ""}), "spec/storageClassName", old)
    if annotated is not None:
        before = changed(before, "metadata/annotations", {BETA_STORAGE_CLASS: annotated})
    found = refused(before, "spec/storageClassName", new)
    assert (found == []) is accepted
    assert accepted or re.search(r"spec is immutable after creation(.|\n)*StorageClassName: ", found[0])


@pytest.mark.parametrize("annotations", [{}, {BETA_STORAGE_CLASS: "slow"}])
def test_the_beta_class_annotation_never_changes(annotations: dict[str, str]) -> None:
    old = claim(**{"metadata/annotations": {BETA_STORAGE_CLASS: "fast"}})
    (problem,) = refused(old, "metadata/annotations", annotations)
    assert problem.startswith(f"metadata.annotations.{BETA_STORAGE_CLASS}: ")


@pytest.mark.parametrize(
    ("annotated", "by_controller", "new", "accepted"),
    [
        (True, True, "", True),
        (True, True, REMOVED, True),
        (True, False, "", False),
        (False, True, "", False),
        (True, True, "pv-2", False),
    ],
)
def test_only_a_rollback_by_the_controller_takes_the_volume_away(
    annotated: bool, by_controller: bool, new: Any, accepted: bool
) -> None:
    old = claim(phase="Bound", **{"spec/volumeName": "pv-1"})
    if annotated:
        old = changed(old, "metadata/annotations", {ROLLBACK: "u-1"})
    found = refused(old, "spec/volumeName", new, by_controller=by_controller)
    assert (found == []) is accepted
    assert accepted or re.search(r'spec is immutable after creation(.|\n)*VolumeName: "pv-1"', found[0])


def test_a_rollback_annotation_that_comes_with_the_write_itself_does_not_count() -> None:
    old = claim(**{"spec/volumeName": "pv-1"})
    new = changed(changed(old, "spec/volumeName", ""), "metadata/annotations", {ROLLBACK: "u-1"})
    assert len(update_errors(KINDS["PersistentVolumeClaim"], old, new, by_controller=True)) == 1


@pytest.mark.parametrize(("phase", "accepted"), [("Bound", True), ("Pending", False), ("Lost", False)])
@pytest.mark.parametrize("value", ["gold", ""])
def test_a_claims_attributes_class_changes_only_when_bound(phase: str, accepted: bool, value: str) -> None:
    found = refused(claim(phase=phase), "spec/volumeAttributesClassName", value)
    assert (found == []) is accepted
    assert accepted or "for bound claims" in found[0]


def test_every_refused_change_is_reported() -> None:
    old = old_of("StorageClass")
    new = changed(changed(old, "provisioner", "x.example.com"), "reclaimPolicy", "Retain")
    assert [defect.field for defect in update_errors(KINDS["StorageClass"], old, new)] == [
        "provisioner",
        "reclaimPolicy",
    ]


def test_what_the_drivers_of_a_node_cost_grows_with_their_number_and_no_faster() -> None:
    def cost(count: int) -> int:
        drivers = [{"name": f"d{number}.example.com", "nodeID": "n"} for number in range(count)]
        old = changed(old_of("CSINode"), "spec/drivers", drivers)
        return calls_of(lambda: update_errors(KINDS["CSINode"], old, changed(old, "spec/drivers", drivers[::-1])))

    assert cost(200) <= 5 * cost(50)


def test_nor_does_what_tolerations_cost() -> None:
    def tolerations(count: int) -> list[dict[str, Any]]:
        return [{"key": ComparedText(f"example.com/k{number}"), "operator": "Exists"} for number in range(count)]

    old = changed(old_of("Pod"), "spec/tolerations", tolerations(200))
    new = changed(old, "spec/tolerations", tolerations(200)[::-1])
    ComparedText.compared = 0
    assert update_errors(KINDS["Pod"], old, new) == []
    assert ComparedText.compared <= 20 * 200
