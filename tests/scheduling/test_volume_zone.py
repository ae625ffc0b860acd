"""VolumeZone."""

from typing import Any

import pytest

from tests.support.objects import claim, node, pod, storage_class, volume
from volsched.kube.meta import LEGACY_REGION, LEGACY_ZONE, REGION, ZONE
from volsched.scheduling.rules.reasons import NO_ZONE
from volsched.scheduling.rules.snapshot import snapshot_of
from volsched.scheduling.rules.status import SKIP, SUCCESS, Code, Status
from volsched.scheduling.rules.volume_restrictions import ZoneRule, volume_zone_filter, volume_zone_prefilter

REFUSED = Status(Code.UNRESOLVABLE, (NO_ZONE,))


def labelled(**labels: str) -> tuple[Any, Any]:
    """A volume with these labels and the claim `a` bound to it."""
    keys = {"zone": ZONE, "region": REGION, "legacy_zone": LEGACY_ZONE, "legacy_region": LEGACY_REGION}
    return volume("pv", labels={keys[key]: value for key, value in labels.items()}), claim("a", bound_to="pv")


def prefilter(mine: Any, *objects: Any) -> tuple[Status, tuple[ZoneRule, ...]]:
    return volume_zone_prefilter(snapshot_of(objects), mine)


@pytest.mark.parametrize(
    ("used", "objects", "reason"),
    [
        ("", [], "PersistentVolumeClaim had no name"),
        ("a", [], 'persistentvolumeclaim "a" not found'),
        ("a", [claim("a", bound_to="gone")], 'persistentvolume "gone" not found'),
        ("a", [claim("a", cls="")], "PersistentVolumeClaim had no pv name and storageClass name"),
        ("a", [claim("a", cls=None)], "PersistentVolumeClaim had no pv name and storageClass name"),
        ("a", [claim("a", cls="gone")], 'storageclass.storage.k8s.io "gone" not found'),
        ("a", [claim("a"), storage_class("fast", mode="Immediate")], "PersistentVolume had no name"),
        (
            "a",
            [claim("a"), storage_class("fast", mode=None)],
            'VolumeBindingMode not set for StorageClass "fast"',
        ),
    ],
    ids=["no name", "no claim", "no volume", "empty class", "absent class", "no class", "immediate", "no mode"],
)
def test_a_claim_that_cannot_be_resolved_refuses_the_pod(used: str, objects: list[Any], reason: str) -> None:
    assert prefilter(pod(used), *objects) == (Status(Code.UNRESOLVABLE, (reason,)), ())


@pytest.mark.parametrize(
    ("mine", "objects"),
    [
        (pod(), []),
        (pod("a"), [claim("a"), storage_class("fast")]),
        (pod("a"), labelled()),
        (pod("a"), labelled(zone="x____y")),
        (pod("a"), labelled(zone="")),
        (pod(volumes=[{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]), []),
    ],
    ids=["no claims", "delayed", "no labels", "empty part", "empty value", "ephemeral"],
)
def test_the_filter_is_skipped_when_no_label_restricts_the_pod(mine: Any, objects: Any) -> None:
    assert prefilter(mine, *objects) == (SKIP, ())


def test_a_bound_claim_of_a_missing_class_is_fine() -> None:
    assert prefilter(pod("a"), *labelled(zone="x"))[0] == SUCCESS


def test_every_usable_label_becomes_a_rule_in_the_reference_s_order() -> None:
    status, rules = prefilter(
        pod("a"), *labelled(region="r1__r2", zone=" x __ y ", legacy_region="r____r", legacy_zone="x__x")
    )
    assert status == SUCCESS
    assert rules == (
        ZoneRule(LEGACY_ZONE, frozenset({"x"})),
        ZoneRule(ZONE, frozenset({"x", "y"})),
        ZoneRule(REGION, frozenset({"r1", "r2"})),
    )


def test_the_rules_of_all_volumes_are_gathered() -> None:
    other = volume("pv2", labels={ZONE: "y"}), claim("b", bound_to="pv2")
    _, rules = prefilter(pod("a", "delayed", "b"), *labelled(zone="x"), *other, claim("delayed"), storage_class())
    assert rules == (ZoneRule(ZONE, frozenset({"x"})), ZoneRule(ZONE, frozenset({"y"})))


@pytest.mark.parametrize(
    ("labels", "rules", "expected"),
    [
        ({}, {ZONE: "x"}, SUCCESS),
        ({"rack": "r"}, {ZONE: "x"}, SUCCESS),
        ({ZONE: "x"}, {ZONE: "x"}, SUCCESS),
        ({ZONE: "y"}, {ZONE: "xy"}, SUCCESS),
        ({ZONE: "z"}, {ZONE: "xy"}, REFUSED),
        ({ZONE: "x", REGION: "q"}, {ZONE: "x", REGION: "r"}, REFUSED),
        ({REGION: "r"}, {ZONE: "x"}, REFUSED),
        ({LEGACY_ZONE: "x"}, {LEGACY_ZONE: "x"}, SUCCESS),
        ({ZONE: "x"}, {LEGACY_ZONE: "x"}, SUCCESS),
        ({ZONE: "y"}, {LEGACY_ZONE: "x"}, REFUSED),
        ({LEGACY_ZONE: "y", ZONE: "x"}, {LEGACY_ZONE: "x"}, REFUSED),
        ({REGION: "r"}, {LEGACY_REGION: "r"}, SUCCESS),
        ({LEGACY_ZONE: "x"}, {ZONE: "x"}, REFUSED),
        ({LEGACY_REGION: "r"}, {REGION: "r"}, REFUSED),
    ],
    ids=[
        "node without labels passes",
        "other labels do not count",
        "same zone",
        "one of the zones",
        "none of the zones",
        "every rule must hold",
        "any zone label makes the missing one count",
        "legacy on both sides",
        "legacy rule reads the GA label",
        "legacy rule reads another GA value",
        "the legacy label wins over its twin",
        "legacy region reads the GA region",
        "GA rule never reads the legacy label",
        "GA region never reads the legacy region",
    ],
)
def test_node_labels_against_rules(labels: dict[str, str], rules: dict[str, str], expected: Status) -> None:
    """Each letter of a rule's value is one accepted zone."""
    made = [ZoneRule(key, frozenset(values)) for key, values in rules.items()]
    assert volume_zone_filter(made, node("n1", labels=labels)) == expected
