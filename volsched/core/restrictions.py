"""VolumeRestrictions: one pod at a time for a ReadWriteOncePod claim, one node-local user of an inline disk."""

from volsched.core.attach import placed_pods
from volsched.core.claims import claim_uses
from volsched.core.snapshot import Snapshot
from volsched.core.status import DISK_CONFLICT, EXCLUSIVE_CLAIM_IN_USE, SUCCESS, Code, Status
from volsched.model.storage import READ_WRITE_ONCE_POD, VolumeSource
from volsched.model.workloads import Node, Pod

DEFAULT_RBD_POOL = "rbd"


def volume_restrictions(snapshot: Snapshot, pod: Pod, node: Node) -> Status:
    """Both refusals can be lifted by evicting the other pod."""
    others = tuple(placed_pods(snapshot, besides=pod))
    exclusive = _exclusive_claims(snapshot, pod)
    if exclusive and any(use.key in exclusive for other in others for use in claim_uses(other)):
        return Status(Code.UNSCHEDULABLE, (EXCLUSIVE_CLAIM_IN_USE,))
    mine = _inline_sources(pod)
    neighbours = (other for other in others if other.node_name == node.name)
    if mine and any(_conflict(a, b) for other in neighbours for b in _inline_sources(other) for a in mine):
        return Status(Code.UNSCHEDULABLE, (DISK_CONFLICT,))
    return SUCCESS


def _exclusive_claims(snapshot: Snapshot, pod: Pod) -> set[str]:
    claims = (snapshot.claim(use.key) for use in claim_uses(pod))
    return {claim.key for claim in claims if claim is not None and READ_WRITE_ONCE_POD in claim.access_modes}


def _inline_sources(pod: Pod) -> tuple[VolumeSource, ...]:
    return tuple(volume.source for volume in pod.volumes if volume.source is not None)


def _conflict(one: VolumeSource, other: VolumeSource) -> bool:
    if one.kind != other.kind:
        return False
    both_read_only = one.flag("readOnly") and other.flag("readOnly")
    match one.kind:
        case "awsElasticBlockStore":
            # EBS cannot be attached twice, not even for reading.
            return _same(one, other, "volumeID")
        case "gcePersistentDisk":
            return not both_read_only and _same(one, other, "pdName")
        case "iscsi":
            return not both_read_only and _same(one, other, "iqn")
        case "rbd":
            return not both_read_only and _same_image(one, other)
        case _:
            return False


def _same(one: VolumeSource, other: VolumeSource, field: str) -> bool:
    return one.text(field) == other.text(field)


def _same_image(one: VolumeSource, other: VolumeSource) -> bool:
    """A common monitor means the same Ceph cluster."""
    return _same(one, other, "image") and _pool(one) == _pool(other) and bool(_monitors(one) & _monitors(other))


def _pool(source: VolumeSource) -> str:
    return source.text("pool") or DEFAULT_RBD_POOL


def _monitors(source: VolumeSource) -> set[str]:
    monitors = source.fields.get("monitors")
    return {monitor for monitor in monitors if isinstance(monitor, str)} if isinstance(monitors, list) else set()
