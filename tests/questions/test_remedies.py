"""The smallest changes that would make a pod fit: each really does, and the obvious one is among them."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.objects import (
    capacity,
    claim,
    csi_node,
    driver,
    dynamic_class,
    in_zone,
    local_volume,
    node,
    on_node,
    on_zone,
    pod,
    read,
    ref_to,
    storage_class,
    volume,
)
from tests.support.random_clusters import Cluster, clusters
from volsched.kube.meta import BOUND_BY_CONTROLLER, ZONE
from volsched.kube.object_values import Object
from volsched.kube.workloads import Node, Pod, Taint
from volsched.questions.explain.remedies import Remedy, find_remedies
from volsched.questions.explain.survey import NodeSurroundings, survey
from volsched.questions.simulate.changes import Changes, changed_pod, objects_of, snapshot_with, weight
from volsched.scheduling.index import Index
from volsched.scheduling.rules.cycle import attempt
from volsched.scheduling.rules.profile import PARITY, VOLSCHED, Profile
from volsched.scheduling.rules.snapshot import Snapshot

GIB = 2**30


def remedies(
    objects: Iterable[Object], wanting: Pod, *, profile: Profile = VOLSCHED, reserved: Any = None
) -> list[Remedy]:
    index = Index([*objects, wanting], profile=profile)
    for key, size in (reserved or {}).items():
        index.reserve(key, size)
    around = NodeSurroundings(index.snapshot, wanting, profile)
    return find_remedies(index, around, survey(index, wanting, around))


def texts(found: list[Remedy]) -> list[str]:
    return [" & ".join(change.text for change in remedy.changes) for remedy in found]


# --- whatever the cluster -------------------------------------------------------------------------------


@st.composite
def troubled(draw: st.DrawFn) -> Cluster:
    """A cluster in which more than volumes may be wrong."""
    cluster = draw(clusters(max_claims=3))
    objects: list[Object] = []
    for value in cluster.objects:
        if isinstance(value, Node) and draw(st.integers(0, 3)) == 0:
            value = replace(value, unschedulable=True)
        if isinstance(value, Node) and draw(st.integers(0, 3)) == 0:
            value = replace(value, taints=(Taint(key="dedicated", value="db", effect="NoSchedule"),))
        missing = draw(st.integers(0, 12)) == 0 and not isinstance(value, Node)
        if not missing:
            objects.append(value)
    wanting = cluster.pod
    if draw(st.integers(0, 3)) == 0:
        wanting = replace(wanting, node_selector={draw(st.sampled_from(["disk", ZONE])): "ssd"})
    return Cluster(tuple(objects), wanting, cluster.reserved)


@given(troubled(), st.sampled_from([VOLSCHED, VOLSCHED, PARITY]))
@settings(max_examples=60, deadline=None)
def test_every_remedy_makes_the_pod_fit(cluster: Cluster, profile: Profile) -> None:
    snapshot, wanting = cluster.snapshot, cluster.pod
    if attempt(snapshot, wanting, profile=profile).chosen is not None:
        return
    found = remedies(cluster.objects, wanting, profile=profile, reserved=cluster.reserved)
    for remedy in found:
        for changes in (remedy.changes, *remedy.elsewhere):
            after = attempt(snapshot_with(snapshot, changes), changed_pod(wanting, changes), profile=profile)
            assert after.chosen is not None
            assert len(changes) == 1 or is_least(snapshot, wanting, changes, profile)
    assert [weight(it.changes) for it in found] == sorted(weight(it.changes) for it in found)


def is_least(snapshot: Snapshot, wanting: Pod, changes: Changes, profile: Profile) -> bool:
    """No change can be left out. One that a later change of the same object was made upon cannot be told apart."""
    for place, change in enumerate(changes):
        others = (*changes[:place], *changes[place + 1 :])
        if change.objects & objects_of(changes[place + 1 :]):
            continue
        if (
            attempt(snapshot_with(snapshot, others), changed_pod(wanting, others), profile=profile).chosen
            is not None
        ):
            return False
    return True


@given(troubled())
@settings(max_examples=30, deadline=None)
def test_looking_for_remedies_leaves_everything_as_it_was(cluster: Cluster) -> None:
    index = Index([*cluster.objects, cluster.pod])
    before = attempt(index.snapshot, cluster.pod, profile=VOLSCHED)
    around = NodeSurroundings(index.snapshot, cluster.pod, VOLSCHED)
    find_remedies(index, around, survey(index, cluster.pod, around))
    assert attempt(index.snapshot, cluster.pod, profile=VOLSCHED) == before
    fresh = Index([*cluster.objects, cluster.pod])
    assert index.snapshot == fresh.snapshot
    assert index.decide(cluster.pod) == fresh.decide(cluster.pod)


# --- what a person would think of -----------------------------------------------------------------------

N1 = node("n1")
RELEASED: dict[str, Any] = {"phase": "Released", "persistentVolumeReclaimPolicy": "Retain"}
GONE = {"namespace": "db", "name": "old", "uid": "uid-old"}
CLEAN = replace(claim("other", bound_to="pv"), data_state="Clean")
OURS = {BOUND_BY_CONTROLLER: "yes"}

CASES: dict[str, tuple[list[Object], Pod, str]] = {
    "a volume to add": (
        [N1, storage_class(), claim("x", "8Gi")],
        pod("x"),
        'add a PersistentVolume of at least 8Gi (class "fast", ReadWriteOnce) on n1, for db/x',
    ),
    "in the domain that the class's volumes have": (
        [in_zone("n1", "a"), storage_class(), claim("x"), volume("pv", "1Gi", nodeAffinity=on_zone("b"))],
        pod("x"),
        f"in {ZONE}=a",
    ),
    "with the labels that the claim selects": (
        [N1, storage_class(), claim("x", selector={"matchLabels": {"tier": "ssd"}})],
        pod("x"),
        "labels tier=ssd",
    ),
    "a released volume": (
        [N1, storage_class(), claim("x"), local_volume("pv", "10Gi", "n1", claim_ref=GONE, **RELEASED)],
        pod("x"),
        "volsched release pv --reason TEXT",
    ),
    "an empty volume of an unused claim": (
        [
            N1, storage_class(), claim("x"), CLEAN,
            volume("pv", claim_ref=ref_to(CLEAN), phase="Bound", annotations=OURS),
        ],
        pod("x"),
        "delete claim db/other: it holds pv (10Gi), empty and used by no pod",
    ),
    "a volume kept for a claim that is not there": (
        [N1, storage_class(), claim("x"), volume("pv", claim_ref={"namespace": "db", "name": "never"})],
        pod("x"),
        "remove the claimRef of pv",
    ),
    "a binding that can be undone": (
        [
            N1, node("n2", spec={"unschedulable": True}), storage_class(), CLEAN,
            local_volume("free", "9Gi", "n1"),
            volume("pv", claim_ref=ref_to(CLEAN), phase="Bound", annotations=OURS, nodeAffinity=on_node("n2")),
        ],
        pod("other"),
        "undo the binding of db/other to pv, which is empty",
    ),
    "a smaller request": (
        [N1, storage_class(), claim("x", "12Gi"), local_volume("pv", "10Gi", "n1")],
        pod("x"),
        "recreate claim db/x for pv: ask for 10Gi instead of 12Gi",
    ),
    "a looser selector": (
        [
            N1, storage_class(), claim("x", selector={"matchLabels": {"tier": "ssd"}}),
            local_volume("pv", "10Gi", "n1", labels={"tier": "hdd"}),
        ],
        pod("x"),
        "recreate claim db/x for pv: drop tier from its selector",
    ),
    "other access modes": (
        [N1, storage_class(), claim("x", modes=("ReadWriteMany",)), local_volume("pv", "10Gi", "n1")],
        pod("x"),
        "ask for ReadWriteOnce instead of ReadWriteMany",
    ),
    "another class": (
        [N1, storage_class(), storage_class("slow"), claim("x"), local_volume("pv", "10Gi", "n1", cls="slow")],
        pod("x"),
        'ask for class "slow" instead of class "fast"',
    ),
    "more room": (
        [N1, dynamic_class(), driver(), capacity(size="5Gi"), claim("x", "8Gi", cls="dyn")],
        pod("x"),
        "raise the capacity of csi/cap for class dyn from 5Gi to 8Gi",
    ),
    "room for all claims of the pod": (
        [N1, dynamic_class(), driver(), capacity(size="10Gi"), claim("x", cls="dyn"), claim("y", cls="dyn")],
        pod("x", "y"),
        "raise the capacity of csi/cap for class dyn from 10Gi to 16Gi",
    ),
    "room that nobody published": (
        [in_zone("n1", "a"), dynamic_class(), driver(), claim("x", "8Gi", cls="dyn")],
        pod("x"),
        f"have driver csi.example.com publish room for 8Gi of class dyn in {ZONE}=a",
    ),
    "a topology that is not allowed": (
        [in_zone("n1", "c"), dynamic_class(topologies=[{ZONE: ["a", "b"]}]), claim("x", cls="dyn")],
        pod("x"),
        f'allow {ZONE}=c in allowedTopologies of StorageClass "dyn"',
    ),
    "a stale promise": (
        [N1, dynamic_class(), claim("x", cls="dyn", selected="gone")],
        pod("x"),
        'of claim db/x: it says node "gone", which does not exist',
    ),
    "a missing claim": (
        [N1, storage_class(), local_volume("pv", "10Gi", "n1")],
        pod("x"),
        'create PersistentVolumeClaim "db/x", for example 1Gi of class "fast"',
    ),
    "a missing class": (
        [N1, claim("x"), local_volume("pv", "10Gi", "n1")],
        pod("x"),
        'create StorageClass "fast" with volumeBindingMode WaitForFirstConsumer',
    ),
    "a volume that is gone": (
        [N1, storage_class(), claim("x", bound_to="gone")],
        pod("x"),
        'restore PersistentVolume "gone" (8Gi), with a claimRef to db/x and its uid',
    ),
    "a claim that does not wait for a pod": (
        [N1, storage_class(mode="Immediate"), claim("x")],
        pod("x"),
        'add a PersistentVolume of at least 8Gi (class "fast", ReadWriteOnce) on n1, for db/x',
    ),
    "a selector that cannot be read": (
        [N1, storage_class(), claim("x", selector={"matchExpressions": [{"key": "a", "operator": "Odd"}]})],
        pod("x"),
        "remove the selector of claim db/x",
    ),
    "a cordoned node": (
        [node("n1", spec={"unschedulable": True}), storage_class(), claim("x"), local_volume("pv", "10Gi", "n1")],
        pod("x"),
        "uncordon node n1",
    ),
    "a taint, tolerated": (
        [node("n1", spec={"taints": [{"key": "gpu", "effect": "NoSchedule"}]})],
        pod(),
        "let db/app tolerate gpu:NoSchedule",
    ),
    "a taint, removed": (
        [node("n1", spec={"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]})],
        pod(),
        "remove the taint gpu=yes:NoSchedule from node n1",
    ),
    "a node selector, done without": (
        [N1],
        replace(pod(), node_selector={"disk": "ssd"}),
        "drop nodeSelector disk=ssd from pod db/app",
    ),
    "a node selector, obeyed": ([N1], replace(pod(), node_selector={"disk": "ssd"}), "label node n1 disk=ssd"),
    "a pod in the way": (
        [
            N1, claim("x", modes=("ReadWriteOncePod",), bound_to="pv"), volume(phase="Bound"),
            pod("x", name="holder", on="n1"),
        ],
        pod("x"),
        "delete pod db/holder, or move it off node n1",
    ),
    "attach slots": (
        [
            N1, dynamic_class(), claim("x", cls="dyn"), csi_node("n1", csi_example_com=1),
            claim("held", bound_to="pv"), volume(phase="Bound"), pod("held", name="holder", on="n1"),
        ],
        pod("x"),
        "delete pod db/holder, or move it off node n1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_remedy_that_a_person_would_think_of_is_reported(case: str) -> None:
    objects, wanting, told = CASES[case]
    assert any(told in text for text in texts(remedies(objects, wanting)))


def test_resources_may_be_asked_for_less() -> None:
    small = node("n1", status={"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10"}})
    container = {"name": "main", "resources": {"requests": {"cpu": "3"}}}
    wanting = read("Pod", {"metadata": {"name": "app", "namespace": "db"}, "spec": {"containers": [container]}})
    assert texts(remedies([small], wanting)) == ["lower the requests of db/app: cpu to 2"]


def test_dirty_data_is_never_given_away() -> None:
    """Its claim may be unused, but nobody said that it is empty."""
    held = claim("other", bound_to="pv")
    objects = [N1, storage_class(), claim("x"), held, volume("pv", claim_ref=ref_to(held), phase="Bound")]
    assert not any("db/other" in text for text in texts(remedies(objects, pod("x"))))


def test_an_empty_volume_is_not_taken_from_a_pod_that_waits() -> None:
    held = volume("pv", claim_ref=ref_to(CLEAN), phase="Bound", annotations=OURS)
    objects = [N1, storage_class(), claim("x"), CLEAN, held]
    assert any("delete claim db/other" in text for text in texts(remedies(objects, pod("x"))))
    objects.append(pod("other", name="waiting"))
    assert not any("delete claim db/other" in text for text in texts(remedies(objects, pod("x"))))


def test_several_claims_are_answered_together_and_the_smallest_answer_is_first() -> None:
    objects = [
        in_zone("n1", "a"), in_zone("n2", "b"), storage_class(), claim("x", "8Gi"), claim("y", "9Gi"),
        local_volume("half", "8Gi", "n2"),
    ]  # fmt: skip
    first, *_ = texts(remedies(objects, pod("x", "y")))
    assert first == 'add a PersistentVolume of at least 9Gi (class "fast", ReadWriteOnce) on n2, for db/y'


def test_the_same_change_in_other_places_is_reported_once() -> None:
    objects = [*(node(f"n{i}") for i in range(4)), storage_class(), claim("x", "8Gi")]
    (only,) = remedies(objects, pod("x"))
    assert len(only.elsewhere) == 3


def test_what_part_of_a_remedy_would_do_is_not_told() -> None:
    objects = [N1, in_zone("n2", "b"), storage_class(), claim("x"), replace(node("n3"), unschedulable=True)]
    found = remedies([*objects, local_volume("pv", "10Gi", "n3")], pod("x"))
    assert "uncordon node n3" in texts(found)
    assert not any(text.count("uncordon node n3") and "&" in text for text in texts(found))
