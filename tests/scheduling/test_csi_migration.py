"""CSI migration."""

from dataclasses import asdict
from typing import Any

import pytest

from tests.support.objects import affinity, csi_node, needs, volume
from volsched.kube.meta import LEGACY_ZONE, REGION, ZONE
from volsched.kube.storage import Volume
from volsched.scheduling.rules.disks import translate
from volsched.scheduling.rules.status import AttemptError

EBS_ZONE, GCE_ZONE = "topology.ebs.csi.aws.com/zone", "topology.gke.io/zone"
SOURCES: dict[str, tuple[dict[str, Any], str, str]] = {
    "ebs": ({"awsElasticBlockStore": {"volumeID": "v"}}, "kubernetes.io/aws-ebs", EBS_ZONE),
    "gce": ({"gcePersistentDisk": {"pdName": "d"}}, "kubernetes.io/gce-pd", GCE_ZONE),
    "azure": ({"azureDisk": {"diskName": "d"}}, "kubernetes.io/azure-disk", "topology.disk.csi.azure.com/zone"),
    "cinder": ({"cinder": {"volumeID": "v"}}, "kubernetes.io/cinder", "topology.cinder.csi.openstack.org/zone"),
}
GCE_ERROR = (
    "could not translate pv: failed to get region from zones: "
    "zone in unexpected format, expected: {locale}-{region}-{zone}, got: "
)

Term = list[tuple[str, str, tuple[str, ...]]]


def disk(
    source: str, *, labels: dict[str, str] | None = None, terms: list[dict[str, Any]] | None = None
) -> Volume:
    spec = dict(SOURCES[source][0])
    if terms is not None:
        spec["nodeAffinity"] = affinity(*terms)
    return volume("pv", labels=labels, **spec)


def term(*requirements: dict[str, Any]) -> dict[str, Any]:
    return {"matchExpressions": list(requirements)}


def terms_of(made: Volume) -> list[Term]:
    assert made.node_affinity is not None
    assert made.node_affinity.required is not None
    return [
        [(part.key, part.operator, part.values) for part in each.match_expressions]
        for each in made.node_affinity.required.node_selector_terms
    ]


def migrated(made: Volume, source: str) -> Volume:
    return translate(made, csi_node("n1", migrated=SOURCES[source][1]))


@pytest.mark.parametrize("source", SOURCES)
def test_each_plugin_has_its_zone_key(source: str) -> None:
    made = disk(source, labels={ZONE: "z1"})
    assert terms_of(migrated(made, source)) == [[(SOURCES[source][2], "In", ("z1",))]]


@pytest.mark.parametrize(
    "annotation",
    [None, "", "kubernetes.io/gce-pd", "kubernetes.io/aws-ebs-2", "kubernetes.io/gce-pd,kubernetes.io/cinder"],
)
def test_a_plugin_that_has_not_moved_leaves_the_volume_as_it_is(annotation: str | None) -> None:
    made = disk("ebs", labels={ZONE: "z1"})
    assert translate(made, csi_node("n1", migrated=annotation)) is made


def test_without_a_csi_node_the_volume_stays_as_it_is() -> None:
    made = disk("ebs", labels={ZONE: "z1"})
    assert translate(made, None) is made


def test_one_of_several_plugins_has_moved() -> None:
    made = disk("ebs", labels={ZONE: "z1"})
    listed = csi_node("n1", migrated="kubernetes.io/cinder,kubernetes.io/aws-ebs")
    assert terms_of(translate(made, listed)) == [[(EBS_ZONE, "In", ("z1",))]]


@pytest.mark.parametrize(
    "spec",
    [{"csi": {"driver": "d", "volumeHandle": "h"}}, {"nfs": {}}, {"portworxVolume": {"volumeID": "v"}}],
    ids=["csi", "nfs", "portworx"],
)
def test_other_sources_stay_as_they_are(spec: dict[str, Any]) -> None:
    made = volume("pv", labels={ZONE: "z1"}, **spec)
    everything = ",".join([*(plugin for _, plugin, _ in SOURCES.values()), "kubernetes.io/portworx-volume"])
    assert translate(made, csi_node("n1", migrated=everything)) is made


def test_without_a_zone_the_volume_stays_as_it_is() -> None:
    assert migrated(bare := disk("ebs"), "ebs") is bare
    elsewhere = disk("ebs", labels={REGION: "r"}, terms=[term(needs("rack", "In", "r1"))])
    assert migrated(elsewhere, "ebs") is elsewhere


@pytest.mark.parametrize(
    ("labels", "zones"),
    [
        ({ZONE: "z1__z2"}, ("z1", "z2")),
        ({LEGACY_ZONE: "z1"}, ("z1",)),
        ({LEGACY_ZONE: "old", ZONE: "new"}, ("new",)),
    ],
    ids=["several zones", "legacy label", "GA label first"],
)
def test_a_zone_label_becomes_a_term(labels: dict[str, str], zones: tuple[str, ...]) -> None:
    assert terms_of(migrated(disk("ebs", labels=labels), "ebs")) == [[(EBS_ZONE, "In", zones)]]


def test_a_zone_label_is_added_to_every_term_of_an_affinity_without_zones() -> None:
    made = disk("ebs", labels={ZONE: "z1"}, terms=[term(needs("rack", "In", "r1")), term(needs("ssd", "Exists"))])
    assert terms_of(migrated(made, "ebs")) == [
        [("rack", "In", ("r1",)), (EBS_ZONE, "In", ("z1",))],
        [("ssd", "Exists", ()), (EBS_ZONE, "In", ("z1",))],
    ]


@pytest.mark.parametrize("node_affinity", [{}, {"required": {}}, affinity()], ids=["empty", "no list", "no terms"])
def test_a_zone_label_makes_the_first_term_of_an_affinity_without_any(node_affinity: dict[str, Any]) -> None:
    made = volume("pv", labels={ZONE: "z1"}, nodeAffinity=node_affinity, **SOURCES["ebs"][0])
    assert terms_of(migrated(made, "ebs")) == [[(EBS_ZONE, "In", ("z1",))]]


@pytest.mark.parametrize("key", [ZONE, LEGACY_ZONE])
def test_zone_requirements_of_the_affinity_change_their_key_and_hide_the_labels(key: str) -> None:
    made = disk(
        "ebs",
        labels={ZONE: "z9"},
        terms=[term(needs(key, "NotIn", "z1", "z2"), needs("rack", "In", "r1")), term(needs("ssd", "Exists"))],
    )
    assert terms_of(migrated(made, "ebs")) == [
        [(EBS_ZONE, "NotIn", ("z1", "z2")), ("rack", "In", ("r1",))],
        [("ssd", "Exists", ())],
    ]


def test_of_both_zone_keys_in_an_affinity_the_ga_one_is_replaced() -> None:
    made = disk("ebs", terms=[term(needs(LEGACY_ZONE, "In", "z1"), needs(ZONE, "In", "z2"))])
    assert terms_of(migrated(made, "ebs")) == [[(LEGACY_ZONE, "In", ("z1",)), (EBS_ZONE, "In", ("z2",))]]


@pytest.mark.parametrize(
    ("value", "got"),
    [("z1__z2", "z1"), ("us-central1-a__z2", "z2"), ("a-b-c-d__us-central1-a", "a-b-c-d"), ("x__", "x")],
)
@pytest.mark.parametrize("key", [ZONE, LEGACY_ZONE])
def test_a_regional_gce_disk_with_odd_zones_cannot_be_translated(key: str, value: str, got: str) -> None:
    with pytest.raises(AttemptError) as error:
        migrated(disk("gce", labels={key: value}), "gce")
    assert str(error.value) == GCE_ERROR + got


def test_odd_zones_are_an_error_even_when_the_affinity_would_hide_the_labels() -> None:
    with pytest.raises(AttemptError):
        migrated(disk("gce", labels={ZONE: "z1__z2"}, terms=[term(needs(ZONE, "In", "z1"))]), "gce")


@pytest.mark.parametrize("value", ["z1", "us-central1-a", "us-central1-a__us-central1-b"])
def test_a_single_zone_of_any_form_and_regional_zones_are_fine(value: str) -> None:
    made = migrated(disk("gce", labels={ZONE: value}), "gce")
    assert terms_of(made) == [[(GCE_ZONE, "In", tuple(value.split("__")))]]


def test_odd_zones_of_a_gce_disk_are_fine_where_the_plugin_has_not_moved() -> None:
    made = disk("gce", labels={ZONE: "z1__z2"})
    assert translate(made, csi_node("n1", migrated="kubernetes.io/aws-ebs")) is made


def test_the_volume_given_is_never_changed() -> None:
    made = disk("ebs", labels={ZONE: "z1"}, terms=[term(needs("rack", "In", "r1"))])
    before = asdict(made)
    assert migrated(made, "ebs") is not made
    assert asdict(made) == before
