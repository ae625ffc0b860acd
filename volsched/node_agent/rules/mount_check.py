"""Whether a node may mount a claim: the last look at claim and volume before a pod gets at the data.

A problem is a mount error: nothing is done, the pod stays as it is, and it is looked at again when something about
its claims, their volumes or the node has changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from volsched.kube.claim_reference import reaches
from volsched.kube.meta import PVC_PROTECTION
from volsched.kube.storage import Claim, Volume
from volsched.kube.workloads import Node, Pod
from volsched.scheduling.rules.pod_claims import ClaimUse, is_owned_by, not_owner

BOUND = "Bound"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A claim that the pod uses, with what is stored of it and of the volume that it names."""

    use: ClaimUse
    claim: Claim | None = None
    volume: Volume | None = None


def mount_problem(pod: Pod, node: Node, mounts: Sequence[Mount]) -> str | None:
    """The first reason why one of the pod's claims cannot be mounted on the node, or None."""
    return next((problem for mount in mounts if (problem := _problem(pod, node, mount)) is not None), None)


def out_of_reach(volume: Volume, node: Node) -> str:
    return f'the node affinity of PersistentVolume "{volume.name}" excludes node "{node.name}"'


def _problem(pod: Pod, node: Node, mount: Mount) -> str | None:
    claim, volume, key = mount.claim, mount.volume, mount.use.key
    if claim is None:
        remedy = "it is made from the pod's template; wait for it" if mount.use.ephemeral else "create it"
        return f'PersistentVolumeClaim "{key}" does not exist; {remedy}'
    if mount.use.ephemeral and not is_owned_by(claim, pod):
        return f"{not_owner(claim, pod)}; delete the claim or rename the pod"
    if claim.phase != BOUND or not claim.volume_name:
        return _not_bound(key, claim, node)
    if claim.meta.being_deleted and PVC_PROTECTION not in claim.meta.finalizers:
        return f'PersistentVolumeClaim "{key}" is being deleted; delete the pod too, or make the claim anew'
    if volume is None:
        return (
            f'PersistentVolume "{claim.volume_name}" of claim "{key}" does not exist; '
            "create it again with its claimRef, or delete the claim"
        )
    if volume.claim_ref is None or volume.claim_ref.uid != claim.meta.uid:
        return (
            f'PersistentVolume "{volume.name}" is not bound to claim "{key}": its spec.claimRef.uid is not the '
            "claim's; delete the claim, or correct the claimRef"
        )
    return None if reaches(volume, node) else f"{out_of_reach(volume, node)}; label the node, or delete the pod"


def _not_bound(key: str, claim: Claim, node: Node) -> str:
    phase = claim.phase or "without a phase"
    return (
        f'PersistentVolumeClaim "{key}" is {phase}, not Bound, and for a pod that has a node already nobody binds '
        "a claim that waits for its first consumer; delete the pod and create it without spec.nodeName, or bind "
        f'the claim to a volume that node "{node.name}" can reach'
    )
