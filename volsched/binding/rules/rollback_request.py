"""When a pod is stuck because its own claims are bound where it cannot run: which of them to ask back.

Asked only after a cycle that found no node. Claims are asked back only if they are certainly empty, and only if a
dry run with them free finds a node; otherwise nothing would be gained by moving them. A volume
that somebody else's provisioner made would be destroyed by it, so its claim keeps it, as in the reference, unless
the configuration or a person asks for it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from volsched.kube.meta import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    PROVISIONED_BY,
    PV_CONTROLLER_FINALIZER,
    SELECTED_NODE_KEYS,
)
from volsched.kube.storage import AVAILABLE, Claim, Volume
from volsched.kube.workloads import Pod
from volsched.pv_controller.rules.rollback import rollback_refusal
from volsched.scheduling.rules.pod_claims import claim_uses, is_fully_bound
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import NO_VOLUME_TO_BIND, NODE_AFFINITY_MISMATCH, NOT_ENOUGH_SPACE

MOST_REQUESTS = 5
SECONDS_BETWEEN = 60
REQUESTED = "RollbackRequested"
GAVE_UP = "RollbackGaveUp"
_VOLUME_REASONS = (NODE_AFFINITY_MISMATCH, NO_VOLUME_TO_BIND, NOT_ENOUGH_SPACE)
_FINISHED = ("Succeeded", "Failed")


def claims_to_ask_back(
    snapshot: Snapshot,
    pod: Pod,
    refusal: str,
    *,
    foreign: bool = False,
    finds_node: Callable[[Sequence[Claim | Volume]], bool],
) -> tuple[str, ...]:
    """The claims whose bindings to undo, in name order; none where that would be unsafe or would not help.

    Of the snapshot's pods only those with a claim of the pod matter. `foreign`: those too whose volumes others
    have provisioned. `finds_node` is the dry run: would the pod find a node if these objects were as given?
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
    """Somebody else's provisioner made it, and deletes it: our PV controller guards what it deletes itself."""
    return (
        volume is not None
        and PROVISIONED_BY in volume.meta.annotations
        and PV_CONTROLLER_FINALIZER not in volume.meta.finalizers
    )


def may_go_back(snapshot: Snapshot, pod: Pod, claim: Claim) -> bool:
    """The claim is bound, certainly empty and used by no pod with a node besides this one."""
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
        and other.phase not in _FINISHED
        and any(use.key == claim.key for use in claim_uses(other))
    ]


def freed(snapshot: Snapshot, claims: Sequence[Claim]) -> list[Claim | Volume]:
    """The claims as they were before they were bound, and their volumes free."""
    volumes = (snapshot.stored_volumes.get(claim.volume_name) for claim in claims)
    return [*map(unbound, claims), *(free(volume) for volume in volumes if volume is not None)]


def unbound(claim: Claim) -> Claim:
    """As it was before it was bound."""
    dropped = (BIND_COMPLETED, BOUND_BY_CONTROLLER, *SELECTED_NODE_KEYS)
    annotations = {key: value for key, value in claim.meta.annotations.items() if key not in dropped}
    return replace(claim, volume_name="", phase="Pending", meta=replace(claim.meta, annotations=annotations))


def free(volume: Volume) -> Volume:
    return replace(volume, claim_ref=None, phase=AVAILABLE)
