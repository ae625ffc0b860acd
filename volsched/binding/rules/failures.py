"""A failed decision: the report on the pod, the stored record, and the claims that get a rollback request."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from volsched.binding.rules.foreign_notice import notice_effect
from volsched.binding.rules.reasons import BINDING_VOLUMES, CHANGED, NOT_FOUND, object_modified, object_not_found
from volsched.binding.rules.saga import Stage
from volsched.kube.manifest import is_being_deleted, spec, uid
from volsched.kube.meta import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    PROVISIONED_BY,
    PV_CONTROLLER_FINALIZER,
    SELECTED_NODE_KEYS,
)
from volsched.kube.storage import AVAILABLE, Claim, Volume
from volsched.kube.workloads import TERMINATED, Pod
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import (
    AttemptState,
    BindingState,
    LegState,
    NewEffect,
    States,
    living,
    origin_version,
    pod_stream,
)
from volsched.objects.rules.object_events import changed_event, notice_event, notice_stream
from volsched.pv_controller.rules.rollback import rollback_refusal
from volsched.scheduling.rules.attempts import FAILED_SCHEDULING, SCHEDULER_ERROR, refused_conditions
from volsched.scheduling.rules.pod_claims import claim_uses, is_fully_bound
from volsched.scheduling.rules.reasons import NO_VOLUME_TO_BIND, NODE_AFFINITY_MISMATCH, NOT_ENOUGH_SPACE
from volsched.scheduling.rules.snapshot import Snapshot

# The reference writes its objects, waits, and reports a failure in the pod's condition and in an event. Our
# binding's reason is translated to the reference's message and stored with the attempt that chose the node,
# together with the failed leg and the provisioner's message.

PLUGINS = {"PreBind": "VolumeBinding", "Bind": "DefaultBinder"}
MOST_CHARACTERS = 1024
"""Maximum length of a message on a pod; the reference truncates there."""
CUT = " ..."


@dataclass(frozen=True, slots=True)
class BindingFailure:
    binding: str
    state: BindingState
    stage: Stage
    reason: str
    """The binding's reason, before it is translated."""
    index: int | None = None

    @property
    def leg(self) -> LegState | None:
        return None if self.index is None else self.state.legs[self.index]

    @property
    def message(self) -> str:
        """The message in kube-scheduler's words."""
        said = f'running {self.stage} plugin "{PLUGINS[self.stage]}": {_as_reference(self.reason, self.leg)}'
        return said if len(said) <= MOST_CHARACTERS else said[: MOST_CHARACTERS - len(CUT)] + CUT

    @property
    def attempt(self) -> str:
        """The attempt's stream: a plan and its attempt share one id."""
        return f"attempt/{self.binding}"

    @property
    def notice(self) -> str:
        plan = self.state.plan
        return notice_stream("Pod", plan["pod"], plan["pod_uid"], FAILED_SCHEDULING, self.message)

    @property
    def streams(self) -> tuple[str, ...]:
        return (pod_stream(self.state), self.attempt, self.notice)


def failure_event(failure: BindingFailure, states: States, *, words: str | None) -> NewEvent | None:
    """The failure to store with the attempt, if an attempt chose the node. `words`: the provisioner's message."""
    if not isinstance(states.get(failure.attempt), AttemptState):
        return None
    leg = failure.leg
    about = {} if leg is None else {"claim": leg.claim, "volume": leg.volume}
    data: dict[str, Any] = {"message": failure.message, "stage": failure.stage, "reason": failure.reason}
    data |= {name: it for name, it in {**about, "words": words}.items() if it is not None}
    return NewEvent(stream=failure.attempt, type="AttemptFailed", data=data, binding=failure.binding)


def pod_notices(failure: BindingFailure, states: States, *, component: str, now: str) -> tuple[NewEvent, ...]:
    """The pod's condition and the event about it; empty if the pod is deleted, terminating or placed."""
    stream, plan = pod_stream(failure.state), failure.state.plan
    pod = living(states, stream)
    if pod is None or pod.manifest is None or uid(pod.manifest) != plan["pod_uid"]:
        return ()
    if is_being_deleted(pod.manifest) or spec(pod.manifest).get("nodeName"):
        return ()
    events = []
    # Objects of a foreign cluster are written there or not at all.
    if origin_version(pod) is None:
        conditions = refused_conditions(pod.manifest, reason=SCHEDULER_ERROR, message=failure.message, now=now)
        if conditions is not None:
            events.append(changed_event(stream, {"status": {"conditions": conditions}}, binding=failure.binding))
    notice = notice_event(
        states.get(failure.notice), failure.notice, kind="Pod", key=plan["pod"], uid=plan["pod_uid"],
        type_="Warning", reason=FAILED_SCHEDULING, message=failure.message, component=component, now=now,
        binding=failure.binding,
    )  # fmt: skip
    return (*events, notice)


def foreign_pod_notices(failure: BindingFailure, states: States) -> tuple[NewEffect, ...]:
    """The condition and event for a pod of a foreign cluster, written by an effect."""
    plan = failure.state.plan
    pod = living(states, pod_stream(failure.state))
    if pod is None or origin_version(pod) is None or uid(pod.manifest or {}) != plan["pod_uid"]:
        return ()
    if is_being_deleted(pod.manifest or {}) or spec(pod.manifest or {}).get("nodeName"):
        return ()
    return (
        notice_effect(
            f"{failure.binding}/failed", kind="Pod", key=plan["pod"], uid=plan["pod_uid"], type_="Warning",
            reason=FAILED_SCHEDULING, message=failure.message, condition=SCHEDULER_ERROR,
        ),
    )  # fmt: skip


def _as_reference(reason: str, leg: LegState | None) -> str:
    """The reason in the reference's words; a refused write is reported in the API server's."""
    if leg is None or not reason.endswith((CHANGED, NOT_FOUND)) or reason.startswith(BINDING_VOLUMES):
        return reason
    resource, name = "persistentvolumes", leg.volume
    if leg.dynamic:
        resource, name = "persistentvolumeclaims", leg.claim.rpartition("/")[2]
    if reason.endswith(NOT_FOUND):
        return object_not_found(resource, name)
    return object_modified(resource, name)


# The claims of a stuck pod to unbind because they are bound where the pod cannot run.
#
# Runs only after a cycle that found no node. A claim is chosen only if it is certainly empty, and only if a dry
# run with the claims free finds a node; otherwise moving them gains nothing. Unbinding would destroy a volume
# that another provisioner created, so such a claim keeps it, as in the reference, unless the configuration or a
# user requests it.

MOST_REQUESTS = 5
SECONDS_BETWEEN = 60
REQUESTED = "RollbackRequested"
GAVE_UP = "RollbackGaveUp"
_VOLUME_REASONS = (NODE_AFFINITY_MISMATCH, NO_VOLUME_TO_BIND, NOT_ENOUGH_SPACE)


def claims_to_roll_back(
    snapshot: Snapshot,
    pod: Pod,
    refusal: str,
    *,
    foreign: bool = False,
    finds_node: Callable[[Sequence[Claim | Volume]], bool],
) -> tuple[str, ...]:
    """The claims whose bindings to undo, in name order; none if that would be unsafe or would not help.

    Only the snapshot's pods that share a claim with the pod matter. `foreign`: include claims whose volumes other
    provisioners created. `finds_node` is the dry run: whether the pod would find a node if these objects were as
    given.
    """
    if not any(reason in refusal for reason in _VOLUME_REASONS):
        return ()
    eligible = [
        claim
        for key in sorted({use.key for use in claim_uses(pod)})
        if (claim := snapshot.stored_claims.get(key)) is not None
        and (foreign or not is_foreign(snapshot.stored_volumes.get(claim.volume_name)))
        and may_go_back(snapshot, pod, claim)
    ]
    if not eligible:
        return ()
    return tuple(claim.key for claim in eligible) if finds_node(freed(snapshot, eligible)) else ()


def is_foreign(volume: Volume | None) -> bool:
    """Whether another provisioner created the volume and deletes it; our PV controller protects only its own."""
    return (
        volume is not None
        and PROVISIONED_BY in volume.meta.annotations
        and PV_CONTROLLER_FINALIZER not in volume.meta.finalizers
    )


def may_go_back(snapshot: Snapshot, pod: Pod, claim: Claim) -> bool:
    """Whether the claim is bound, certainly empty, and used by no other pod with a node."""
    refusal = rollback_refusal(
        claim,
        volume=snapshot.stored_volumes.get(claim.volume_name),
        storage_class=snapshot.classes.get(claim.class_name),
        used_by=_others_with_a_node(snapshot, pod, claim) if is_fully_bound(claim) else (),
    )
    return refusal is None


def _others_with_a_node(snapshot: Snapshot, pod: Pod, claim: Claim) -> list[str]:
    return [
        other.key
        for other in snapshot.pods.values()
        if other.key != pod.key
        and other.node_name
        and other.phase not in TERMINATED
        and any(use.key == claim.key for use in claim_uses(other))
    ]


def freed(snapshot: Snapshot, claims: Sequence[Claim]) -> list[Claim | Volume]:
    """The claims as before their binding, and their volumes free."""
    volumes = (snapshot.stored_volumes.get(claim.volume_name) for claim in claims)
    return [*map(unbound, claims), *(free(volume) for volume in volumes if volume is not None)]


def unbound(claim: Claim) -> Claim:
    """The claim as before its binding."""
    dropped = (BIND_COMPLETED, BOUND_BY_CONTROLLER, *SELECTED_NODE_KEYS)
    annotations = {key: value for key, value in claim.meta.annotations.items() if key not in dropped}
    return replace(claim, volume_name="", phase="Pending", meta=replace(claim.meta, annotations=annotations))


def free(volume: Volume) -> Volume:
    return replace(volume, claim_ref=None, phase=AVAILABLE)
