"""VolumeRestrictions and VolumeZone: exclusive use of claims and disks, and zones of bound volumes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from volsched.kube.meta import LEGACY_REGION, LEGACY_ZONE, REGION, TOPOLOGY_LABELS, ZONE, ZONE_SEPARATOR
from volsched.kube.storage import READ_WRITE_ONCE_POD, WAIT_FOR_FIRST_CONSUMER, Claim, Volume, VolumeSource
from volsched.kube.workloads import Node, Pod
from volsched.scheduling.rules.attach_limits import placed_pods
from volsched.scheduling.rules.pod_claims import claim_uses
from volsched.scheduling.rules.reasons import (
    CLAIM_WITHOUT_NAME,
    CLAIM_WITHOUT_VOLUME_AND_CLASS,
    DISK_CONFLICT,
    EXCLUSIVE_CLAIM_IN_USE,
    NO_ZONE,
    VOLUME_WITHOUT_NAME,
    claim_not_found,
    class_not_found,
    mode_not_set,
    volume_not_found,
)
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import SKIP, SUCCESS, Code, Failure, Miss, Rejection, Rule, Status

DEFAULT_RBD_POOL = "rbd"


def volume_restrictions(snapshot: Snapshot, pod: Pod, node: Node) -> Status:
    """Check exclusive use of claims and disks. Evicting the other pod can lift both refusals."""
    exclusive, inline = _exclusive_claims(snapshot, pod), _inline_disks(pod)
    others = tuple(placed_pods(snapshot, besides=pod)) if exclusive or inline else ()
    for other in others if exclusive else ():
        for use in claim_uses(other):
            if use.key in exclusive:
                wanted = "to be the only pod that uses the claim"
                return _use_refused(EXCLUSIVE_CLAIM_IN_USE, use.key, Rule.EXCLUSIVE_USE, wanted, other)
    for mine in inline:
        for other in (other for other in others if other.node_name == node.name):
            if any(_conflict(mine.source, theirs.source) for theirs in _inline_disks(other)):
                subject, wanted = f"{pod.key} volume {mine.name}", "a disk that no other pod of the node uses"
                return _use_refused(DISK_CONFLICT, subject, Rule.DISK_CONFLICT, wanted, other)
    return SUCCESS


def disks_conflict(pod: Pod, other: Pod) -> bool:
    """Whether both pods name an inline disk that only one of them can use on a node."""
    return any(_conflict(mine.source, its.source) for mine in _inline_disks(pod) for its in _inline_disks(other))


def _use_refused(reason: str, subject: str, rule: Rule, wanted: str, other: Pod) -> Status:
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


# VolumeZone: zone and region labels of bound volumes, from before volumes had a node affinity.

GA_TWIN: Mapping[str, str] = {LEGACY_ZONE: ZONE, LEGACY_REGION: REGION}


@dataclass(frozen=True, slots=True)
class ZoneRule:
    """The node's value of the label must be one of these."""

    key: str
    values: frozenset[str]
    volume: str = field(default="", compare=False)
    claim: str = field(default="", compare=False)
    """The claim whose volume has the label, for explanations."""


def zone_parts(value: str) -> tuple[str, ...] | None:
    """The zones in a label's value, in order; None if one of them is empty, which makes the label unusable."""
    parts = tuple(part.strip() for part in value.split(ZONE_SEPARATOR))
    return parts if all(parts) else None


def zone_rules(volume: Volume) -> tuple[ZoneRule, ...]:
    """The zone rules of a volume. Region labels are split too, as in the reference; unusable ones are ignored."""
    labels = volume.meta.labels
    usable = ((key, zone_parts(labels[key])) for key in TOPOLOGY_LABELS if key in labels)
    return tuple(ZoneRule(key, frozenset(parts)) for key, parts in usable if parts is not None)


def volume_zone_prefilter(snapshot: Snapshot, pod: Pod) -> tuple[Status, tuple[ZoneRule, ...]]:
    """The rules of all labelled volumes of the pod. Claims created from a template are not checked."""
    rules: list[ZoneRule] = []
    for name in (volume.claim_name for volume in pod.volumes if volume.claim_name is not None):
        if name == "":
            return _zone_refused(CLAIM_WITHOUT_NAME)
        claim = snapshot.claim(f"{pod.namespace}/{name}")
        if claim is None:
            return _zone_refused(claim_not_found(name))
        if claim.volume_name == "":
            problem = _unbound_problem(snapshot, claim)
            if problem is not None:
                return _zone_refused(problem)
            continue
        volume = snapshot.volume(claim.volume_name)
        if volume is None:
            return _zone_refused(volume_not_found(claim.volume_name))
        rules.extend(replace(rule, volume=volume.name, claim=claim.key) for rule in zone_rules(volume))
    return (SUCCESS, tuple(rules)) if rules else (SKIP, ())


def volume_zone_filter(rules: Sequence[ZoneRule], node: Node) -> Status:
    """A node without any zone or region label passes: the cluster may have no zones."""
    if not rules or not any(key in node.labels for key in TOPOLOGY_LABELS):
        return SUCCESS
    broken = [rule for rule in rules if _label_value(rule.key, node.labels) not in rule.values]
    if not broken:
        return SUCCESS
    return Status(Code.UNRESOLVABLE, (NO_ZONE,), tuple(_rejection(rule, node) for rule in broken))


def _rejection(rule: ZoneRule, node: Node) -> Rejection:
    wanted = f"{rule.key} in [{', '.join(sorted(rule.values))}]"
    failure = Failure(Rule.ZONE, wanted, _label_value(rule.key, node.labels) or "no such label")
    return Rejection(reason=NO_ZONE, claim=rule.claim, misses=(Miss(rule.volume, (failure,)),))


def _unbound_problem(snapshot: Snapshot, claim: Claim) -> str | None:
    """The problem with a claim without a volume: only a delayed one gets a volume in the node's zone."""
    if claim.class_name == "":
        return CLAIM_WITHOUT_VOLUME_AND_CLASS
    storage_class = snapshot.classes.get(claim.class_name)
    if storage_class is None:
        return class_not_found(claim.class_name)
    if storage_class.volume_binding_mode is None:
        return mode_not_set(storage_class.name)
    return None if storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER else VOLUME_WITHOUT_NAME


def _label_value(key: str, labels: Mapping[str, str]) -> str | None:
    """Nodes lost their legacy labels first, so a legacy key may read its GA twin, never the reverse."""
    value = labels.get(key)
    return labels.get(GA_TWIN[key]) if value is None and key in GA_TWIN else value


def _zone_refused(problem: str) -> tuple[Status, tuple[ZoneRule, ...]]:
    return Status(Code.UNRESOLVABLE, (problem,)), ()
