"""What keeps a pod, or a node, out: PreFilter messages, reasons in order, and the data behind each reason."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.objects import (
    capacity,
    claim,
    csi_node,
    driver,
    dynamic_class,
    in_zone,
    local_volume,
    node,
    on_zone,
    pod,
    read,
    storage_class,
    volume,
)  # fmt: skip
from volsched.kube.meta import ROLLBACK, ZONE
from volsched.kube.workloads import Pod
from volsched.scheduling.rules.pod_claims import classify_claims
from volsched.scheduling.rules.profile import PARITY, VOLSCHED, Profile
from volsched.scheduling.rules.reasons import (
    BOUND_TO_MISSING_VOLUME,
    NO_VOLUME_TO_BIND,
    NODE_AFFINITY_MISMATCH,
    NOT_ENOUGH_SPACE,
    TOO_MANY_VOLUMES,
)
from volsched.scheduling.rules.snapshot import Snapshot, snapshot_of
from volsched.scheduling.rules.status import Code, Rule
from volsched.scheduling.rules.volume_filter import NodeAnswer, find_pod_volumes, prefilter


def ask(snapshot: Snapshot, wanting: Pod, on: str, *, profile: Profile = VOLSCHED) -> NodeAnswer:
    claims = classify_claims(snapshot, wanting, once=profile.claims_count_once)
    return find_pod_volumes(snapshot, wanting, claims, snapshot.nodes[on], profile=profile)


def in_zone_cap(name: str, size: str, zone: str) -> Any:
    return capacity(name, size, cls="csi", topology={"matchLabels": {ZONE: zone}})


def worked_example(**third: Any) -> Snapshot:
    """Claims A (bound in zone a), B (5Gi local), C (10Gi, published capacity)."""
    return snapshot_of([
        in_zone("n1", "a"), in_zone("n2", "a"), in_zone("n3", "b"), in_zone("n4", "a"),
        storage_class("local"), storage_class("csi", provisioner="csi.example.com"), driver(),
        volume("pva", nodeAffinity=on_zone("a"), phase="Bound"), claim("a", bound_to="pva"),
        claim("b", "5Gi", cls="local"), claim("c", "10Gi", cls="csi", **third),
        local_volume("b1", "6Gi", "n1", cls="local"), local_volume("b3", "6Gi", "n3", cls="local"),
        local_volume("b4", "6Gi", "n4", cls="local"),
        in_zone_cap("ca", "100Gi", "a"), in_zone_cap("cb", "5Gi", "b"),
    ])  # fmt: skip


@pytest.mark.parametrize("profile", [PARITY, VOLSCHED], ids=lambda profile: profile.name)
def test_worked_example(profile: Profile) -> None:
    world, wanting = worked_example(), pod("a", "b", "c")
    fits = ask(world, wanting, "n1", profile=profile)
    assert fits.fits
    assert [binding.volume.name for binding in fits.bindings] == ["b1"]
    assert [provision.capacity.key for provision in fits.provisions if provision.capacity] == ["csi/ca"]
    assert ask(world, wanting, "n2", profile=profile).reasons == (NO_VOLUME_TO_BIND,)
    assert ask(world, wanting, "n3", profile=profile).reasons == (NODE_AFFINITY_MISMATCH, NOT_ENOUGH_SPACE)
    committed = worked_example(selected="n1")
    assert ask(committed, wanting, "n4", profile=profile).reasons == (NO_VOLUME_TO_BIND,)
    assert ask(committed, wanting, "n1", profile=profile).fits


def test_every_rejection_names_claim_rule_wanted_and_got() -> None:
    by_node = {name: ask(worked_example(), pod("a", "b", "c"), name).rejections for name in ("n2", "n3")}
    (no_volume,) = by_node["n2"]
    assert no_volume.claim == "db/b"
    assert [failure.rule for failure in no_volume.failures] == [Rule.PROVISIONER]
    assert [failure.rule for failure in no_volume.misses[0].failures] == [Rule.NODE_AFFINITY]
    assert no_volume.misses[0].failures[0].got == "kubernetes.io/hostname In [n1]"
    misplaced, no_space = by_node["n3"]
    assert (misplaced.claim, misplaced.misses[0].volume) == ("db/a", "pva")
    assert (no_space.claim, no_space.failures[0].wanted) == ("db/c", "10Gi free")
    assert no_space.failures[0].got == "csi/cb: 5Gi in all"


EPHEMERAL = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]


@pytest.mark.parametrize(
    ("objects", "wanting", "code", "reason"),
    [
        ([], pod("data"), Code.UNRESOLVABLE, 'persistentvolumeclaim "data" not found'),
        (
            [],
            pod(volumes=EPHEMERAL),
            Code.UNRESOLVABLE,
            'waiting for ephemeral volume controller to create the persistentvolumeclaim "app-scratch"',
        ),
        (
            [claim("app-scratch")],
            pod(volumes=EPHEMERAL),
            Code.UNRESOLVABLE,
            "PVC db/app-scratch was not created for pod db/app (pod is not owner)",
        ),
        ([claim(deleted=True)], pod("data"), Code.UNRESOLVABLE, 'persistentvolumeclaim "data" is being deleted'),
        (
            [claim(annotations={ROLLBACK: "uid"})],
            pod("data"),
            Code.UNRESOLVABLE,
            'persistentvolumeclaim "data" is undergoing rollback',
        ),
        (
            [claim(), storage_class(mode=None)],
            pod("data"),
            Code.ERROR,
            'VolumeBindingMode not set for StorageClass "fast"',
        ),
    ],
)
def test_prefilter_messages(objects: list[Any], wanting: Pod, code: Code, reason: str) -> None:
    status, claims = prefilter(snapshot_of(objects), wanting, profile=VOLSCHED)
    assert (status.code, status.reasons) == (code, (reason,))
    assert claims.delayed == ()


def test_rollback_is_not_looked_at_in_parity() -> None:
    world = snapshot_of([claim(annotations={ROLLBACK: "uid"}), storage_class()])
    assert prefilter(world, pod("data"), profile=PARITY)[0].code is Code.SUCCESS


def test_an_owned_ephemeral_claim_is_the_pods() -> None:
    owned = read("PersistentVolumeClaim", {
        "metadata": {
            "name": "app-scratch", "namespace": "db",
            "ownerReferences": [{"kind": "Pod", "name": "app", "uid": "uid-app", "controller": True}],
        },
        "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}},
    })  # fmt: skip
    status, claims = prefilter(snapshot_of([owned, storage_class()]), pod(volumes=EPHEMERAL), profile=VOLSCHED)
    assert status.code is Code.SUCCESS
    assert [held.name for held in claims.delayed] == ["app-scratch"]


def test_the_first_bound_claim_that_fails_ends_the_check() -> None:
    world = snapshot_of([in_zone("n1", "a"), claim("x", bound_to="gone"), claim("y", bound_to="far"),
                         volume("far", nodeAffinity=on_zone("b"))])  # fmt: skip
    assert ask(world, pod("x", "y"), "n1").reasons == (BOUND_TO_MISSING_VOLUME,)
    assert ask(world, pod("y", "x"), "n1").reasons == (NODE_AFFINITY_MISMATCH,)


@pytest.mark.parametrize(
    ("slots", "with_local", "reasons"),
    [(2, False, ()), (1, False, (TOO_MANY_VOLUMES,)), (1, True, ()), (0, True, (TOO_MANY_VOLUMES,))],
)
def test_attach_slots_are_part_of_the_decision(slots: int, with_local: bool, reasons: tuple[str, ...]) -> None:
    limits = {"csi_example_com": slots}
    objects = [node("n1"), storage_class(), claim("x", "5Gi"), claim("y", "5Gi"), csi_node("n1", **limits),
               volume("a", "5Gi"), volume("b", "6Gi")]  # fmt: skip
    if with_local:
        objects.append(local_volume("c", "50Gi", "n1"))
    answer = ask(snapshot_of(objects), pod("x", "y"), "n1")
    assert answer.reasons == reasons
    assert answer.status.code is (Code.UNSCHEDULABLE if reasons else Code.SUCCESS)


def test_provisioning_takes_attach_slots_too() -> None:
    objects = [node("n1"), dynamic_class(), claim("x", cls="dyn"), claim("y", cls="dyn")]
    one, two = {"csi_example_com": 1}, {"csi_example_com": 2}
    assert ask(snapshot_of([*objects, csi_node("n1", **one)]), pod("x", "y"), "n1").reasons == (TOO_MANY_VOLUMES,)
    assert ask(snapshot_of([*objects, csi_node("n1", **two)]), pod("x", "y"), "n1").fits


def test_another_reason_hides_the_attach_limit() -> None:
    limits = {"csi_example_com": 0}
    world = snapshot_of(
        [node("n1"), storage_class(), claim("x"), claim("y", "90Gi"), csi_node("n1", **limits), volume()]
    )
    answer = ask(world, pod("x", "y"), "n1")
    assert answer.reasons == (NO_VOLUME_TO_BIND,)
    assert answer.status.code is Code.UNRESOLVABLE


def test_a_prebound_volume_takes_its_slot_or_fails_the_node() -> None:
    limits = {"csi_example_com": 0}
    wanting = claim()
    mine = volume(claim_ref={"namespace": "db", "name": "data"})
    spare = local_volume("spare", "10Gi", "n1")
    world = snapshot_of([node("n1"), storage_class(), wanting, mine, spare, csi_node("n1", **limits)])
    assert ask(world, pod("data"), "n1").reasons == (TOO_MANY_VOLUMES,)


def test_reserved_capacity_is_gone() -> None:
    objects = [node("n1"), dynamic_class(), driver(), claim("x", "60Gi", cls="dyn"), capacity()]
    free = snapshot_of(objects)
    assert ask(free, pod("x"), "n1").fits
    promised = replace(free, reserved={"csi/cap": 50 * 2**30})
    assert ask(promised, pod("x"), "n1").reasons == (NOT_ENOUGH_SPACE,)
    assert ask(promised, pod("x"), "n1", profile=PARITY).fits


def test_claims_are_spread_over_capacity_objects_that_overlap() -> None:
    objects = [node("n1"), dynamic_class(), driver(), capacity("one", "100Gi"), capacity("two", "100Gi")]
    claims = [claim(name, "60Gi", cls="dyn") for name in ("x", "y")]
    answer = ask(snapshot_of([*objects, *claims]), pod("x", "y"), "n1")
    assert [provision.capacity.meta.name for provision in answer.provisions if provision.capacity] == [
        "one",
        "two",
    ]


def test_without_a_published_total_each_claim_is_judged_alone() -> None:
    objects = [node("n1"), dynamic_class(), driver(), capacity(size=None, maximum="100Gi")]
    claims = [claim(name, "60Gi", cls="dyn") for name in ("x", "y")]
    assert ask(snapshot_of([*objects, *claims]), pod("x", "y"), "n1").fits


def test_a_single_volume_may_be_as_large_as_the_driver_says_whatever_the_total() -> None:
    objects = [
        node("n1"),
        dynamic_class(),
        driver(),
        claim("x", "3Gi", cls="dyn"),
        capacity(size="1Gi", maximum="5Gi"),
    ]
    for profile in (PARITY, VOLSCHED):
        assert ask(snapshot_of(objects), pod("x"), "n1", profile=profile).fits


def test_capacity_objects_are_asked_by_namespace_then_name() -> None:
    manifests = [
        {
            "metadata": {"namespace": namespace, "name": name},
            "storageClassName": "dyn",
            "nodeTopology": {},
            "capacity": "9Gi",
        }
        for namespace, name in (("b", "a"), ("a", "z"))
    ]
    published = [read("CSIStorageCapacity", manifest) for manifest in manifests]
    world = snapshot_of([node("n1"), dynamic_class(), driver(), claim("x", "1Gi", cls="dyn"), *published])
    (provision,) = ask(world, pod("x"), "n1").provisions
    assert provision.capacity is not None
    assert provision.capacity.key == "a/z"


def test_what_other_claims_of_the_pod_take_is_reported() -> None:
    claims = [claim(name, "60Gi", cls="dyn") for name in ("x", "y")]
    world = snapshot_of([node("n1"), dynamic_class(), driver(), capacity(), *claims])
    (rejection,) = ask(replace(world, reserved={"csi/cap": 2**30}), pod("x", "y"), "n1").rejections
    assert rejection.failures[0].got == (
        "csi/cap: 100Gi in all, 1Gi reserved for other pods, 60Gi for other claims of the pod"
    )


def test_a_limit_next_to_another_reason_cannot_be_eased_by_an_eviction() -> None:
    limits = {"csi_example_com": 0}
    world = snapshot_of([
        in_zone("n1", "a"), storage_class(), csi_node("n1", **limits), claim("x"), volume("free"),
        claim("far", bound_to="pv"), volume("pv", nodeAffinity=on_zone("b"), local={"path": "/x"}, phase="Bound"),
    ])  # fmt: skip
    answer = ask(world, pod("far", "x"), "n1")
    assert answer.reasons == (NODE_AFFINITY_MISMATCH, TOO_MANY_VOLUMES)
    assert answer.status.code is Code.UNRESOLVABLE


def test_a_volume_kept_out_by_the_limit_alone_is_the_nearest_miss() -> None:
    limits = {"csi_example_com": 0}
    world = snapshot_of(
        [node("n1"), storage_class(), claim("x"), csi_node("n1", **limits), volume("fits"), volume("s", "1Gi")]
    )
    (rejection,) = ask(world, pod("x"), "n1").rejections
    assert rejection.misses[0].volume == "fits"
    assert [failure.rule for failure in rejection.misses[0].failures] == [Rule.ATTACH_LIMIT]


def test_bound_volumes_over_the_limit_name_their_claim() -> None:
    limits = {"csi_example_com": 0}
    world = snapshot_of([node("n1"), claim("x", bound_to="pv"), volume(phase="Bound"), csi_node("n1", **limits)])
    (rejection,) = ask(world, pod("x"), "n1").rejections
    assert (rejection.reason, rejection.claim) == (TOO_MANY_VOLUMES, "db/x")


def test_a_pinned_claim_says_so_and_a_volume_of_another_class_is_a_miss() -> None:
    wanting = claim("x")
    mine = local_volume("mine", "10Gi", "n2", claim_ref={"namespace": "db", "name": "x"})
    world = snapshot_of([node("n1"), storage_class(), wanting, mine, local_volume("free", "10Gi", "n1")])
    (rejection,) = ask(world, pod("x"), "n1").rejections
    assert rejection.failures[0].rule is Rule.PINNED
    other = snapshot_of([node("n1"), storage_class(), wanting, volume("elsewhere", cls="slow")])
    (rejection,) = ask(other, pod("x"), "n1").rejections
    assert [failure.rule for failure in rejection.misses[0].failures] == [Rule.CLASS]


def test_every_claim_that_cannot_be_served_is_named() -> None:
    world = snapshot_of([node("n1"), storage_class(), claim("x"), claim("y"), claim("z"), volume("one", "90Gi")])
    answer = ask(world, pod("x", "y", "z"), "n1")
    assert answer.reasons == (NO_VOLUME_TO_BIND,)
    assert {rejection.claim for rejection in answer.rejections} == {"db/y", "db/z"}
