"""Attach identity, limits and budget, and the stand-alone filter NodeVolumeLimits (A.2)."""

from typing import Any

import pytest

from tests.support.objects import (
    claim,
    csi_node,
    dynamic_class,
    local_volume,
    node,
    pod,
    read,
    storage_class,
    volume,
)
from volsched.kube.storage import CSIDriver, CSINode, VolumeAttachment
from volsched.scheduling.rules.attach_limits import (
    attach_budget,
    attach_limits,
    drivers_installed,
    node_volume_limits,
)
from volsched.scheduling.rules.disks import AttachId, attach_id
from volsched.scheduling.rules.reasons import TOO_MANY_VOLUMES
from volsched.scheduling.rules.snapshot import Snapshot, snapshot_of
from volsched.scheduling.rules.status import SUCCESS, Code, Status

CSI = "csi.example.com"
EBS = "kubernetes.io/aws-ebs"
N1 = node("n1")
FULL = Status(Code.UNSCHEDULABLE, (TOO_MANY_VOLUMES,))


def attachment(pv: str, *, on: str = "n1", attacher: str = CSI, name: str = "") -> VolumeAttachment:
    spec = {"attacher": attacher, "nodeName": on, "source": {"persistentVolumeName": pv}}
    made: VolumeAttachment = read(
        "VolumeAttachment", {"metadata": {"name": name or f"va-{pv}-{on}"}, "spec": spec}
    )
    return made


def limited(count: int) -> CSINode:
    return csi_node("n1", csi_example_com=count)


def ebs_inline(volume_id: str) -> dict[str, Any]:
    return {"name": volume_id, "awsElasticBlockStore": {"volumeID": volume_id}}


def bound(*names: str) -> list[Any]:
    """For each name a CSI volume and a claim bound to it."""
    return [made for name in names for made in (volume(f"pv-{name}"), claim(name, bound_to=f"pv-{name}"))]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"csi": {"driver": CSI, "volumeHandle": "h1"}}, AttachId(CSI, "h1")),
        ({"awsElasticBlockStore": {"volumeID": "vol-1"}}, AttachId(EBS, "vol-1")),
        ({"gcePersistentDisk": {"pdName": "disk"}}, AttachId("kubernetes.io/gce-pd", "disk")),
        ({"azureDisk": {"diskName": "d", "diskURI": "/u"}}, AttachId("kubernetes.io/azure-disk", "d")),
        ({"cinder": {"volumeID": "c"}}, AttachId("kubernetes.io/cinder", "c")),
        ({"local": {"path": "/mnt"}}, None),
        ({"nfs": {"server": "s", "path": "/"}}, None),
    ],
    ids=["csi", "ebs", "gce", "azure", "cinder", "local", "nfs"],
)
def test_only_disks_that_are_attached_take_a_slot(spec: dict[str, Any], expected: AttachId | None) -> None:
    assert attach_id(volume("pv", **spec)) == expected


# --- limits ---------------------------------------------------------------------------------------------


def limits_of(made: Any, *others: Any, max_in_tree: int | None = None) -> dict[str, int]:
    return attach_limits(snapshot_of(others), made, max_in_tree=max_in_tree)


def allocatable(**amounts: str) -> Any:
    keys = {f"attachable-volumes-{key.replace('_', '-')}": amount for key, amount in amounts.items()}
    return node("n1", status={"allocatable": keys})


def test_in_tree_plugins_have_default_limits_and_csi_drivers_have_none() -> None:
    assert limits_of(N1) == {
        EBS: 39,
        "kubernetes.io/gce-pd": 16,
        "kubernetes.io/azure-disk": 16,
        "kubernetes.io/cinder": 256,
    }


def test_csi_node_count_wins_over_the_node_s_allocatable() -> None:
    made = node("n1", status={"allocatable": {f"attachable-volumes-csi-{CSI}": "9"}})
    assert limits_of(made)[CSI] == 9
    assert limits_of(made, limited(3))[CSI] == 3
    assert limits_of(made, csi_node("n2", csi_example_com=3))[CSI] == 9


def test_a_csi_count_of_zero_is_a_limit_and_an_absent_one_is_none() -> None:
    absent = read("CSINode", {"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": CSI}]}})
    assert limits_of(N1, limited(0))[CSI] == 0
    assert CSI not in limits_of(N1, absent)


@pytest.mark.parametrize(
    ("instance_type", "limit"),
    [
        ("m5.large", 25),
        ("c5d.metal", 25),
        ("t3.micro", 25),
        ("z1d.large", 25),
        ("m4.large", 39),
        ("xm5.large", 39),
    ],
)
@pytest.mark.parametrize("label", ["node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"])
def test_nitro_instances_attach_fewer_ebs_volumes(label: str, instance_type: str, limit: int) -> None:
    assert limits_of(node("n1", labels={label: instance_type}))[EBS] == limit


def test_the_ga_instance_type_label_wins_over_the_beta_one() -> None:
    labels = {"beta.kubernetes.io/instance-type": "m5.large", "node.kubernetes.io/instance-type": "m4.large"}
    assert limits_of(node("n1", labels=labels))[EBS] == 39


def test_the_override_replaces_defaults_but_not_what_the_node_declares() -> None:
    limits = limits_of(allocatable(gce_pd="127"), max_in_tree=5)
    assert limits == {
        EBS: 5,
        "kubernetes.io/gce-pd": 127,
        "kubernetes.io/azure-disk": 5,
        "kubernetes.io/cinder": 5,
    }


@pytest.mark.parametrize("ignored", [None, 0, -1])
def test_an_override_that_is_not_positive_is_ignored(ignored: int | None) -> None:
    assert limits_of(N1, max_in_tree=ignored)[EBS] == 39


# --- budget ---------------------------------------------------------------------------------------------


def budget(mine: Any, *others: Any, driver: str = CSI) -> int:
    return attach_budget(snapshot_of((N1, limited(5), *others)), mine, N1)[driver]


def test_a_driver_without_a_limit_has_no_budget() -> None:
    assert CSI not in attach_budget(Snapshot(), pod(), N1)


@pytest.mark.parametrize(
    ("phase", "on", "left"),
    [
        ("Running", "n1", 4),
        ("Pending", "n1", 4),
        ("Succeeded", "n1", 5),
        ("Failed", "n1", 5),
        ("Running", "n2", 5),
    ],
)
def test_pods_on_the_node_use_slots_until_they_terminate(phase: str, on: str, left: int) -> None:
    assert budget(pod(), *bound("a"), pod("a", name="other", on=on, phase=phase)) == left


def test_the_pod_s_own_assignment_is_not_counted_as_another_pod() -> None:
    mine = pod("a", on="n1")
    assert budget(mine, claim("a", cls="dyn"), dynamic_class(), mine) == 5


def test_two_pods_sharing_a_volume_use_one_slot() -> None:
    assert budget(pod(), *bound("a"), pod("a", name="x", on="n1"), pod("a", name="y", on="n1")) == 4


def test_a_volume_in_use_and_attached_counts_once() -> None:
    assert budget(pod(), *bound("a"), pod("a", name="other", on="n1"), attachment("pv-a")) == 4


def test_an_attachment_uses_a_slot_of_its_node_only() -> None:
    assert budget(pod(), *bound("a"), attachment("pv-a")) == 4
    assert budget(pod(), *bound("a"), attachment("pv-a", on="n2")) == 5


def test_attachments_of_vanished_volumes_still_hold_their_slots() -> None:
    assert budget(pod(), attachment("gone-1"), attachment("gone-2")) == 3


def test_unbound_claims_of_existing_pods_count_once_each_by_provisioner() -> None:
    others = pod("a", "b", name="x", on="n1"), pod("b", name="y", on="n1")
    assert budget(pod(), claim("a", cls="dyn"), claim("b", cls="dyn"), dynamic_class(), *others) == 3


def test_a_claim_whose_volume_is_missing_counts_by_provisioner() -> None:
    assert budget(pod(), claim("a", cls="dyn", bound_to="gone"), dynamic_class(), pod("a", name="x", on="n1")) == 4


def test_claims_that_no_provisioner_serves_and_missing_claims_of_existing_pods_cost_nothing() -> None:
    other = pod("static", "missing", "classless", name="x", on="n1")
    objects = claim("static", cls="fast"), claim("classless", cls=""), storage_class("fast"), other
    assert budget(pod(), *objects) == 5


def test_the_pod_s_bound_volumes_are_paid_for_unless_they_are_there_already() -> None:
    assert budget(pod("a", "b"), *bound("a", "b")) == 3
    assert budget(pod("a", "b"), *bound("a", "b"), attachment("pv-b")) == 3
    assert budget(pod("a", "b"), *bound("a", "b"), pod("a", name="x", on="n1")) == 3
    assert budget(pod("a", "a"), *bound("a")) == 4


def test_the_pod_s_unbound_claims_are_left_to_the_binding_decision() -> None:
    assert budget(pod("a"), claim("a", cls="dyn"), dynamic_class()) == 5
    half_bound = claim("a", cls="dyn", volumeName="pv-a")
    assert budget(pod("a"), volume("pv-a"), half_bound, dynamic_class()) == 5


def test_the_budget_is_negative_when_the_pod_s_bound_volumes_do_not_fit() -> None:
    assert budget(pod("a", "b"), *bound("a", "b"), *(attachment(f"gone-{i}") for i in range(4))) == -1


def test_a_node_over_its_limit_turns_away_only_pods_that_add_to_it() -> None:
    over = [attachment(f"gone-{i}") for i in range(7)]
    assert budget(pod(), *over) == 0
    assert budget(pod("a"), *bound("a"), *over) == -1


def test_local_volumes_cost_nothing() -> None:
    assert budget(pod("a"), local_volume("pv-a", "1Gi", "n1"), claim("a", bound_to="pv-a")) == 5


def test_inline_in_tree_disks_count_under_their_plugin() -> None:
    other = pod(name="x", on="n1", volumes=[ebs_inline("vol-1"), ebs_inline("vol-2")])
    mine = pod(volumes=[ebs_inline("vol-2"), ebs_inline("vol-3")])
    assert budget(pod(), other, driver=EBS) == 37
    assert budget(mine, other, driver=EBS) == 36


def test_an_inline_csi_volume_is_never_attached() -> None:
    assert budget(pod(), pod(name="x", on="n1", volumes=[{"name": "v", "csi": {"driver": CSI}}])) == 5


# --- NodeVolumeLimits -----------------------------------------------------------------------------------


def limits_filter(mine: Any, *others: Any) -> Status:
    return node_volume_limits(snapshot_of((N1, *others)), mine, N1)


def insistent_driver() -> CSIDriver:
    spec = {"preventPodSchedulingIfMissing": True}
    made: CSIDriver = read("CSIDriver", {"metadata": {"name": CSI}, "spec": spec})
    return made


@pytest.mark.parametrize(("limit", "expected"), [(2, SUCCESS), (1, FULL), (0, FULL)])
def test_bound_and_unbound_claims_of_the_new_pod_both_need_a_slot(limit: int, expected: Status) -> None:
    objects = *bound("a"), claim("b", cls="dyn"), dynamic_class(), limited(limit)
    assert limits_filter(pod("a", "b"), *objects) == expected


def test_the_reason_is_schedulable_again_after_an_eviction() -> None:
    assert limits_filter(pod("a"), *bound("a"), limited(0)).code is Code.UNSCHEDULABLE


@pytest.mark.parametrize(("limit", "expected"), [(3, SUCCESS), (2, FULL)])
def test_what_the_node_has_already_is_added_to_what_is_new(limit: int, expected: Status) -> None:
    there = *bound("x", "y"), pod("x", name="other", on="n1"), attachment("pv-x"), attachment("pv-y")
    assert limits_filter(pod("a"), *bound("a"), *there, limited(limit)) == expected


def test_a_volume_that_is_there_already_needs_no_further_slot() -> None:
    assert limits_filter(pod("a"), *bound("a"), attachment("pv-a"), limited(1)) == SUCCESS
    shared = claim("b", cls="dyn"), dynamic_class(), pod("b", name="other", on="n1")
    assert limits_filter(pod("b"), *shared, limited(1)) == SUCCESS


def test_a_full_node_accepts_a_pod_that_adds_nothing() -> None:
    there = *bound("x", "y"), attachment("pv-x"), attachment("pv-y")
    assert limits_filter(pod(), *there, limited(1)) == SUCCESS
    assert limits_filter(pod("x"), *there, limited(1)) == SUCCESS


def test_a_driver_without_a_count_is_unlimited_whatever_the_node_s_allocatable_says() -> None:
    made = node("n1", status={"allocatable": {f"attachable-volumes-csi-{CSI}": "0"}})
    assert node_volume_limits(snapshot_of((made, *bound("a"))), pod("a"), made) == SUCCESS


def test_in_tree_limits_are_not_this_filter_s_business() -> None:
    made = allocatable(aws_ebs="0")
    disk = volume("pv-a", awsElasticBlockStore={"volumeID": "v"}), claim("a", bound_to="pv-a")
    assert node_volume_limits(snapshot_of((made, *disk)), pod("a"), made) == SUCCESS


def test_a_missing_claim_stops_the_new_pod_but_not_its_neighbours() -> None:
    missing = Status(Code.UNRESOLVABLE, ('persistentvolumeclaim "a" not found',))
    assert limits_filter(pod("a"), limited(1)) == missing
    assert limits_filter(pod("b"), *bound("b"), pod("a", name="other", on="n1"), limited(1)) == SUCCESS


def test_a_driver_that_insists_must_be_installed_on_the_node() -> None:
    refused = Status(Code.UNSCHEDULABLE, (f"{CSI} CSI driver is not installed on the node",))
    unbound = claim("b", cls="dyn"), dynamic_class()
    assert limits_filter(pod("a"), *bound("a"), insistent_driver()) == refused
    assert limits_filter(pod("a"), *bound("a"), insistent_driver(), csi_node("n1", other=1)) == refused
    assert limits_filter(pod("b"), *unbound, insistent_driver()) == refused
    assert limits_filter(pod("a"), *bound("a"), insistent_driver(), limited(1)) == SUCCESS
    assert limits_filter(pod(), insistent_driver()) == SUCCESS


def test_installed_drivers_are_judged_without_regard_to_their_limits() -> None:
    objects = N1, *bound("a"), insistent_driver()
    assert drivers_installed(snapshot_of(objects), pod("a"), N1).code is Code.UNSCHEDULABLE
    assert drivers_installed(snapshot_of((*objects, limited(0))), pod("a"), N1) == SUCCESS


def test_a_driver_that_does_not_insist_may_be_missing() -> None:
    relaxed = read("CSIDriver", {"metadata": {"name": CSI}})
    assert limits_filter(pod("a"), *bound("a"), relaxed) == SUCCESS


# --- migrated plugins -----------------------------------------------------------------------------------

EBS_CSI = "ebs.csi.aws.com"


def migrated(count: int | None) -> Any:
    allocatable = {} if count is None else {"allocatable": {"count": count}}
    annotations = {"storage.alpha.kubernetes.io/migrated-plugins": f"kubernetes.io/x,{EBS}"}
    return read(
        "CSINode",
        {
            "metadata": {"name": "n1", "annotations": annotations},
            "spec": {"drivers": [{"name": EBS_CSI, "nodeID": "n1", **allocatable}]},
        },
    )


def test_a_migrated_plugin_shares_the_limit_and_the_slots_of_its_csi_driver() -> None:
    assert limits_of(N1, migrated(3))[EBS] == 3
    assert EBS not in limits_of(N1, migrated(None))
    other = pod(name="x", on="n1", volumes=[ebs_inline("vol-1")])
    left = attach_budget(snapshot_of((N1, migrated(3), other)), pod(), N1)
    assert (left[EBS_CSI], left[EBS]) == (2, 2)
