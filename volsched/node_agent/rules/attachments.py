"""VolumeAttachments: which a node must have before it mounts, and which it gives up.

Only CSI volumes are attached. The node agent plays the attacher too: an attachment that exists is attached. A
volume that one node at a time may have gets one attachment name wherever it is, so that the store itself refuses a
second.
"""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from volsched.kube.storage import Volume, VolumeAttachment
from volsched.kube.workloads import Node
from volsched.node_agent.rules.mount_check import Mount

NODE_UID = "volsched.io/node-uid"
"""On an attachment: the node it was made for, which another of the same name is not; and that it is ours."""
SHARED_MODES = ("ReadOnlyMany", "ReadWriteMany")


def volumes_to_attach(mounts: Sequence[Mount]) -> list[Volume]:
    volumes = {mount.volume.name: mount.volume for mount in mounts if mount.volume is not None}
    return [volume for volume in volumes.values() if volume.source is not None and volume.source.kind == "csi"]


def is_exclusive(volume: Volume) -> bool:
    """It may be attached to one node at a time; a volume that says nothing is not held to anything."""
    return bool(volume.access_modes) and not any(mode in SHARED_MODES for mode in volume.access_modes)


def attachment_name(volume: Volume, node: Node) -> str:
    source = volume.source
    assert source is not None
    parts = [source.text("driver"), source.text("volumeHandle")]
    if not is_exclusive(volume):
        parts.append(node.meta.uid)
    return f"csi-{hashlib.sha256(chr(31).join(parts).encode()).hexdigest()}"


def attachment_of(volume: Volume, node: Node) -> dict[str, Any]:
    """The attachment as it is made."""
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
    """`attachments` are those of the volume, to whatever node."""
    name = attachment_name(volume, node)
    return any(held.meta.name == name and _is_for(held, node) for held in attachments)


def attach_problem(volume: Volume, node: Node, attachments: Iterable[VolumeAttachment]) -> str | None:
    """Why the volume cannot be attached to the node now, or None; one that is going counts until it is gone."""
    for held in attachments:
        if held.meta.name == attachment_name(volume, node) and not _is_for(held, node):
            return _taken(volume, held, node)
        if is_exclusive(volume) and held.node_name != node.name:
            return _taken(volume, held, node)
    return None


def to_detach(
    attachments: Iterable[VolumeAttachment], node: Node | None, in_use: Collection[str]
) -> list[VolumeAttachment]:
    """Of the attachments to one node name, those of ours that nobody needs any more.

    `node` is None while there is no such node: what pods on it may still use stays attached. `in_use` are the
    names of the volumes of pods there that have not come to their end.
    """
    return [
        held
        for held in attachments
        if NODE_UID in held.meta.annotations
        and not held.meta.being_deleted
        and (held.volume_name not in in_use or (node is not None and not _is_for(held, node)))
    ]


def _is_for(held: VolumeAttachment, node: Node) -> bool:
    """Made for this node, not for an earlier one of its name; and not about to go."""
    same = held.node_name == node.name and held.meta.annotations.get(NODE_UID) == node.meta.uid
    return same and not held.meta.being_deleted


def _taken(volume: Volume, held: VolumeAttachment, node: Node) -> str:
    if held.node_name == node.name:
        return f'PersistentVolume "{volume.name}" is still attached to an earlier node "{node.name}"; wait for it'
    return (
        f'Multi-Attach error for PersistentVolume "{volume.name}": it is attached to node "{held.node_name}" and '
        "only one node at a time may have it; delete the pods that use it there, or "
        f'VolumeAttachment "{held.meta.name}"'
    )
