"""Odd terms, sizes, classes and prebound volumes, one test each: what the rules of volumes say."""

from typing import Any

import pytest

from tests.support.objects import (
    ROX,
    RWO,
    affinity,
    capacity,
    claim,
    csi_node,
    driver,
    dynamic_class,
    in_zone,
    local_volume,
    needs,
    node,
    on_node,
    on_zone,
    pod,
    read,
    ref_to,
    storage_class,
    volume,
)  # fmt: skip
from volsched.kube.manifest import reaches
from volsched.kube.meta import BETA_STORAGE_CLASS, ZONE
from volsched.kube.selectors import topology_allows
from volsched.kube.storage import Claim, Volume
from volsched.kube.workloads import Node, Pod
from volsched.scheduling.rules.matching import Search, find_for_controller, find_matching_volume
from volsched.scheduling.rules.pod_claims import classify_claims, with_default_classes
from volsched.scheduling.rules.profile import PARITY, VOLSCHED, Profile, ScoringPolicy, ShapePoint
from volsched.scheduling.rules.reasons import (
    BOUND_TO_MISSING_VOLUME,
    NO_VOLUME_TO_BIND,
    NOT_ENOUGH_SPACE,
    TOO_MANY_VOLUMES,
    UNBOUND_IMMEDIATE,
)
from volsched.scheduling.rules.scoring import node_score, rounded_mean, shape_score
from volsched.scheduling.rules.snapshot import Snapshot, snapshot_of
from volsched.scheduling.rules.status import Code
from volsched.scheduling.rules.volume_filter import NodeAnswer, find_pod_volumes, prefilter
from volsched.workloads.rules.repairs import upgrade_zonal

PROFILES = pytest.mark.parametrize("profile", [PARITY, VOLSCHED], ids=lambda profile: profile.name)


def ask(snapshot: Snapshot, wanting: Pod, on: str = "n1", *, profile: Profile = VOLSCHED) -> NodeAnswer:
    claims = classify_claims(snapshot, wanting, once=profile.claims_count_once)
    return find_pod_volumes(snapshot, wanting, claims, snapshot.nodes[on], profile=profile)


def given(answer: NodeAnswer) -> dict[str, str]:
    return {binding.claim.name: binding.volume.name for binding in answer.bindings}


def find(wanting: Claim, *volumes: Volume, on: Node | None = None) -> str | None:
    found = find_matching_volume(Search(claim=wanting, node=on or node()), volumes)
    return found.name if found else None


# Selectors and quantities


def test_zero_terms_match_no_node_and_no_affinity_matches_every_node() -> None:
    assert not reaches(volume(nodeAffinity={"required": {"nodeSelectorTerms": []}}), node())
    assert reaches(volume(), node())
    assert reaches(volume(), node(labels={}))


def test_an_empty_term_does_not_hide_a_matching_one() -> None:
    assert reaches(
        volume(nodeAffinity=affinity({}, {"matchExpressions": [needs(ZONE, "Exists")]})), in_zone("n", "a")
    )


def test_not_in_matches_a_missing_label_and_in_empty_needs_the_label() -> None:
    def accepts(requirement: dict[str, object], labels: dict[str, str]) -> bool:
        return reaches(volume(nodeAffinity=affinity({"matchExpressions": [requirement]})), node(labels=labels))

    assert accepts(needs("rack", "NotIn", "r1"), {})
    assert accepts(needs("rack", "In", ""), {"rack": ""})
    assert not accepts(needs("rack", "In", ""), {})


def test_a_malformed_term_only_spoils_itself() -> None:
    broken = {"matchExpressions": [needs(ZONE, "Gt", "x")]}
    good = {"matchExpressions": [needs(ZONE, "In", "a")]}
    assert reaches(volume(nodeAffinity=affinity(broken, good)), in_zone("n", "a"))
    assert not reaches(volume(nodeAffinity=affinity(broken)), in_zone("n", "a"))


def test_match_fields_of_a_volume_are_checked_for_syntax_only() -> None:
    def accepts(*fields: dict[str, object]) -> bool:
        return reaches(volume(nodeAffinity=affinity({"matchFields": list(fields)})), node("other"))

    assert accepts(needs("metadata.name", "In", "n1"))
    assert not accepts(needs("metadata.name", "In", "n1", "n2"))
    assert not accepts(needs("metadata.name", "Exists"))


def test_match_fields_can_be_enforced() -> None:
    pinned = volume(nodeAffinity=affinity({"matchFields": [needs("metadata.name", "In", "n1")]}))
    assert reaches(pinned, node("n1"), enforce_match_fields=True)
    assert not reaches(pinned, node("n2"), enforce_match_fields=True)


@pytest.mark.parametrize(
    ("label", "operator", "value", "expected"),
    [
        ("10", "Gt", "9", True),
        ("1_0", "Gt", "9", False),
        (" 10", "Gt", "9", False),
        ("-4", "Lt", "3", True),
        ("1", "Lt", "+3", False),
        ("٣", "Gt", "1", False),
        ("9223372036854775808", "Gt", "1", False),
        ("007", "Gt", "6", True),
    ],
)
def test_gt_and_lt_compare_integers(label: str, operator: str, value: str, expected: bool) -> None:
    wanting = volume(nodeAffinity=affinity({"matchExpressions": [needs("gen", operator, value)]}))
    assert reaches(wanting, node(labels={"gen": label})) is expected


def test_no_allowed_topologies_allow_all_and_a_missing_key_refuses() -> None:
    assert topology_allows(storage_class(topologies=[]).allowed_topologies, {})
    assert not topology_allows(storage_class(topologies=[{ZONE: ["a"]}]).allowed_topologies, {"rack": "r1"})


def test_decimal_gigabytes_do_not_hold_binary_ones() -> None:
    assert find(claim(size="5Gi"), volume(size="5G")) is None


def test_sizes_are_compared_exactly() -> None:
    assert find(claim(size="100.5Mi"), volume(size="101Mi")) == "pv"
    assert find(claim(size="100.5Mi"), volume(size="100Mi")) is None
    assert find(claim(size="1000.5"), volume(size="1000")) is None


def test_an_empty_selector_restricts_nothing_and_an_absent_topology_reaches_nothing() -> None:
    assert find(claim(selector={}), volume()) == "pv"
    world = [node(), dynamic_class(), driver(), claim(cls="dyn")]
    assert ask(snapshot_of([*world, capacity(topology={})]), pod("data")).fits
    nowhere = read(
        "CSIStorageCapacity", {"metadata": {"name": "cap"}, "storageClassName": "dyn", "capacity": "1Ti"}
    )
    assert ask(snapshot_of([*world, nowhere]), pod("data")).reasons == (NOT_ENOUGH_SPACE,)


# Matching


def test_a_prebound_volume_that_is_too_small_is_invisible() -> None:
    wanting = claim(size="8Gi")
    small = volume("a", "8589934591", claim_ref=ref_to(wanting, uid=""))
    assert find(wanting, small, volume("b", "20Gi")) == "b"


def test_a_prebound_volume_elsewhere_leaves_provisioning_only() -> None:
    wanting = claim(cls="dyn")
    elsewhere = local_volume("a", "10Gi", "n2", cls="dyn", claim_ref=ref_to(wanting, uid=""))
    free = local_volume("b", "10Gi", "n1", cls="dyn")
    answer = ask(snapshot_of([node("n1"), dynamic_class(), wanting, elsewhere, free]), pod("data"))
    assert answer.fits
    assert not answer.bindings
    assert [provision.claim.name for provision in answer.provisions] == ["data"]


def test_a_prebound_volume_may_be_released() -> None:
    wanting = claim()
    assert find(wanting, volume(phase="Released", claim_ref=ref_to(wanting, uid=""))) == "pv"


def test_the_volume_of_a_deleted_namesake_is_not_usable() -> None:
    wanting = claim()
    assert find(wanting, volume(claim_ref=ref_to(wanting, uid="uid-of-its-predecessor"))) is None


def test_the_beta_annotation_beats_the_class_field_even_when_empty() -> None:
    assert volume(cls="fast", annotations={BETA_STORAGE_CLASS: ""}).class_name == ""
    assert claim(cls="fast", annotations={BETA_STORAGE_CLASS: "slow"}).class_name == "slow"
    assert find(claim(cls="fast"), volume(cls="fast", annotations={BETA_STORAGE_CLASS: ""})) is None


def test_an_explicitly_empty_class_is_a_class() -> None:
    assert claim(cls="").has_class
    assert not claim(cls=None).has_class
    assert claim(cls="").class_name == claim(cls=None).class_name == ""


def test_only_a_claim_that_names_no_class_gets_the_default_one() -> None:
    def marked(name: str, created: str, key: str = "storageclass.kubernetes.io/is-default-class") -> Any:
        metadata = {"name": name, "creationTimestamp": created, "annotations": {key: "true"}}
        return read("StorageClass", {"metadata": metadata, "provisioner": "p"})

    beta = marked("beta", "2026-02-01T00:00:00Z", "storageclass.beta.kubernetes.io/is-default-class")
    classes = [
        marked("old", "2026-01-01T00:00:00Z"),
        beta,
        marked("also", "2026-02-01T00:00:00Z"),
        storage_class("zz"),
    ]
    world = snapshot_of(
        [*classes, claim("x", cls=None), claim("y", cls=""), claim("z", cls=None, volumeName="pv")]
    )
    given_classes = {key: held.class_name for key, held in with_default_classes(world).stored_claims.items()}
    assert given_classes == {"db/x": "also", "db/y": "", "db/z": ""}
    assert with_default_classes(snapshot_of([storage_class("zz"), claim("x", cls=None)])).claim("db/x") is not None


def test_a_claim_without_class_finds_a_volume_without_class_first() -> None:
    free = volume(cls="")
    assert find_for_controller(claim(cls=None), [free], delay_binding=False) == free


def test_the_controller_prefers_fewer_modes_and_the_scheduler_the_better_size() -> None:
    large = volume("large", "100Gi", modes=(RWO,))
    close = volume("close", "8Gi", modes=(RWO, ROX))
    assert find_for_controller(claim(), [close, large], delay_binding=False) == large
    assert find(claim(), close, large) == "close"


def test_a_pending_volume_waits_for_the_controller() -> None:
    assert find(claim(), volume(phase="Pending")) is None


def test_a_volume_being_deleted_is_never_matched() -> None:
    wanting = claim()
    assert find(wanting, volume(deleted=True)) is None
    assert find(wanting, volume(deleted=True, claim_ref=ref_to(wanting))) is None


def test_an_absent_volume_mode_is_filesystem() -> None:
    assert find(claim(volumeMode="Block"), volume()) is None
    assert find(claim(volumeMode="Filesystem"), volume()) == "pv"


@PROFILES
def test_two_claims_get_two_volumes(profile: Profile) -> None:
    world = snapshot_of(
        [node(), storage_class(), claim("x", "5Gi"), claim("y", "5Gi"), volume("a", "5Gi"), volume("b", "50Gi")]
    )
    assert given(ask(world, pod("x", "y"), profile=profile)) == {"x": "a", "y": "b"}


def test_equal_sizes_go_by_name() -> None:
    assert find(claim(), volume("b"), volume("a"), volume("c")) == "a"


def test_a_prebound_volume_of_another_class_is_seen_by_the_controller_only() -> None:
    wanting = claim(cls="dyn")
    other = volume(cls="slow", claim_ref=ref_to(wanting, uid=""))
    answer = ask(snapshot_of([node(), dynamic_class(), wanting, other]), pod("data"))
    assert answer.fits
    assert not answer.bindings
    assert find_for_controller(wanting, [other], delay_binding=True) == other


# Filter and PreFilter


@PROFILES
def test_a_claim_prebound_by_the_user_counts_as_immediate(profile: Profile) -> None:
    world = snapshot_of([node(), storage_class(), claim(volumeName="pv"), volume()])
    status, claims = prefilter(world, pod("data"), profile=profile)
    assert status.reasons == (UNBOUND_IMMEDIATE,)
    assert [held.name for held in claims.immediate] == ["data"]


def test_a_claim_whose_class_is_gone_counts_as_immediate() -> None:
    status, _ = prefilter(snapshot_of([node(), claim()]), pod("data"), profile=VOLSCHED)
    assert (status.code, status.reasons) == (Code.UNRESOLVABLE, (UNBOUND_IMMEDIATE,))


def test_a_selected_node_refuses_every_other_without_a_look_at_volumes() -> None:
    world = snapshot_of([node(), storage_class(), claim(selected="n2"), local_volume("a", "10Gi", "n1")])
    answer = ask(world, pod("data"))
    assert answer.reasons == (NO_VOLUME_TO_BIND,)
    assert not answer.bindings


def test_a_selected_node_means_provisioning_even_with_a_free_volume() -> None:
    world = snapshot_of([node(), dynamic_class(), claim(cls="dyn", selected="n1"), volume(cls="dyn")])
    answer = ask(world, pod("data"))
    assert answer.fits
    assert not answer.bindings
    assert len(answer.provisions) == 1


def test_a_selected_node_that_is_gone_refuses_all_nodes() -> None:
    world = snapshot_of([node("n1"), node("n2"), dynamic_class(), claim(cls="dyn", selected="gone")])
    assert ask(world, pod("data"), "n1").reasons == ask(world, pod("data"), "n2").reasons == (NO_VOLUME_TO_BIND,)


def test_a_missing_volume_refuses_nodes_until_the_claim_is_lost() -> None:
    bound = snapshot_of([node(), claim(bound_to="gone")])
    assert ask(bound, pod("data")).reasons == (BOUND_TO_MISSING_VOLUME,)
    lost = snapshot_of([node(), claim(bound_to="gone", phase="Lost")])
    status, _ = prefilter(lost, pod("data"), profile=VOLSCHED)
    assert status.reasons == ('persistentvolumeclaim "data" bound to non-existent persistentvolume "gone"',)


def test_two_claims_against_one_capacity_object() -> None:
    world = snapshot_of(
        [
            node(),
            dynamic_class(),
            driver(),
            claim("x", "60Gi", cls="dyn"),
            claim("y", "60Gi", cls="dyn"),
            capacity(),
        ]
    )
    assert ask(world, pod("x", "y"), profile=PARITY).fits
    refused = ask(world, pod("x", "y"), profile=VOLSCHED)
    assert refused.reasons == (NOT_ENOUGH_SPACE,)
    assert refused.rejections[0].claim == "db/y"


@PROFILES
def test_a_driver_that_publishes_nothing_has_no_room(profile: Profile) -> None:
    world = snapshot_of([node(), dynamic_class(), driver(), claim(cls="dyn")])
    assert ask(world, pod("data"), profile=profile).reasons == (NOT_ENOUGH_SPACE,)


@PROFILES
def test_the_largest_volume_size_decides(profile: Profile) -> None:
    world = snapshot_of(
        [node(), dynamic_class(), driver(), claim("data", "10Gi", cls="dyn"), capacity(maximum="5Gi")]
    )
    assert ask(world, pod("data"), profile=profile).reasons == (NOT_ENOUGH_SPACE,)


@PROFILES
def test_a_class_without_provisioner_is_never_short_of_space(profile: Profile) -> None:
    world = snapshot_of([node(), storage_class(), driver(name="kubernetes.io/no-provisioner"), claim()])
    assert ask(world, pod("data"), profile=profile).reasons == (NO_VOLUME_TO_BIND,)


def test_a_claim_mounted_twice() -> None:
    world = snapshot_of([node(), storage_class(), claim(), volume("a"), volume("b", "20Gi")])
    twice = ask(world, pod("data", "data"), profile=PARITY)
    assert [binding.volume.name for binding in twice.bindings] == ["a", "b"]
    once = ask(world, pod("data", "data"), profile=VOLSCHED)
    assert [binding.volume.name for binding in once.bindings] == ["a"]


@PROFILES
def test_a_pod_without_claims_is_skipped(profile: Profile) -> None:
    status, claims = prefilter(Snapshot(), pod(volumes=[{"name": "tmp", "emptyDir": {}}]), profile=profile)
    assert status.code is Code.SKIP
    assert claims.candidates == {}


@PROFILES
def test_bind_completed_counts_whatever_the_phase(profile: Profile) -> None:
    world = snapshot_of([node(), claim(bound_to="pv", phase="Pending"), volume()])
    assert prefilter(world, pod("data"), profile=profile)[0].code is Code.SUCCESS
    assert ask(world, pod("data"), profile=profile).fits


@PROFILES
def test_an_invalid_selector_fails_only_nodes_that_search(profile: Profile) -> None:
    broken = {"matchExpressions": [{"key": "tier", "operator": "In"}]}
    searching = snapshot_of([node(), storage_class(), claim(selector=broken)])
    assert ask(searching, pod("data"), profile=profile).error == (
        "error creating internal label selector for claim: db/data: values: Invalid value: null: "
        "for 'in', 'notin' operators, values set can't be empty"
    )
    elsewhere = snapshot_of([node(), storage_class(), claim(selector=broken), claim("other", selected="n2")])
    assert ask(elsewhere, pod("data", "other"), profile=profile).reasons == (NO_VOLUME_TO_BIND,)
    committed = snapshot_of([node(), dynamic_class(), claim(cls="dyn", selector=broken, selected="n1")])
    assert ask(committed, pod("data"), profile=profile).fits


@PROFILES
def test_a_refused_node_reports_its_bindings_and_no_provision(profile: Profile) -> None:
    world = snapshot_of([
        node(), storage_class(), dynamic_class(), driver(), capacity(size="20Gi"), volume(),
        claim("static"), claim("fits", "10Gi", cls="dyn"), claim("huge", "90Gi", cls="dyn"),
    ])  # fmt: skip
    answer = ask(world, pod("static", "fits", "huge"), profile=profile)
    assert answer.reasons == (NOT_ENOUGH_SPACE,)
    assert given(answer) == {"static": "pv"}
    assert answer.provisions == ()


def test_a_migrated_gce_disk_with_an_odd_zone_label_is_an_error_there_only() -> None:
    disk = read("PersistentVolume", {
        "metadata": {"name": "pv", "labels": {ZONE: "z1__z2"}},
        "spec": {"capacity": {"storage": "10Gi"}, "gcePersistentDisk": {"pdName": "d"}},
    })  # fmt: skip
    world = snapshot_of([
        node("n1"), node("n2"), csi_node("n1", migrated="kubernetes.io/gce-pd"), disk, claim(bound_to="pv"),
    ])  # fmt: skip
    assert ask(world, pod("data"), "n1", profile=PARITY).error.startswith("could not translate pv: ")
    assert ask(world, pod("data"), "n2", profile=PARITY).fits


# Scoring, zones, limits


def test_half_is_rounded_up() -> None:
    assert rounded_mean([75, 50]) == 63
    assert rounded_mean([62, 62]) == 62


def test_a_falling_shape_truncates_toward_zero() -> None:
    assert shape_score((ShapePoint(0, 10), ShapePoint(60, 5)), 33) == 73


def test_static_bindings_hide_provisions_in_the_upstream_policy() -> None:
    world = snapshot_of([
        node(), storage_class(), dynamic_class(), driver(), capacity(), volume("a", "100Gi"),
        claim("x", "50Gi"), claim("y", "99Gi", cls="dyn"),
    ])  # fmt: skip
    answer = ask(world, pod("x", "y"), profile=PARITY)
    assert len(answer.provisions) == 1
    assert PARITY.scoring is ScoringPolicy.UPSTREAM
    assert node_score(answer, profile=PARITY) == 50


def test_a_zone_label_does_not_touch_an_existing_affinity() -> None:
    labelled = volume(labels={ZONE: "a__b"}, nodeAffinity=on_zone("c"))
    assert upgrade_zonal(labelled, [in_zone("n1", "a")]).affinity is None


def test_without_attach_slots_a_local_volume_still_serves() -> None:
    limits = {"csi_example_com": 0}
    world = [node(), storage_class(), claim(), csi_node("n1", **limits)]
    with_local = snapshot_of([*world, volume("a", "8Gi"), local_volume("b", "20Gi", "n1")])
    assert given(ask(with_local, pod("data"))) == {"data": "b"}
    attached_only = ask(snapshot_of([*world, volume("a", "8Gi", nodeAffinity=on_node("n1"))]), pod("data"))
    assert attached_only.reasons == (TOO_MANY_VOLUMES,)
    assert attached_only.status.code is Code.UNSCHEDULABLE
