"""Whether a node admits a pod: the kubelet's checks, attachments, and the last check before a claim is mounted."""

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from volsched.kube.manifest import DIRTY, reaches
from volsched.kube.meta import PVC_PROTECTION, ROLLBACK
from volsched.kube.storage import Claim, Volume, VolumeAttachment
from volsched.kube.workloads import Node, Pod
from volsched.scheduling.plugins.node_plugins import NO_EXECUTE, keeps_away, selects
from volsched.scheduling.plugins.node_resources import room_of, shortage, wanted_by
from volsched.scheduling.rules.pod_claims import ClaimUse, is_owned_by
from volsched.scheduling.rules.reasons import claim_of_other_pod

# A node's checks of a pod besides its volumes: those of the scheduler's filters that a kubelet repeats.
#
# Between a decision and the pod's admission, a node may have changed; and no scheduler has checked a pod whose
# nodeName was set by hand.

Check = Callable[[Pod, Node, Sequence[Pod]], str | None]
"""Why the pod may not run on the node beside these others, or None."""


def resources(pod: Pod, node: Node, others: Sequence[Pod]) -> str | None:
    missing = shortage(wanted_by(pod), room_of(node, others)).reasons
    return f'node "{node.name}" has not enough room: {", ".join(missing)}' if missing else None


def node_affinity(pod: Pod, node: Node, _: Sequence[Pod]) -> str | None:
    """The pod's node selector and its required node affinity."""
    return None if selects(pod, node) else f'node "{node.name}" does not match the pod\'s node affinity/selector'


def taints(pod: Pod, node: Node, _: Sequence[Pod]) -> str | None:
    """Only taints that would also evict a running pod: scheduling past the others is allowed."""
    driving = [taint for taint in node.taints if taint.effect == NO_EXECUTE]
    repelling = keeps_away(pod.tolerations, driving)
    return (
        None
        if repelling is None
        else f'node "{node.name}" has taint {repelling.key}:NoExecute, which is not tolerated'
    )


CHECKS: tuple[Check, ...] = (resources, node_affinity, taints)


# Whether a node may mount a claim: the last check of claim and volume before a pod can reach the data.
#
# A problem is a mount error: nothing is done, the pod stays unchanged, and it is examined again when its
# claims, their volumes or the node change.

BOUND = "Bound"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A claim that the pod uses, with its stored state and that of the volume that it names."""

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
        remedy = "it is created from the pod's template; wait for it" if mount.use.ephemeral else "create it"
        return f'PersistentVolumeClaim "{key}" does not exist; {remedy}'
    if mount.use.ephemeral and not is_owned_by(claim, pod):
        return f"{claim_of_other_pod(claim.key, pod.key)}; delete the claim or rename the pod"
    if claim.phase != BOUND or not claim.volume_name:
        return _not_bound(key, claim, node)
    if claim.meta.being_deleted and PVC_PROTECTION not in claim.meta.finalizers:
        return f'PersistentVolumeClaim "{key}" is being deleted; delete the pod too, or recreate the claim'
    if volume is None:
        return (
            f'PersistentVolume "{claim.volume_name}" of claim "{key}" does not exist; '
            "recreate it with its claimRef, or delete the claim"
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
        f'PersistentVolumeClaim "{key}" is {phase}, not Bound; a claim that waits for its first consumer is not '
        "bound for a pod that already has a node; delete the pod and create it without spec.nodeName, or bind "
        f'the claim to a volume that node "{node.name}" can reach'
    )


# Every check that may reject the pod runs before its claims are marked: a rejected pod leaves them Clean, so
# that they can be rolled back and the pod moved. Marked claims stay Dirty for good.


@dataclass(frozen=True, slots=True)
class Admitted:
    """The pod may start once these claims are marked Dirty."""

    marks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rejected:
    """The pod goes back to scheduling; its claims are unchanged."""

    message: str


@dataclass(frozen=True, slots=True)
class NotYet:
    """A claim cannot be mounted now. No claim is marked, because the pod does not start yet."""

    message: str


Verdict = Admitted | Rejected | NotYet


def admit(
    pod: Pod, node: Node, others: Sequence[Pod], mounts: Sequence[Mount], *, checks: Sequence[Check] = CHECKS
) -> Verdict:
    """`others` are the pods that the node has admitted and that have not finished."""
    refusal = _refusal(pod, node, others, mounts, checks)
    if refusal is not None:
        return Rejected(refusal)
    # A claim that is not completely bound has no data state of its own yet: a mark set now would be lost when the
    # controller completes the binding.
    problem = mount_problem(pod, node, mounts)
    return Admitted(to_mark(mounts)) if problem is None else NotYet(problem)


def to_mark(mounts: Sequence[Mount]) -> tuple[str, ...]:
    """Claims that are not marked Dirty yet, in name order; an absent mark means Dirty, and is set too."""
    claims = {mount.claim.key for mount in mounts if mount.claim is not None and mount.claim.data_state != DIRTY}
    return tuple(sorted(claims))


def _refusal(
    pod: Pod, node: Node, others: Sequence[Pod], mounts: Sequence[Mount], checks: Sequence[Check]
) -> str | None:
    for check in checks:
        reason = check(pod, node, others)
        if reason is not None:
            return reason
    for mount in mounts:
        if mount.volume is not None and not reaches(mount.volume, node):
            return out_of_reach(mount.volume, node)
    for mount in mounts:
        if mount.claim is not None and ROLLBACK in mount.claim.meta.annotations:
            return f'PersistentVolumeClaim "{mount.use.key}" is undergoing rollback'
    return None


# VolumeAttachments: those that a node needs before it mounts, and those that it removes.
#
# Only CSI volumes are attached. The node agent is the attacher too: an existing attachment is attached. A
# volume for one node at a time has the same attachment name everywhere, so that the store itself refuses a
# second.

NODE_UID = "volsched.io/node-uid"
"""Annotation of an attachment: its node's uid, which differs for a recreated node; also marks it as ours."""
SHARED_MODES = ("ReadOnlyMany", "ReadWriteMany")


def volumes_to_attach(mounts: Sequence[Mount]) -> list[Volume]:
    volumes = {mount.volume.name: mount.volume for mount in mounts if mount.volume is not None}
    return [volume for volume in volumes.values() if volume.source is not None and volume.source.kind == "csi"]


def is_exclusive(volume: Volume) -> bool:
    """Whether the volume may be attached to one node at a time only; without access modes it is not restricted."""
    return bool(volume.access_modes) and not any(mode in SHARED_MODES for mode in volume.access_modes)


def attachment_name(volume: Volume, node: Node) -> str:
    source = volume.source
    assert source is not None
    parts = [source.text("driver"), source.text("volumeHandle")]
    if not is_exclusive(volume):
        parts.append(node.meta.uid)
    return f"csi-{hashlib.sha256(chr(31).join(parts).encode()).hexdigest()}"


def attachment_of(volume: Volume, node: Node) -> dict[str, Any]:
    """The manifest of a new attachment."""
    source = volume.source
    assert source is not None
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": attachment_name(volume, node), "annotations": {NODE_UID: node.meta.uid}},
        "spec": {
            "attacher": source.text("driver"),
            "nodeName": node.name,
            "source": {"persistentVolumeName": volume.name},
        },
    }


def is_attached(volume: Volume, node: Node, attachments: Iterable[VolumeAttachment]) -> bool:
    """`attachments` are those of the volume, to any node."""
    name = attachment_name(volume, node)
    return any(attachment.meta.name == name and _is_for(attachment, node) for attachment in attachments)


def attach_problem(volume: Volume, node: Node, attachments: Iterable[VolumeAttachment]) -> str | None:
    """Why the volume cannot be attached to the node now, or None; one being deleted counts until it is gone."""
    for attachment in attachments:
        if attachment.meta.name == attachment_name(volume, node) and not _is_for(attachment, node):
            return _attached_elsewhere(volume, attachment, node)
        if is_exclusive(volume) and attachment.node_name != node.name:
            return _attached_elsewhere(volume, attachment, node)
    return None


def to_detach(
    attachments: Iterable[VolumeAttachment], node: Node | None, in_use: Collection[str]
) -> list[VolumeAttachment]:
    """Our attachments among these (all to one node name) that are no longer needed.

    `node` is None while there is no such node: volumes that its pods may still use stay attached. `in_use` are the
    names of the volumes of pods there that have not finished.
    """
    return [
        attachment
        for attachment in attachments
        if NODE_UID in attachment.meta.annotations
        and not attachment.meta.being_deleted
        and (attachment.volume_name not in in_use or (node is not None and not _is_for(attachment, node)))
    ]


def _is_for(attachment: VolumeAttachment, node: Node) -> bool:
    """Whether it was created for this node, not an earlier one of its name, and is not being deleted."""
    same = attachment.node_name == node.name and attachment.meta.annotations.get(NODE_UID) == node.meta.uid
    return same and not attachment.meta.being_deleted


def _attached_elsewhere(volume: Volume, attachment: VolumeAttachment, node: Node) -> str:
    if attachment.node_name == node.name:
        return f'PersistentVolume "{volume.name}" is still attached to an earlier node "{node.name}"; wait for it'
    return (
        f'Multi-Attach error for PersistentVolume "{volume.name}": it is attached to node '
        f'"{attachment.node_name}" and only one node at a time may have it; delete the pods that use it there, or '
        f'VolumeAttachment "{attachment.meta.name}"'
    )
