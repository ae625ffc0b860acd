"""Planning a binding: what is assumed is what was reserved, and a plan that is out of date does nothing."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.binding.rule_scenes import (
    BINDING,
    CLAIM,
    CLAIM_STREAM,
    CLAIM_UID,
    NODE,
    NODE_STREAM,
    POD,
    POD_STREAM,
    POD_UID,
    RV,
    VOLUME,
    VOLUME_STREAM,
    B,
    Scene,
    binding_of,
    bound,
    changed,
    claim_manifest,
    claim_ref,
    folded,
    held,
    manifest_at,
    node_manifest,
    pod_manifest,
    volume_manifest,
    without,
)
from tests.support.objects import read
from volsched.binding.rules.plan import Plan, PlannedLeg, plan
from volsched.kube.manifest import bind_volume
from volsched.kube.meta import BINDING_STAMP, BOUND_BY_CONTROLLER, SELECTED_NODE
from volsched.kube.patches import merged
from volsched.kube.storage import Claim, Volume
from volsched.log.commands import ConflictError
from volsched.log.events.fold import ObjectState
from volsched.scheduling.rules.claim_plan import StaticBinding
from volsched.scheduling.rules.dynamic_volumes import PlannedVolume
from volsched.scheduling.rules.profile import VOLSCHED
from volsched.scheduling.rules.snapshot import Overlay, Snapshot
from volsched.scheduling.rules.volume_filter import NodeAnswer, assume_pod_volumes

STATIC = PlannedLeg(claim=CLAIM, claim_uid=CLAIM_UID, volume=VOLUME, rv=str(RV))
DYNAMIC = PlannedLeg(claim=CLAIM, claim_uid=CLAIM_UID, volume=None, rv=str(RV), capacity="csi/cap", bytes=8)
JOINED = PlannedLeg(claim=CLAIM, claim_uid=CLAIM_UID, volume=None, rv="", joins="b0")
DELETED = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}


def request(*legs: PlannedLeg, **kw: Any) -> Plan:
    return Plan(
        binding=B, pod=POD, pod_uid=POD_UID, node=NODE, legs=legs, decided_at=RV, deadline=600, **kw
    )  # fmt: skip


def objects() -> Scene:
    return {
        POD_STREAM: held(pod_manifest()), NODE_STREAM: held(node_manifest()),
        CLAIM_STREAM: held(claim_manifest()), VOLUME_STREAM: held(volume_manifest()),
    }  # fmt: skip


def assumed(states: Scene, stream: str) -> Mapping[str, Any]:
    """The object with its assumption, which must be one that counts; a pod is also written to be nominated."""
    state = states[stream]
    assert isinstance(state, ObjectState)
    assert state.assumed is not None
    assert (state.assumed.binding, state.assumed.rv) == (B, RV if stream == POD_STREAM else state.rv)
    return merged(state.manifest or {}, state.assumed.patch)


def volume_of(manifest: Mapping[str, Any]) -> Volume:
    found: Volume = read("PersistentVolume", dict(manifest))
    return found


def claim_of(manifest: Mapping[str, Any]) -> Claim:
    found: Claim = read("PersistentVolumeClaim", dict(manifest))
    return found


def without_claim_version(volume: Volume) -> Volume:
    """A claimRef also says at which version the claim was; plans do not carry it, and nothing reads it."""
    ref = volume.claim_ref
    return volume if ref is None else replace(volume, claim_ref=replace(ref, resource_version=""))


# What a plan does -------------------------------------------------------------------------------------
def test_a_static_leg_is_planned_assumed_and_queued_as_one_decision() -> None:
    decision = plan(request(STATIC), objects())
    assert [(event.stream, event.type) for event in decision.events] == [
        (BINDING, "BindingPlanned"), (VOLUME_STREAM, "VolumeAssumed"), (POD_STREAM, "PodAssumed"),
        (POD_STREAM, "PodChanged"),
    ]  # fmt: skip
    assert [(effect.key, effect.lane, effect.queue) for effect in decision.effects] == [
        (f"{B}/0/prebind", f"{B}/0", "prebind")
    ]
    assert decision.effects[0].data == {"leg": 0, "streams": (CLAIM_STREAM, VOLUME_STREAM)}


def test_a_leg_to_provision_assumes_the_claim_and_keeps_what_it_reserved_of_the_capacity() -> None:
    decision = plan(request(DYNAMIC), objects())
    assert [event.type for event in decision.events] == [
        "BindingPlanned", "ClaimAssumed", "PodAssumed", "PodChanged",
    ]  # fmt: skip
    assert [effect.kind for effect in decision.effects] == ["annotate"]
    leg = binding_of(folded(objects(), decision)).legs[0]
    assert (leg.dynamic, leg.volume, leg.capacity, leg.bytes) == (True, None, "csi/cap", 8)


def test_a_joined_leg_assumes_and_queues_nothing() -> None:
    decision = plan(request(JOINED), objects())
    assert [event.type for event in decision.events] == ["BindingPlanned", "PodAssumed", "PodChanged"]
    assert decision.effects == ()
    leg = binding_of(folded(objects(), decision)).legs[0]
    assert (leg.owner, leg.state, leg.joins) == (False, "joined", "b0")


@pytest.mark.parametrize("leg", [STATIC, DYNAMIC, JOINED])
def test_a_pod_is_nominated_while_its_volumes_are_bound(leg: PlannedLeg) -> None:
    pod = manifest_at(folded(objects(), plan(request(leg), objects())), POD_STREAM)
    assert pod["status"]["nominatedNodeName"] == NODE


def test_a_reservation_nominates_nobody_nor_does_what_lives_elsewhere() -> None:
    foreign = changed(objects(), POD_STREAM, {"metadata": {"resourceVersion": "42"}})
    for asked, states in ((request(DYNAMIC, reserved=True), objects()), (request(DYNAMIC), foreign)):
        assert "PodChanged" not in [event.type for event in plan(asked, states).events]


def test_a_pod_whose_claims_are_all_bound_goes_straight_to_its_node() -> None:
    decision = plan(request(), objects())
    assert [event.type for event in decision.events] == ["BindingPlanned", "PodAssumed", "BindingMoved"]
    assert [effect.kind for effect in decision.effects] == ["bind_pod"]
    assert binding_of(folded(objects(), decision)).state == "committing"


def test_a_plan_says_what_it_was_made_on_until_when_and_what_to_do_if_it_fails() -> None:
    state = binding_of(folded(objects(), plan(request(STATIC, on_failure="retain"), objects())))
    wanted = {
        "pod": POD,
        "pod_uid": POD_UID,
        "node": NODE,
        "decided_at": RV,
        "deadline": 600,
        "on_failure": "retain",
    }
    assert {name: state.plan[name] for name in wanted} == wanted
    assert (state.legs[0].rv, state.legs[0].claim_uid) == (str(RV), CLAIM_UID)


def test_the_version_in_a_plan_is_the_clusters_and_the_one_of_the_assumption_is_ours() -> None:
    states = changed(objects(), VOLUME_STREAM, {"metadata": {"resourceVersion": "42"}})
    decision = plan(request(replace(STATIC, rv="42")), states)
    assert decision.events[1].data["rv"] == RV + 1
    with pytest.raises(ConflictError):
        plan(request(replace(STATIC, rv=str(RV + 1))), states)


def test_a_command_may_touch_the_streams_that_the_plan_names_and_no_others() -> None:
    for legs in ((), (STATIC,), (DYNAMIC,), (JOINED,), (STATIC, DYNAMIC)):
        asked = request(*legs)
        assert {event.stream for event in plan(asked, objects()).events} <= set(asked.streams)


# What is assumed is what was reserved ------------------------------------------------------------------
FOUND: dict[str, Mapping[str, Any]] = {
    "a free volume": {},
    "a volume reserved by name": {"spec": {"claimRef": claim_ref(None)}},
    "a volume that names the claim completely": {"spec": {"claimRef": claim_ref()}},
    "a volume freed by halves, its mark left on": {"metadata": {"annotations": {BOUND_BY_CONTROLLER: "yes"}}},
    "a volume of a claim of the same name that is gone": {"spec": {"claimRef": claim_ref("uid-before")}},
}


@pytest.mark.parametrize("what", FOUND)
def test_the_assumed_volume_is_the_one_that_binding_it_gives(what: str) -> None:
    states = changed(objects(), VOLUME_STREAM, FOUND[what])
    after = folded(states, plan(request(replace(STATIC, rv=str(RV + 1))), states))
    volume = volume_of(manifest_at(states, VOLUME_STREAM))
    wanted, _ = bind_volume(volume, claim_of(manifest_at(states, CLAIM_STREAM)))
    assert without_claim_version(volume_of(assumed(after, VOLUME_STREAM))) == without_claim_version(wanted)


def test_the_assumption_does_not_stamp_the_volume() -> None:
    after = folded(objects(), plan(request(STATIC), objects()))
    assert BINDING_STAMP not in assumed(after, VOLUME_STREAM)["metadata"]["annotations"]


def test_the_scheduler_that_reads_the_assumptions_sees_what_it_reserved() -> None:
    """The same decision, once laid over a snapshot by Reserve and once over the log by a plan."""
    other = {**claim_manifest(), "metadata": {"name": "logs", "namespace": "db", "uid": "uid-logs"}}
    states: Scene = {**objects(), "claim/db/logs": held(other)}
    volume, data, logs = volume_of(volume_manifest()), claim_of(claim_manifest()), claim_of(other)
    mounts = [
        {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("data", "logs")
    ]  # fmt: skip
    pod = read("Pod", {**pod_manifest(), "spec": {"volumes": mounts}})
    node = read("Node", node_manifest())
    snapshot = Snapshot(
        stored_volumes={volume.key: volume},
        stored_claims={data.key: data, logs.key: logs},
        assumed_volumes=Overlay({}),
        assumed_claims=Overlay({}),
    )
    answer = NodeAnswer(bindings=(StaticBinding(data, volume),), provisions=(PlannedVolume(logs, None),))
    _, reservation = assume_pod_volumes(snapshot, pod, node, answer, profile=VOLSCHED)
    legs = (STATIC, PlannedLeg(claim="db/logs", claim_uid="uid-logs", volume=None, rv=str(RV)))
    after = folded(states, plan(request(*legs), states))
    assert [without_claim_version(it.volume) for it in reservation.volumes] == [
        without_claim_version(volume_of(assumed(after, VOLUME_STREAM)))
    ]
    assert list(reservation.claims) == [claim_of(assumed(after, "claim/db/logs"))]
    assert assumed(after, "claim/db/logs")["metadata"]["annotations"] == {SELECTED_NODE: NODE}
    assert assumed(after, POD_STREAM)["spec"]["nodeName"] == NODE


# Conflicts --------------------------------------------------------------------------------------------
CONFLICTS: dict[str, tuple[PlannedLeg, Callable[[Scene], Scene], str]] = {
    "the pod is gone": (STATIC, lambda s: without(s, POD_STREAM), "pod"),
    "the pod was recreated": (STATIC, lambda s: changed(s, POD_STREAM, {"metadata": {"uid": "x"}}), "uid"),
    "the pod is being deleted": (STATIC, lambda s: changed(s, POD_STREAM, DELETED), "is gone"),
    "the pod has a node": (STATIC, lambda s: changed(s, POD_STREAM, {"spec": {"nodeName": "n2"}}), 'node "n2"'),
    "the node is gone": (STATIC, lambda s: without(s, NODE_STREAM), 'node "n1" is gone'),
    "the claim is gone": (STATIC, lambda s: without(s, CLAIM_STREAM), "claim"),
    "the claim was recreated": (STATIC, lambda s: changed(s, CLAIM_STREAM, {"metadata": {"uid": "x"}}), "claim"),
    "the claim is bound": (STATIC, bound, "bound meanwhile"),
    "the claim of a joined leg is bound": (JOINED, bound, "bound meanwhile"),
    "the claim of a joined leg is gone": (JOINED, lambda s: without(s, CLAIM_STREAM), "claim"),
    "the volume is gone": (STATIC, lambda s: without(s, VOLUME_STREAM), "version"),
    "the volume has changed": (STATIC, lambda s: changed(s, VOLUME_STREAM, {"status": {"phase": "x"}}), "version"),
    "the claim to provision has changed": (
        DYNAMIC, lambda s: changed(s, CLAIM_STREAM, {"status": {"phase": "x"}}), "version",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CONFLICTS)
def test_a_plan_that_is_out_of_date_is_refused_and_assumes_nothing(what: str) -> None:
    leg, change, text = CONFLICTS[what]
    assert plan(request(leg), objects()).events
    states = change(objects())
    before = dict(states)
    with pytest.raises(ConflictError, match=text):
        plan(request(leg), states)
    assert states == before


def test_the_claim_of_a_static_leg_may_change_as_long_as_it_is_the_same_and_unbound() -> None:
    states = changed(objects(), CLAIM_STREAM, {"metadata": {"labels": {"a": "b"}}})
    assert plan(request(STATIC), states).events


def test_one_bad_leg_refuses_the_whole_plan() -> None:
    bad = PlannedLeg(claim="db/gone", claim_uid="uid-gone", volume=None, rv="1")
    with pytest.raises(ConflictError, match="db/gone"):
        plan(request(STATIC, bad), objects())
