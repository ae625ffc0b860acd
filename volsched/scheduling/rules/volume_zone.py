"""VolumeZone: zone and region labels of bound volumes, from before volumes had a node affinity."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from volsched.kube.meta import LEGACY_REGION, LEGACY_ZONE, REGION, TOPOLOGY_LABELS, ZONE, ZONE_SEPARATOR
from volsched.kube.storage import WAIT_FOR_FIRST_CONSUMER, Claim, Volume
from volsched.kube.workloads import Node, Pod
from volsched.scheduling.rules.pod_claims import claim_not_found, mode_not_set
from volsched.scheduling.rules.rejection import Failure, Miss, Rejection, Rule
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import NO_ZONE, SKIP, SUCCESS, Code, Status

CLAIM_WITHOUT_NAME = "PersistentVolumeClaim had no name"
CLAIM_WITHOUT_VOLUME_AND_CLASS = "PersistentVolumeClaim had no pv name and storageClass name"
VOLUME_WITHOUT_NAME = "PersistentVolume had no name"

GA_TWIN: Mapping[str, str] = {LEGACY_ZONE: ZONE, LEGACY_REGION: REGION}


@dataclass(frozen=True, slots=True)
class ZoneRule:
    """The node's value of the label must be one of these."""

    key: str
    values: frozenset[str]
    volume: str = field(default="", compare=False)
    claim: str = field(default="", compare=False)
    """Whose label it is, for the explanation."""


def volume_not_found(name: str) -> str:
    return f'persistentvolume "{name}" not found'


def class_not_found(name: str) -> str:
    return f'storageclass.storage.k8s.io "{name}" not found'


def zone_parts(value: str) -> tuple[str, ...] | None:
    """The zones in a label's value, in order; None if one of them is empty, which makes the label unusable."""
    parts = tuple(part.strip() for part in value.split(ZONE_SEPARATOR))
    return parts if all(parts) else None


def zone_rules(volume: Volume) -> tuple[ZoneRule, ...]:
    """The reference splits region labels as well; an unusable label is ignored, the others still count."""
    labels = volume.meta.labels
    usable = ((key, zone_parts(labels[key])) for key in TOPOLOGY_LABELS if key in labels)
    return tuple(ZoneRule(key, frozenset(parts)) for key, parts in usable if parts is not None)


def volume_zone_prefilter(snapshot: Snapshot, pod: Pod) -> tuple[Status, tuple[ZoneRule, ...]]:
    """The rules of all labelled volumes of the pod. Claims made from a template are not looked at."""
    rules: list[ZoneRule] = []
    for name in (volume.claim_name for volume in pod.volumes if volume.claim_name is not None):
        if name == "":
            return _refused(CLAIM_WITHOUT_NAME)
        claim = snapshot.claim(f"{pod.namespace}/{name}")
        if claim is None:
            return _refused(claim_not_found(name))
        if claim.volume_name == "":
            problem = _unbound_problem(snapshot, claim)
            if problem is not None:
                return _refused(problem)
            continue
        volume = snapshot.volume(claim.volume_name)
        if volume is None:
            return _refused(volume_not_found(claim.volume_name))
        rules.extend(replace(rule, volume=volume.name, claim=claim.key) for rule in zone_rules(volume))
    return (SUCCESS, tuple(rules)) if rules else (SKIP, ())


def volume_zone_filter(rules: Sequence[ZoneRule], node: Node) -> Status:
    """A node without any zone or region label passes: it may be a cluster that has no zones."""
    if not rules or not any(key in node.labels for key in TOPOLOGY_LABELS):
        return SUCCESS
    broken = [rule for rule in rules if _seen_value(rule.key, node.labels) not in rule.values]
    if not broken:
        return SUCCESS
    return Status(Code.UNRESOLVABLE, (NO_ZONE,), tuple(_rejection(rule, node) for rule in broken))


def _rejection(rule: ZoneRule, node: Node) -> Rejection:
    wanted = f"{rule.key} in [{', '.join(sorted(rule.values))}]"
    failure = Failure(Rule.ZONE, wanted, _seen_value(rule.key, node.labels) or "no such label")
    return Rejection(reason=NO_ZONE, claim=rule.claim, misses=(Miss(rule.volume, (failure,)),))


def _unbound_problem(snapshot: Snapshot, claim: Claim) -> str | None:
    """Only a delayed claim may be without a volume here: it gets one in the node's zone."""
    if claim.class_name == "":
        return CLAIM_WITHOUT_VOLUME_AND_CLASS
    storage_class = snapshot.classes.get(claim.class_name)
    if storage_class is None:
        return class_not_found(claim.class_name)
    if storage_class.volume_binding_mode is None:
        return mode_not_set(storage_class.name)
    return None if storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER else VOLUME_WITHOUT_NAME


def _seen_value(key: str, labels: Mapping[str, str]) -> str | None:
    """Nodes lost their legacy labels first, so a legacy key may read its GA twin, never the other way round."""
    value = labels.get(key)
    return labels.get(GA_TWIN[key]) if value is None and key in GA_TWIN else value


def _refused(problem: str) -> tuple[Status, tuple[ZoneRule, ...]]:
    return Status(Code.UNRESOLVABLE, (problem,)), ()
