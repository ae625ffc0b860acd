"""VolumeRestrictions."""

from typing import Any

import pytest

from tests.support.objects import RWO, claim, node, pod
from volsched.kube.workloads import Pod
from volsched.scheduling.rules.reasons import DISK_CONFLICT, EXCLUSIVE_CLAIM_IN_USE
from volsched.scheduling.rules.snapshot import snapshot_of
from volsched.scheduling.rules.status import SUCCESS, Code, Status
from volsched.scheduling.rules.volume_restrictions import volume_restrictions

RWOP = "ReadWriteOncePod"
IN_USE = Status(Code.UNSCHEDULABLE, (EXCLUSIVE_CLAIM_IN_USE,))
CONFLICT = Status(Code.UNSCHEDULABLE, (DISK_CONFLICT,))


def check(mine: Pod, *objects: Any) -> Status:
    return volume_restrictions(snapshot_of(objects), mine, node("n1"))


@pytest.mark.parametrize(
    ("mode", "other", "expected"),
    [
        (RWOP, pod("a", name="other", on="n1"), IN_USE),
        (RWOP, pod("a", name="other", on="n2", phase="Running"), IN_USE),
        (RWOP, pod("a", name="other", on="n2", phase="Succeeded"), SUCCESS),
        (RWOP, pod("a", name="other", on="n2", phase="Failed"), SUCCESS),
        (RWOP, pod("a", name="other", on="n2", namespace="web"), SUCCESS),
        (RWOP, pod("b", name="other", on="n2"), SUCCESS),
        (RWOP, pod("a", name="other"), SUCCESS),
        (RWOP, pod("a", on="n1"), SUCCESS),
        (RWO, pod("a", name="other", on="n1"), SUCCESS),
    ],
    ids=[
        "user on this node",
        "user on another node",
        "user has succeeded",
        "user has failed",
        "namesake in another namespace",
        "another claim",
        "rival without a node",
        "the pod itself",
        "shareable claim",
    ],
)
def test_an_exclusive_claim_has_one_user(mode: str, other: Pod, expected: Status) -> None:
    assert check(pod("a"), claim("a", modes=(mode,)), claim("b", modes=(mode,)), other) == expected


def test_a_claim_made_from_another_pod_s_template_is_in_use_by_it() -> None:
    owner = pod(name="other", on="n2", volumes=[{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}])
    assert check(pod("other-v"), claim("other-v", modes=(RWOP,)), owner) == IN_USE


def test_a_missing_claim_is_left_to_the_other_filters() -> None:
    assert check(pod("a"), pod("a", name="other", on="n1")) == SUCCESS


def with_disk(name: str, kind: str, *, on: str = "", phase: str = "Running", **fields: Any) -> Pod:
    return pod(name=name, on=on, phase=phase, volumes=[{"name": "v", kind: fields}])


GCE, EBS, ISCSI, RBD = "gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd"
IMAGE = {"image": "i", "pool": "p", "monitors": ["m1", "m2"]}


@pytest.mark.parametrize(
    ("kind", "mine", "theirs", "expected"),
    [
        (GCE, {"pdName": "d"}, {"pdName": "d"}, CONFLICT),
        (GCE, {"pdName": "d", "readOnly": True}, {"pdName": "d"}, CONFLICT),
        (GCE, {"pdName": "d", "readOnly": True}, {"pdName": "d", "readOnly": True}, SUCCESS),
        (GCE, {"pdName": "d"}, {"pdName": "e"}, SUCCESS),
        (EBS, {"volumeID": "v"}, {"volumeID": "v"}, CONFLICT),
        (EBS, {"volumeID": "v", "readOnly": True}, {"volumeID": "v", "readOnly": True}, CONFLICT),
        (EBS, {"volumeID": "v"}, {"volumeID": "w"}, SUCCESS),
        (ISCSI, {"iqn": "q", "lun": 0}, {"iqn": "q", "lun": 1}, CONFLICT),
        (ISCSI, {"iqn": "q", "readOnly": True}, {"iqn": "q", "readOnly": True}, SUCCESS),
        (ISCSI, {"iqn": "q"}, {"iqn": "r"}, SUCCESS),
        (RBD, IMAGE, {**IMAGE, "monitors": ["m2", "m3"]}, CONFLICT),
        (RBD, IMAGE, {**IMAGE, "monitors": ["m3"]}, SUCCESS),
        (RBD, IMAGE, {**IMAGE, "pool": "q"}, SUCCESS),
        (RBD, IMAGE, {**IMAGE, "image": "j"}, SUCCESS),
        (RBD, {**IMAGE, "pool": "rbd"}, {"image": "i", "monitors": ["m1"]}, CONFLICT),
        (RBD, {**IMAGE, "readOnly": True}, {**IMAGE, "readOnly": True}, SUCCESS),
        ("azureDisk", {"diskName": "d"}, {"diskName": "d"}, SUCCESS),
    ],
    ids=[
        "gce same disk",
        "gce one writer",
        "gce both read only",
        "gce other disk",
        "ebs same volume",
        "ebs both read only",
        "ebs other volume",
        "iscsi same target",
        "iscsi both read only",
        "iscsi other target",
        "rbd common monitor",
        "rbd other cluster",
        "rbd other pool",
        "rbd other image",
        "rbd default pool",
        "rbd both read only",
        "azure is not judged",
    ],
)
def test_inline_disks_on_one_node(
    kind: str, mine: dict[str, Any], theirs: dict[str, Any], expected: Status
) -> None:
    assert check(with_disk("app", kind, **mine), with_disk("other", kind, on="n1", **theirs)) == expected


def test_the_same_id_in_two_kinds_of_disk_is_no_conflict() -> None:
    other = with_disk("other", EBS, on="n1", volumeID="v", pdName="v")
    assert check(with_disk("app", GCE, pdName="v", volumeID="v"), other) == SUCCESS


@pytest.mark.parametrize(("on", "phase"), [("n2", "Running"), ("n1", "Succeeded"), ("", "Pending")])
def test_a_disk_used_elsewhere_or_no_longer_is_no_conflict(on: str, phase: str) -> None:
    assert check(
        with_disk("app", EBS, volumeID="v"), with_disk("other", EBS, on=on, phase=phase, volumeID="v")
    ) == (SUCCESS)


def test_every_disk_of_every_neighbour_is_compared() -> None:
    disks = [{"name": f"v{i}", EBS: {"volumeID": f"vol-{i}"}} for i in range(3)]
    neighbours = pod(name="x", on="n1"), pod(name="y", on="n1", volumes=[disks[1], disks[2]])
    assert check(pod(volumes=[disks[0], disks[2]]), *neighbours) == CONFLICT
    assert check(pod(volumes=[disks[0]]), *neighbours) == SUCCESS


def test_the_claim_is_reported_before_the_disk() -> None:
    disk = {"name": "d", EBS: {"volumeID": "v"}}
    other = pod("a", name="other", on="n1", volumes=[disk])
    assert check(pod("a", volumes=[disk]), claim("a", modes=(RWOP,)), other) == IN_USE


def test_images_without_monitors_are_in_no_common_cluster() -> None:
    assert check(with_disk("app", RBD, image="i"), with_disk("other", RBD, on="n1", image="i")) == SUCCESS
