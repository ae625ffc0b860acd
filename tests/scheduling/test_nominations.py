"""Pods that some scheduler is about to place: their resources and attach slots are taken already."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.objects import claim, csi_node, node, pod, ref_to, volume
from volsched.kube.meta import HOSTNAME
from volsched.kube.object_values import Object
from volsched.kube.workloads import Pod
from volsched.scheduling.index import Index
from volsched.scheduling.queue.object_changes import Aspect, ObjectChange, aspects_of
from volsched.scheduling.rules.cycle import attempt
from volsched.scheduling.rules.profile import VOLSCHED
from volsched.scheduling.rules.snapshot import snapshot_of

DISK = "csi.example.com"


def nominated(name: str, where: str, *claims: str, priority: int = 0, **spec: Any) -> Pod:
    return replace(pod(*claims, name=name, **spec), nominated_node=where, priority=priority)


def wanting(cpu: str) -> dict[str, Any]:
    return {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}


def disk(name: str) -> tuple[Object, Object]:
    """A bound claim and its volume, which every node may attach."""
    held = claim(name, bound_to=name)
    return held, volume(name, csi={"driver": DISK, "volumeHandle": name}, claim_ref=ref_to(held), phase="Bound")


def fits(asking: Pod, *objects: Object) -> list[str]:
    """By the rules and by the index, which must agree, and which must be as before afterwards."""
    index, by_rules = Index(objects), attempt(snapshot_of(objects), asking, profile=VOLSCHED)
    for _ in range(2):
        found = index.roll_call(asking, ["n1", "n2"]).verdicts
        assert {name for name, it in found.items() if it.status.passed} == {it.node for it in by_rules.fitting}
    assert index.snapshot.pods == snapshot_of(objects).pods
    return sorted(it.node for it in by_rules.fitting)


TWO_NODES = tuple(node(name, status={"allocatable": {"cpu": "4"}}) for name in ("n1", "n2"))


@pytest.mark.parametrize(
    ("other", "found"),
    [
        (nominated("theirs", "n1", **wanting("3")), ["n2"]),
        (nominated("theirs", "n1", **wanting("3"), priority=1), ["n2"]),
        (nominated("theirs", "n1", **wanting("3"), priority=-1), ["n1", "n2"]),
        (nominated("theirs", "n1", **wanting("1")), ["n1", "n2"]),
        (nominated("theirs", "gone", **wanting("3")), ["n1", "n2"]),
        (nominated("app", "n1", **wanting("3")), ["n1", "n2"]),
        (nominated("theirs", "n1", **wanting("3"), phase="Failed"), ["n1", "n2"]),
        # Placed elsewhere than nominated: it counts where it is.
        (nominated("theirs", "n1", **wanting("3"), on="n2"), ["n1"]),
    ],
)
def test_a_nominated_pod_of_the_same_or_a_higher_priority_has_its_room(other: Pod, found: list[str]) -> None:
    assert fits(pod(name="app", **wanting("2")), *TWO_NODES, other) == found


def test_a_nominated_pod_has_its_attach_slots() -> None:
    objects = (*TWO_NODES, *(csi_node(it, csi_example_com=1) for it in ("n1", "n2")), *disk("a"), *disk("b"))
    assert fits(pod("b", name="app"), *objects, nominated("theirs", "n2", "a")) == ["n1"]


def test_nobody_is_near_to_a_pod_that_is_not_there_yet() -> None:
    """It may still be placed elsewhere."""
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": HOSTNAME}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    asking, nodes = pod(name="app", affinity=near), [node(it, labels={HOSTNAME: it}) for it in ("n1", "n2")]
    assert fits(asking, *nodes, nominated("theirs", "n1", labels={"app": "db"})) == []
    assert fits(asking, *nodes, pod(name="theirs", on="n1", labels={"app": "db"})) == ["n1"]


@pytest.mark.parametrize(
    ("after", "aspects"),
    [
        (None, {Aspect.POD_LEFT}),
        (nominated("theirs", ""), {Aspect.POD_LEFT}),
        (nominated("theirs", "n2"), {Aspect.POD_LEFT}),
        (nominated("theirs", "n1", phase="Failed"), {Aspect.POD_LEFT}),
        (nominated("theirs", "n1", on="n2"), {Aspect.POD_LEFT, Aspect.POD_PLACED}),
        (nominated("theirs", "n1", on="n1"), {Aspect.POD_PLACED}),
        (nominated("theirs", "n1", labels={"a": "b"}), set()),
    ],
)
def test_a_seat_that_is_given_up_wakes_pods_that_wait_for_room(after: Pod | None, aspects: set[Aspect]) -> None:
    assert aspects_of(ObjectChange(nominated("theirs", "n1"), after)) == aspects
