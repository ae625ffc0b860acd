"""A binding and the objects around it, as the pure rules see them: states of streams, without a store.

A scene is a plain dict of states: a test changes what it is about, with `changed` and `without`, and nothing else.
"""

from collections.abc import Mapping
from typing import Any

from volsched.kube.meta import BIND_COMPLETED, BINDING_STAMP, BOUND_BY_CONTROLLER, HOSTNAME, SELECTED_NODE
from volsched.kube.patches import merged
from volsched.log.events.fold import Assumed, BindingState, Decision, LegState, ObjectState, State, States, evolve

B = "b1"
POD, NODE, CLAIM, VOLUME = "db/app", "n1", "db/data", "pv"
POD_UID, CLAIM_UID = "uid-app", "uid-data"
BINDING, POD_STREAM, NODE_STREAM = f"binding/{B}", f"pod/{POD}", f"node/{NODE}"
CLAIM_STREAM, VOLUME_STREAM = f"claim/{CLAIM}", f"volume/{VOLUME}"
DEADLINE = 600_000_000
RV = 7
"""The version of every object in a fresh scene, and so of the plan."""

Patch = Mapping[str, Any]
Scene = dict[str, State]


def on_host(host: str) -> dict[str, Any]:
    match = {"key": HOSTNAME, "operator": "In", "values": [host]}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [match]}]}}


def volume_manifest(name: str = VOLUME, *, host: str = NODE) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {
            "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "local": {"path": "/mnt"}, "nodeAffinity": on_host(host),
        },
        "status": {"phase": "Available"},
    }  # fmt: skip


def claim_manifest() -> dict[str, Any]:
    return {
        "metadata": {"name": "data", "namespace": "db", "uid": CLAIM_UID},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast"},
        "status": {"phase": "Pending"},
    }


def pod_manifest() -> dict[str, Any]:
    return {"metadata": {"name": "app", "namespace": "db", "uid": POD_UID}, "spec": {}}


def node_manifest() -> dict[str, Any]:
    return {"metadata": {"name": NODE, "labels": {HOSTNAME: NODE}}}


def held(manifest: dict[str, Any], *, assumed: bool = False) -> ObjectState:
    return ObjectState(version=1, rv=RV, manifest=manifest, assumed=Assumed(B, {}, RV) if assumed else None)


def binding_state(*legs: LegState, phase: str = "prebinding", on_failure: str = "rollback") -> BindingState:
    plan = {
        "pod": POD, "pod_uid": POD_UID, "node": NODE, "decided_at": RV, "deadline": DEADLINE,
        "on_failure": on_failure,
    }  # fmt: skip
    is_open = phase not in ("committed", "rolled-back")
    reason = "it failed" if phase in ("compensating", "rolled-back") else None
    return BindingState(
        version=1, plan=plan, planned_at=0, state=phase, open=is_open, reason=reason, legs=tuple(legs)
    )


def static_leg(phase: str = "assumed", **kw: Any) -> LegState:
    return LegState(claim=CLAIM, volume=VOLUME, owner=True, state=phase, claim_uid=CLAIM_UID, rv=str(RV), **kw)


def dynamic_leg(phase: str = "assumed", **kw: Any) -> LegState:
    return static_leg(phase, **kw)._replace(volume=None, dynamic=True)


def joined_leg(phase: str = "joined", *, joins: str = "b0", volume: str | None = None) -> LegState:
    leg = LegState(claim=CLAIM, volume=volume, owner=False, state=phase, claim_uid=CLAIM_UID, joins=joins)
    return leg._replace(dynamic=volume is None)


def scene(binding: BindingState) -> Scene:
    """Everything there, nothing written yet; the first leg's object and the pod are assumed."""
    dynamic = bool(binding.legs) and binding.legs[0].dynamic
    return {
        BINDING: binding,
        POD_STREAM: held(pod_manifest(), assumed=True),
        NODE_STREAM: held(node_manifest()),
        CLAIM_STREAM: held(claim_manifest(), assumed=dynamic),
        VOLUME_STREAM: held(volume_manifest(), assumed=not dynamic),
    }


def changed(states: States, stream: str, patch: Patch) -> Scene:
    """The object with the patch, at a newer version; its assumption stays, as in the fold."""
    state = states[stream]
    assert isinstance(state, ObjectState)
    return {**states, stream: state._replace(rv=state.rv + 1, manifest=merged(state.manifest or {}, patch))}


def without(states: States, stream: str) -> Scene:
    return {name: state for name, state in states.items() if name != stream}


def notes(**annotations: str | None) -> Patch:
    return {"metadata": {"annotations": annotations}}


def marked(patch: Patch, annotations: Mapping[str, str | None]) -> dict[str, Any]:
    return {**patch, "metadata": {"annotations": dict(annotations)}}


def claim_ref(uid: str | None = CLAIM_UID, name: str = "data") -> dict[str, Any]:
    reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "db", "name": name}
    return reference if uid is None else {**reference, "uid": uid}


def prebound(states: States, *, stamp: str | None = B, by_controller: bool = True, uid: str = CLAIM_UID) -> Scene:
    """The volume as our prebind writes it."""
    annotations = {BOUND_BY_CONTROLLER: "yes"} if by_controller else {}
    if stamp is not None:
        annotations[BINDING_STAMP] = stamp
    return changed(states, VOLUME_STREAM, marked({"spec": {"claimRef": claim_ref(uid)}}, annotations))


def selected(states: States, node: str = NODE, *, stamp: str | None = B) -> Scene:
    """The claim as our annotate writes it."""
    annotations = {SELECTED_NODE: node} | ({} if stamp is None else {BINDING_STAMP: stamp})
    return changed(states, CLAIM_STREAM, marked({}, annotations))


def bound(states: States, volume: str = VOLUME, *, data_state: str | None = "Clean") -> Scene:
    """The claim as the PV controller completes it."""
    spec_and_notes = marked({"spec": {"volumeName": volume}}, {BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"})
    status = {"phase": "Bound"} | ({} if data_state is None else {"dataState": data_state})
    return changed(states, CLAIM_STREAM, {**spec_and_notes, "status": status})


def provisioned(states: States, name: str = "pvc-1", *, host: str = NODE) -> Scene:
    """A volume made for the claim."""
    manifest = merged(volume_manifest(name, host=host), {"spec": {"claimRef": claim_ref()}})
    return {**states, f"volume/{name}": held(manifest)}


def written(states: States, leg: LegState) -> Scene:
    return selected(states) if leg.dynamic else prebound(states)


def completed(states: States, leg: LegState) -> Scene:
    return bound(provisioned(states), "pvc-1") if leg.dynamic else bound(states)


def folded(states: States, decision: Decision) -> Scene:
    """What the streams become with the decision's events."""
    result: Scene = dict(states)
    for event in decision.events:
        state = result.get(event.stream)
        version = 1 if state is None else state.version + 1
        result[event.stream] = evolve(
            state, type_=event.type, version=version, position=100 + version, at=5, data=event.data
        )
    return result


def binding_of(states: States) -> BindingState:
    state = states[BINDING]
    assert isinstance(state, BindingState)
    return state


def manifest_at(states: States, stream: str) -> Mapping[str, Any]:
    state = states[stream]
    assert isinstance(state, ObjectState)
    assert state.manifest is not None
    return state.manifest
