"""VolumeRestrictions: one pod at a time for a ReadWriteOncePod claim, one node-local user of an inline disk."""

from dataclasses import dataclass

from volsched.kube.storage import READ_WRITE_ONCE_POD, VolumeSource
from volsched.kube.workloads import Node, Pod
from volsched.scheduling.rules.attach_limits import placed_pods
from volsched.scheduling.rules.pod_claims import claim_uses
from volsched.scheduling.rules.rejection import Failure, Rejection, Rule
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import DISK_CONFLICT, EXCLUSIVE_CLAIM_IN_USE, SUCCESS, Code, Status

DEFAULT_RBD_POOL = "rbd"


def volume_restrictions(snapshot: Snapshot, pod: Pod, node: Node) -> Status:
    """Both refusals can be lifted by evicting the other pod."""
    exclusive, inline = _exclusive_claims(snapshot, pod), _inline_disks(pod)
    others = tuple(placed_pods(snapshot, besides=pod)) if exclusive or inline else ()
    for other in others if exclusive else ():
        for use in claim_uses(other):
            if use.key in exclusive:
                wanted = "to be the only pod that uses the claim"
                return _refused(EXCLUSIVE_CLAIM_IN_USE, use.key, Rule.EXCLUSIVE_USE, wanted, other)
    for mine in inline:
        for other in (other for other in others if other.node_name == node.name):
            if any(_conflict(mine.source, theirs.source) for theirs in _inline_disks(other)):
                subject, wanted = f"{pod.key} volume {mine.name}", "a disk that no other pod of the node uses"
                return _refused(DISK_CONFLICT, subject, Rule.DISK_CONFLICT, wanted, other)
    return SUCCESS


def disks_conflict(pod: Pod, other: Pod) -> bool:
    """Do they name an inline disk that only one of them can have on a node?"""
    return any(_conflict(mine.source, its.source) for mine in _inline_disks(pod) for its in _inline_disks(other))


def _refused(reason: str, subject: str, rule: Rule, wanted: str, other: Pod) -> Status:
    failure = Failure(rule, wanted, f"used by pod {other.key} on node {other.node_name}")
    rejection = Rejection(reason=reason, claim=subject, failures=(failure,))
    return Status(Code.UNSCHEDULABLE, (reason,), (rejection,))


def _exclusive_claims(snapshot: Snapshot, pod: Pod) -> set[str]:
    claims = (snapshot.claim(use.key) for use in claim_uses(pod))
    return {claim.key for claim in claims if claim is not None and READ_WRITE_ONCE_POD in claim.access_modes}


@dataclass(frozen=True, slots=True)
class _Disk:
    name: str
    source: VolumeSource


def _inline_disks(pod: Pod) -> list[_Disk]:
    return [_Disk(volume.name, volume.source) for volume in pod.volumes if volume.source is not None]


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
