"""Rules about what was left behind: owners, promises to nodes, returned volumes, avoided nodes."""

from typing import Any

import pytest

from volsched.kube.meta import ROLLBACK, SELECTED_NODE
from volsched.log.events.fold import BindingState, LegState, ObjectState, State
from volsched.log.events.streams import ObjectLife
from volsched.pv_controller.rules.rollback import ReleaseRefusedError, return_volume
from volsched.questions.audit.orphans import find_orphans
from volsched.scheduling.rules.failure_memory import NODE_REJECTED, REJECTED_NODES, nodes_to_avoid
from volsched.workloads.rules.ownership import is_orphan
from volsched.workloads.rules.repairs import gone_since, is_volume_for, promised_node

Manifest = dict[str, Any]
NOW = "2026-11-16T12:00:00Z"


def living(manifest: Manifest, rv: int = 1) -> ObjectState:
    return ObjectState(1, rv, manifest)


# --- owners ---------------------------------------------------------------------------------------------

POD = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u1", "controller": True}
THERE: dict[str, State] = {"pod/shop/p": living({"metadata": {"uid": "u1"}})}
ANEW: dict[str, State] = {"pod/shop/p": living({"metadata": {"uid": "u2"}})}
ELSEWHERE: dict[str, State] = {"pod/other/p": living({"metadata": {"uid": "u1"}})}


@pytest.mark.parametrize(
    ("references", "states", "orphan"),
    [
        ([POD], {}, True),
        ([POD], THERE, False),
        ([POD], ANEW, True),
        ([POD], ELSEWHERE, True),
        ([POD], {"pod/shop/p": ObjectState(2, 2)}, True),
        ([{**POD, "controller": False}], {}, False),
        ([{key: value for key, value in POD.items() if key != "controller"}], {}, False),
        ([{**POD, "kind": "ReplicaSet", "apiVersion": "apps/v1"}], {}, False),
        ([{**POD, "apiVersion": "v9"}], {}, False),
        ([{**POD, "uid": ""}], {}, False),
        ([POD, {**POD, "kind": "Job", "apiVersion": "batch/v1", "controller": False}], {}, False),
        ([{**POD, "controller": False}, {**POD, "name": "q", "uid": "u9"}], THERE, False),
        ([], {}, False),
        (None, {}, False),
        ("nonsense", {}, False),
        (["nonsense"], {}, False),
    ],
    ids=[
        "gone", "there", "another uid", "another namespace", "deleted in this batch", "not a controller",
        "does not say", "unknown kind", "unknown version", "no uid", "a second owner unknown",
        "a second owner there", "none", "absent", "not a list", "not references",
    ],
)  # fmt: skip
def test_what_has_lost_its_owner(references: Any, states: dict[str, State], orphan: bool) -> None:
    manifest = {"metadata": {"name": "c", "namespace": "shop"}}
    if references is not None:
        manifest["metadata"]["ownerReferences"] = references
    assert is_orphan(manifest, states) is orphan


# --- promises to nodes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lives", "since"),
    [
        ([], 50),
        ([ObjectLife("a", 1)], None),
        ([ObjectLife("a", 1, 70)], 70),
        ([ObjectLife("a", 1, 70), ObjectLife("b", 12)], 70),
        ([ObjectLife("a", 1, 30), ObjectLife("b", 5)], None),
        ([ObjectLife("a", 1, 30), ObjectLife("b", 5, 80), ObjectLife("c", 20)], 80),
        ([ObjectLife("b", 12)], 50),
    ],
    ids=[
        "never was",
        "lives",
        "gone",
        "anew since",
        "promised to the second",
        "the third is not meant",
        "made after",
    ],
)
def test_since_when_the_promised_node_is_gone(lives: list[ObjectLife], since: int | None) -> None:
    assert gone_since(lives, promised=10, promised_at=50) == since


@pytest.mark.parametrize(
    ("change", "node"),
    [
        ({}, "n"),
        ({"spec": {"volumeName": "pv"}}, None),
        ({"metadata": {"annotations": {}}}, None),
        ({"metadata": {"annotations": {SELECTED_NODE: "n"}, "deletionTimestamp": NOW}}, None),
        ({"metadata": {"annotations": {SELECTED_NODE: "n", ROLLBACK: "u"}}}, None),
        ({"metadata": {"annotations": {SELECTED_NODE: ""}}}, ""),
    ],
    ids=["open", "has a volume", "none", "being deleted", "being rolled back", "to no node"],
)
def test_which_promises_are_open(change: Manifest, node: str | None) -> None:
    assert promised_node({"metadata": {"annotations": {SELECTED_NODE: "n"}}, "spec": {}, **change}) == node


@pytest.mark.parametrize(
    ("name", "ref", "made"),
    [
        ("pvc-u1", None, True),
        ("pvc-u2", None, False),
        ("own", {"namespace": "shop", "name": "data", "uid": "u1"}, True),
        ("own", {"namespace": "shop", "name": "data"}, True),
        ("own", {"namespace": "shop", "name": "data", "uid": "u2"}, False),
        ("own", {"namespace": "else", "name": "data"}, False),
    ],
)
def test_which_volumes_stand_for_the_claim(name: str, ref: Manifest | None, made: bool) -> None:
    claim = {"metadata": {"namespace": "shop", "name": "data", "uid": "u1"}, "spec": {}}
    volume = {"metadata": {"name": name}, "spec": {} if ref is None else {"claimRef": ref}}
    assert is_volume_for(volume, claim) is made


# --- nodes that rejected a pod --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("created", "node_rv", "avoided"),
    [
        ("2026-11-16T11:00:00Z", 5, {"n"}),
        ("2026-11-16T11:59:00Z", 5, {"n"}),
        ("2026-11-16T11:59:30Z", 5, set()),
        ("2026-11-16T11:00:00Z", 11, set()),
    ],
    ids=["older", "in the same second", "made since", "written since"],
)
def test_a_rejection_does_not_outlive_the_node(created: str, node_rv: int, avoided: set[str]) -> None:
    conditions = [{"reason": NODE_REJECTED, "lastTransitionTime": "2026-11-16T11:59:00Z"}]
    pod = {"metadata": {"annotations": {REJECTED_NODES: "n"}}, "status": {"conditions": conditions}}
    states = {
        "pod/a": living(pod, rv=10),
        "node/n": living({"metadata": {"creationTimestamp": created}}, rv=node_rv),
    }
    assert nodes_to_avoid("a", states, since="2026-11-16T11:58:00Z") == avoided


# --- returning a volume ---------------------------------------------------------------------------------

REF = {"namespace": "shop", "name": "data", "uid": "u1"}


def a_volume(phase: str = "Released", policy: str = "Retain", **metadata: Any) -> Manifest:
    return {
        "metadata": {"name": "pv", "uid": "v1", **metadata},
        "spec": {"persistentVolumeReclaimPolicy": policy, "claimRef": REF},
        "status": {"phase": phase},
    }


def a_claim(uid: str) -> dict[str, State]:
    return {"claim/shop/data": living({"metadata": {"uid": uid}})}


def a_binding(*, open_: bool = True, **leg: Any) -> dict[str, State]:
    legs = (LegState(**{"claim": "shop/x", "volume": None, "owner": True, **leg}),)
    return {"binding/b": BindingState(1, {"pod": "shop/p"}, 0, open=open_, legs=legs)}


@pytest.mark.parametrize(
    ("volume", "around", "refusal"),
    [
        (a_volume(), {}, None),
        (a_volume("Failed"), {}, None),
        (a_volume(), a_claim("u2"), None),
        (a_volume(), a_claim("u1"), "still exists"),
        (a_volume("Bound"), {}, "is Bound"),
        (a_volume("Available"), {}, "is Available; only"),
        (a_volume("Pending"), {}, "is Pending; only"),
        (a_volume(policy="Delete"), {}, "reclaim policy Delete"),
        (a_volume(policy="Recycle"), {}, "reclaim policy Recycle"),
        (a_volume(deletionTimestamp=NOW), {}, "is being deleted"),
        (a_volume(), a_binding(volume="pv"), "open binding b of pod shop/p"),
        (a_volume(), a_binding(claim_uid="u1"), "open binding b"),
        (a_volume(), a_binding(volume="pv", open=False), None),
        (a_volume(), a_binding(volume="pv", open_=False), None),
        (a_volume(), a_binding(volume="another"), None),
    ],
)
def test_which_volumes_may_be_returned(volume: Manifest, around: dict[str, State], refusal: str | None) -> None:
    states = {"volume/pv": living(volume), **around}
    if refusal is None:
        changed, notice = return_volume("pv", states, reason="wiped", by="ann", now=NOW)
        assert changed.data["reason"] == "wiped"
        assert "by ann: wiped (it held the data of shop/data with uid u1)" in notice.data["patch"]["message"]
    else:
        with pytest.raises(ReleaseRefusedError, match=refusal):
            return_volume("pv", states, reason="wiped", by="ann", now=NOW)


def test_a_volume_that_is_not_there_cannot_be_returned() -> None:
    with pytest.raises(ReleaseRefusedError, match="does not exist"):
        return_volume("pv", {}, reason="wiped", by="ann", now=NOW)


# --- orphans --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("older_than", "at", "listed"),
    [(0, 90, True), (10, 90, True), (11, 90, False), (11, None, True), (0, 200, True)],
    ids=["no limit", "old enough", "too young", "nobody knows", "a clock that is ahead"],
)
def test_released_volumes_are_listed_by_age(older_than: int, at: int | None, listed: bool) -> None:
    states: dict[str, State] = {"volume/pv": living(a_volume()), "node/n": living({"metadata": {"name": "n"}})}
    times = {} if at is None else {"volume/pv": at}
    found = find_orphans(states, released_at=times, now=100, older_than=older_than)
    assert [it.kind for it in found] == (["released"] if listed else [])
