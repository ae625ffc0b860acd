"""When an external provisioner acts, the volume it makes, and when it deletes."""

from typing import Any

import pytest

from tests.pv_controller.controller_world import immediate, pv, pvc, ref, sc, selected
from volsched.kube.meta import (
    BETA_STORAGE_PROVISIONER,
    EXTERNAL_PROVISIONER_FINALIZER,
    MIGRATED_TO,
    PROVISIONED_BY,
    PV_PROTECTION,
    ROLLBACK,
    SELECTED_NODE,
    STORAGE_PROVISIONER,
)
from volsched.kube.storage import StorageClass
from volsched.provisioning.rules import (
    Created,
    guarding,
    is_to_be_deleted,
    new_volume_manifest,
    selected_node,
    wants_volume,
)
from volsched.pv_controller.rules import parsed_claim, parsed_class, parsed_volume

DRIVER = "csi.example.com"
OURS = {STORAGE_PROVISIONER: DRIVER}
WAITS = parsed_class(sc(provisioner=DRIVER)[1]).value
AT_ONCE = parsed_class(immediate(provisioner=DRIVER)[1]).value


@pytest.mark.parametrize(
    ("notes", "storage_class", "volume", "acts"),
    [
        ({**OURS, **selected()}, WAITS, "", True),
        (OURS, WAITS, "", False),
        ({**OURS, **selected("")}, WAITS, "", False),
        (OURS, AT_ONCE, "", True),
        ({BETA_STORAGE_PROVISIONER: DRIVER}, AT_ONCE, "", True),
        ({STORAGE_PROVISIONER: "other", BETA_STORAGE_PROVISIONER: DRIVER}, AT_ONCE, "", False),
        ({STORAGE_PROVISIONER: "kubernetes.io/aws-ebs", MIGRATED_TO: DRIVER}, AT_ONCE, "", True),
        ({STORAGE_PROVISIONER: "other"}, AT_ONCE, "", False),
        ({}, AT_ONCE, "", False),
        (OURS, None, "", False),
        (OURS, AT_ONCE, "pv", False),
        ({**OURS, ROLLBACK: "pod"}, AT_ONCE, "", False),
    ],
)
def test_when_to_act(notes: dict[str, str], storage_class: StorageClass | None, volume: str, acts: bool) -> None:
    claim = parsed_claim(pvc(notes=notes, volume=volume)[1]).value
    assert wants_volume(claim, storage_class, driver=DRIVER) is acts


@pytest.mark.parametrize(("on", "acts"), [("n1", True), ("n2", False), (None, False)])
@pytest.mark.parametrize("storage_class", [WAITS, AT_ONCE])
def test_one_that_serves_a_node_alone_leaves_the_others_to_others(
    on: str | None, acts: bool, storage_class: StorageClass
) -> None:
    claim = parsed_claim(pvc(notes={**OURS, **({} if on is None else selected(on))})[1]).value
    assert wants_volume(claim, storage_class, driver=DRIVER, own_node="n1") is acts


@pytest.mark.parametrize(
    ("notes", "node"),
    [
        ({}, ""),
        ({SELECTED_NODE: "a", "volume.alpha.kubernetes.io/selected-node": "b"}, "a"),
        ({"volume.alpha.kubernetes.io/selected-node": "b", "volume.alpha.kubernetes.io/selectedNode": "c"}, "b"),
        ({"volume.alpha.kubernetes.io/selectedNode": "c"}, "c"),
    ],
)
def test_older_spellings_of_the_selected_node_are_read(notes: dict[str, str], node: str) -> None:
    assert selected_node(parsed_claim(pvc(notes=notes)[1]).value) == node


def made(created: Created, *, policy: str = "Delete", options: tuple[str, ...] = (), **claim: Any) -> Any:
    asked = parsed_claim(pvc(**claim)[1]).value
    storage_class = parsed_class(sc(provisioner=DRIVER, policy=policy)[1]).value
    return new_volume_manifest(asked, storage_class, created, driver=DRIVER, mount_options=options)


def test_the_volume_is_the_claims_and_names_its_maker() -> None:
    volume = made(Created(handle="h", bytes=9 * 2**30), volumeAttributesClassName="gold", volumeMode="Block")
    assert volume["metadata"] == {
        "name": "pvc-uid-data",
        "annotations": {PROVISIONED_BY: DRIVER},
        "finalizers": [EXTERNAL_PROVISIONER_FINALIZER],
    }
    assert volume["spec"] == {
        "capacity": {"storage": "9Gi"},
        "accessModes": ["ReadWriteOnce"],
        "volumeMode": "Block",
        "persistentVolumeReclaimPolicy": "Delete",
        "storageClassName": "wait",
        "claimRef": ref(),
        "csi": {"driver": DRIVER, "volumeHandle": "h"},
        "volumeAttributesClassName": "gold",
    }
    assert "status" not in volume


def test_a_driver_that_names_no_size_made_what_was_asked() -> None:
    assert made(Created(handle="h"), size="8Gi")["spec"]["capacity"] == {"storage": "8Gi"}


def test_policy_and_mount_options_are_the_classes() -> None:
    spec = made(Created(handle="h"), policy="Retain", options=("ro", "sync"))["spec"]
    assert (spec["persistentVolumeReclaimPolicy"], spec["mountOptions"]) == ("Retain", ["ro", "sync"])


@pytest.mark.parametrize(
    ("topologies", "terms"),
    [
        ((), None),
        (((),), None),
        ((((("zone", "a")),), ()), [[("zone", "a")]]),
        (((("rack", "r"), ("zone", "a")), (("zone", "b"),)), [[("rack", "r"), ("zone", "a")], [("zone", "b")]]),
    ],
)
def test_affinity_has_a_term_for_every_topology(topologies: Any, terms: Any) -> None:
    spec = made(Created(handle="h", topologies=topologies))["spec"]
    found = [
        [(it["key"], *it["values"]) for it in term["matchExpressions"] if it["operator"] == "In"]
        for term in spec.get("nodeAffinity", {}).get("required", {}).get("nodeSelectorTerms", ())
    ]
    assert found == (terms or [])
    assert ("nodeAffinity" in spec) is (terms is not None)


def volume(**kw: Any) -> Any:
    given = {"notes": {PROVISIONED_BY: DRIVER}, "policy": "Delete", "phase": "Released", "source": "csi", **kw}
    return parsed_volume(pv(**given)[1]).value


GUARD = (EXTERNAL_PROVISIONER_FINALIZER,)


@pytest.mark.parametrize(
    ("given", "deletes"),
    [
        ({}, True),
        ({"finalizers": GUARD}, True),
        ({"finalizers": GUARD, "deleted": True}, True),
        ({"finalizers": (PV_PROTECTION,), "deleted": True}, False),
        ({"phase": "Bound"}, False),
        ({"phase": "Failed"}, False),
        ({"phase": "Available"}, False),
        ({"policy": "Retain"}, False),
        ({"policy": "Recycle"}, False),
        ({"notes": {PROVISIONED_BY: "other"}}, False),
        ({"notes": {}}, False),
        ({"notes": {PROVISIONED_BY: "kubernetes.io/aws-ebs", MIGRATED_TO: DRIVER}}, True),
    ],
)
def test_when_to_delete(given: dict[str, Any], deletes: bool) -> None:
    assert is_to_be_deleted(volume(**given), driver=DRIVER) is deletes


@pytest.mark.parametrize(
    ("given", "finalizers"),
    [
        ({"phase": "Bound"}, GUARD),
        ({"phase": "Bound", "finalizers": GUARD}, GUARD),
        ({"phase": "Bound", "deleted": True, "finalizers": (PV_PROTECTION,)}, (PV_PROTECTION,)),
        ({"phase": "Released"}, ()),
        ({"phase": "Bound", "policy": "Retain", "finalizers": (PV_PROTECTION, *GUARD)}, (PV_PROTECTION,)),
        ({"phase": "Released", "policy": "Recycle", "finalizers": GUARD}, ()),
        ({"phase": "Bound", "notes": {}}, ()),
        ({"phase": "Bound", "notes": {PROVISIONED_BY: "other"}, "policy": "Retain", "finalizers": GUARD}, GUARD),
    ],
)
def test_bound_volumes_are_guarded_while_they_are_to_be_deleted(
    given: dict[str, Any], finalizers: tuple[str, ...]
) -> None:
    assert guarding(volume(**given), driver=DRIVER) == finalizers
