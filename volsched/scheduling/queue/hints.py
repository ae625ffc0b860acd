"""Which pods a change may help: per plugin, the aspects it is registered for and the hint to call.

A pod that found no node waits for its *rejectors*, the plugins that refused it somewhere. Only their hints are
called, and only those registered for what has changed; any yes wakes the pod. Names are Kubernetes'.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from volsched.kube.storage import WAIT_FOR_FIRST_CONSUMER, Claim, CSIDriver, CSINode, StorageClass, Volume
from volsched.kube.workloads import Node, Pod
from volsched.scheduling.plugins.inter_pod_affinity import AffinityTerm, means, means_all, sound_terms, terms_of
from volsched.scheduling.plugins.node_plugins import keeps_away, selects
from volsched.scheduling.plugins.node_resources import PODS, pod_requests, room_of, shortage, units_of, wanted_by
from volsched.scheduling.plugins.topology_spread import DO_NOT_SCHEDULE, Constraint, constraints_of
from volsched.scheduling.queue.object_changes import Aspect, Aspects, ObjectChange, claim_concerned, is_placed
from volsched.scheduling.rules.attach_limits import CSI_LIMIT_PREFIX
from volsched.scheduling.rules.cycle import (
    NODE_VOLUME_LIMITS,
    VOLUME_BINDING,
    VOLUME_RESTRICTIONS,
    VOLUME_ZONE,
)
from volsched.scheduling.rules.disks import IN_TREE, in_tree_id
from volsched.scheduling.rules.failure_memory import NODE_REJECTED
from volsched.scheduling.rules.pod_claims import claim_uses, is_fully_bound
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.volume_restrictions import disks_conflict, zone_rules

# Hints of the plugins that read a node alone: may this node accept the pod now, where it did not before?


def is_uncordoned(change: ObjectChange, _: Pod, __: Snapshot) -> bool:
    old, new = change.old, change.new
    return isinstance(new, Node) and not new.unschedulable and (not isinstance(old, Node) or old.unschedulable)


def is_tolerated(change: ObjectChange, pod: Pod, _: Snapshot) -> bool:
    old, new = change.old, change.new
    if not isinstance(new, Node) or keeps_away(pod.tolerations, new.taints) is not None:
        return False
    return not isinstance(old, Node) or keeps_away(pod.tolerations, old.taints) is not None


def is_selected(change: ObjectChange, pod: Pod, _: Snapshot) -> bool:
    old, new = change.old, change.new
    return isinstance(new, Node) and selects(pod, new) and not (isinstance(old, Node) and selects(pod, old))


def has_more_room(change: ObjectChange, pod: Pod, _: Snapshot) -> bool:
    """An empty node like this would fit the pod, and it has more than before of a requested resource."""
    old, new = change.old, change.new
    if not isinstance(new, Node) or not shortage(wanted_by(pod), room_of(new, ())).passed:
        return False
    if not isinstance(old, Node) or not room_of(new, ()).is_known:
        return True
    before, after = units_of(old.allocatable), units_of(new.allocatable)
    if PODS in before and PODS not in after:
        return True
    return any(after.get(name, 0) > before.get(name, 0) for name in (*pod_requests(pod), PODS))


def asks_for_less(change: ObjectChange, pod: Pod, _: Snapshot) -> bool:
    """The placed pod releases some of what the waiting one requests."""
    old, new = change.old, change.new
    if not isinstance(old, Pod) or not isinstance(new, Pod):
        return False
    before, after = pod_requests(old), pod_requests(new)
    return any(after.get(name, 0) < before.get(name, 0) for name in pod_requests(pod))


# Hints of the plugins that read other pods' places: inter-pod affinity and topology spread.


def is_neighbour(change: ObjectChange, pod: Pod, snapshot: Snapshot) -> bool:
    """A pod came, left or changed its labels: one more to be near to, or one fewer to avoid."""
    old = change.old if isinstance(change.old, Pod) and is_placed(change.old) else None
    new = change.new if isinstance(change.new, Pod) and is_placed(change.new) else None
    if _moved(old, new):
        return any(is_neighbour(it, pod, snapshot) for it in (ObjectChange(old, None), ObjectChange(None, new)))
    mine = terms_of(pod)
    was_near = old is not None and means_all(mine.affinity, old, snapshot)
    is_near = new is not None and means_all(mine.affinity, new, snapshot)
    if mine.affinity and is_near and not was_near:
        return True
    if mine.affinity and was_near and not is_near and means_all(mine.affinity, pod, snapshot):
        # Without the last of them, the pod may be the first of its group.
        return True
    if any(_means(it, old, snapshot) and not _means(it, new, snapshot) for it in mine.anti_affinity):
        return True
    theirs = () if old is None or new is not None else sound_terms(old).anti_affinity
    return any(means(term, pod, snapshot) for term in theirs)


def shifts_balance(change: ObjectChange, pod: Pod, _: Snapshot) -> bool:
    """A pod that one of the constraints counts came, left, or is counted differently now."""
    counted = [
        (_counted(constraint, pod, change.old), _counted(constraint, pod, change.new))
        for constraint in constraints_of(pod, DO_NOT_SCHEDULE)
    ]
    moved = _moved(change.old, change.new)
    return any(before != after or (before and moved) for before, after in counted)


def shifts_domains(change: ObjectChange, pod: Pod, _: Snapshot) -> bool:
    """A node with the labels of all constraints came, left or changed: the domains are different now."""
    keys = {constraint.key for constraint in constraints_of(pod, DO_NOT_SCHEDULE)}
    sides = (side for side in (change.old, change.new) if isinstance(side, Node))
    return any(keys <= side.labels.keys() for side in sides)


def counts_taints(_: ObjectChange, pod: Pod, __: Snapshot) -> bool:
    return any(constraint.honors_taints for constraint in constraints_of(pod, DO_NOT_SCHEDULE))


def _means(term: AffinityTerm, pod: Pod | None, snapshot: Snapshot) -> bool:
    return pod is not None and means(term, pod, snapshot)


def _moved(old: object, new: object) -> bool:
    return isinstance(old, Pod) and isinstance(new, Pod) and old.node_name != new.node_name


def _counted(constraint: Constraint, pod: Pod, other: object) -> bool:
    if not isinstance(other, Pod) or not is_placed(other) or other.namespace != pod.namespace:
        return False
    return not other.meta.being_deleted and constraint.means(other)


# Hints of the volume plugins: may this change admit the pod where one of them refused it?
#
# Each is called for changes with the aspect it is registered for. [D] marks where our rules read more than
# Kubernetes' do, and would otherwise lose a wake-up.


def uses_claim(change: ObjectChange, pod: Pod, _: Snapshot) -> bool:
    """Whether it is one of the pod's claims, named directly or created from its template."""
    return isinstance(change.new, Claim) and any(use.key == change.new.key for use in claim_uses(pod))


def names_claim(change: ObjectChange, pod: Pod, _: Snapshot) -> bool:
    """Whether it is one of the claims that the pod names directly."""
    wanted = change.new.key if isinstance(change.new, Claim) else None
    return any(use.key == wanted for use in claim_uses(pod) if not use.ephemeral)


def may_have_volume(change: ObjectChange, pod: Pod, _: Snapshot) -> bool:
    """[D] Kubernetes says yes to any change. But another claim's volume does not concern this pod, and every
    binding creates its volume or changes it several times: each change would wake all waiting pods in vain.
    """
    claim = claim_concerned(change)
    return claim is None or any(use.key == claim for use in claim_uses(pod))


def wants_no_capacity(change: ObjectChange, pod: Pod, snapshot: Snapshot) -> bool:
    """The driver stopped publishing capacity: claims without proven room may be tried now."""
    old, new = change.old, change.new
    if not isinstance(old, CSIDriver) or not old.storage_capacity:
        return False
    if isinstance(new, CSIDriver) and new.storage_capacity:
        return False
    inline = (volume.source for volume in pod.volumes if volume.source is not None)
    if any(source.kind == "csi" and source.text("driver") == old.name for source in inline):
        return True
    # [D] Kubernetes checks inline volumes only, and leaves pods with claims to the periodic retry.
    return old.name in _provisioners(pod, snapshot)


def is_delayed_class(change: ObjectChange, _: Pod, __: Snapshot) -> bool:
    return isinstance(change.new, StorageClass) and change.new.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER


def zones_changed(change: ObjectChange, pod: Pod, snapshot: Snapshot) -> bool:
    old, new = change.old, change.new
    if not isinstance(old, Volume) or not isinstance(new, Volume) or zone_rules(old) == zone_rules(new):
        return False
    return may_have_volume(change, pod, snapshot)


def limit_grew(change: ObjectChange, _: Pod, __: Snapshot) -> bool:
    """A driver attaches more than before. [D] A removed limit and a new driver count as grown."""
    old, new = change.old, change.new
    if not isinstance(old, CSINode):
        return False
    before = {driver.name: driver.attach_limit for driver in old.drivers}
    after = {driver.name: driver.attach_limit for driver in new.drivers} if isinstance(new, CSINode) else {}
    if after.keys() - before.keys():
        return True
    pairs = ((limit, after.get(name)) for name, limit in before.items() if limit is not None)
    return any(limit is None or limit > was for was, limit in pairs)


def attachable_grew(change: ObjectChange, _: Pod, __: Snapshot) -> bool:
    """[D] Our limits are read from the node's allocatable too."""
    old, new = change.old, change.new
    if not isinstance(old, Node) or not isinstance(new, Node):
        return False
    keys = {plugin.limit_key for plugin in IN_TREE.values()}
    for key in {*old.allocatable, *new.allocatable}:
        if key in keys or key.startswith(CSI_LIMIT_PREFIX):
            before, after = old.allocatable.get(key), new.allocatable.get(key)
            if after is None or before is None or after.value() > before.value():
                return True
    return False


def driver_may_be_missing(change: ObjectChange, _: Pod, __: Snapshot) -> bool:
    """[D] The driver no longer requires to be installed before its pods."""
    old, new = change.old, change.new
    if not isinstance(old, CSIDriver) or not old.prevent_scheduling_if_missing:
        return False
    return not (isinstance(new, CSIDriver) and new.prevent_scheduling_if_missing)


def had_volumes(change: ObjectChange, _: Pod, __: Snapshot) -> bool:
    """The pod that left had a claim, or an inline disk that takes a slot."""
    gone = change.old
    if not isinstance(gone, Pod):
        return False
    return any(claim_uses(gone)) or any(in_tree_id(volume.source) is not None for volume in gone.volumes)


def uses_any_claim(_: ObjectChange, pod: Pod, __: Snapshot) -> bool:
    return any(True for _use in claim_uses(pod))


def shared_a_volume(change: ObjectChange, pod: Pod, _: Snapshot) -> bool:
    """The pod that left shared a claim, or held an inline disk that conflicts.

    [D] Kubernetes requires the same namespace, but inline disks conflict across namespaces.
    """
    gone = change.old
    if not isinstance(gone, Pod):
        return False
    mine = {use.key for use in claim_uses(pod)}
    return any(use.key in mine for use in claim_uses(gone)) or disks_conflict(pod, gone)


def has_unbound_claim(_: ObjectChange, pod: Pod, snapshot: Snapshot) -> bool:
    return any(True for _claim in _unbound(pod, snapshot))


def _provisioners(pod: Pod, snapshot: Snapshot) -> set[str]:
    classes = (snapshot.classes.get(claim.class_name) for claim in _unbound(pod, snapshot))
    return {found.provisioner for found in classes if found is not None}


def _unbound(pod: Pod, snapshot: Snapshot) -> Iterator[Claim]:
    for use in claim_uses(pod):
        claim = snapshot.claim(use.key)
        if claim is not None and not is_fully_bound(claim):
            yield claim


Hint = Callable[[ObjectChange, Pod, Snapshot], bool]


def always(_: ObjectChange, __: Pod, ___: Snapshot) -> bool:
    return True


HINTS: Mapping[str, Mapping[Aspect, Hint]] = {
    "NodeUnschedulable": {Aspect.NODE_ADDED: is_uncordoned, Aspect.NODE_TAINTS: is_uncordoned},
    "NodeName": {Aspect.NODE_ADDED: always},
    "TaintToleration": {Aspect.NODE_ADDED: is_tolerated, Aspect.NODE_TAINTS: is_tolerated},
    "NodeAffinity": {Aspect.NODE_ADDED: is_selected, Aspect.NODE_LABELS: is_selected},
    "NodeResourcesFit": {
        Aspect.POD_LEFT: always,
        Aspect.POD_SHRANK: asks_for_less,
        Aspect.NODE_ADDED: has_more_room,
        Aspect.NODE_ALLOCATABLE: has_more_room,
    },
    "InterPodAffinity": {
        Aspect.POD_PLACED: is_neighbour,
        Aspect.POD_LEFT: is_neighbour,
        Aspect.POD_LABELS: is_neighbour,
        # Any label: it may be the topology key of pods that keep this one away, whatever its own terms name.
        Aspect.NODE_ADDED: always,
        Aspect.NODE_LABELS: always,
        # [D] A deleted node's pods are gone too; Kubernetes waits until each of them is deleted.
        Aspect.NODE_REMOVED: always,
        Aspect.NAMESPACE_LABELS: always,
    },
    "PodTopologySpread": {
        Aspect.POD_PLACED: shifts_balance,
        Aspect.POD_LEFT: shifts_balance,
        Aspect.POD_LABELS: shifts_balance,
        Aspect.NODE_ADDED: shifts_domains,
        Aspect.NODE_REMOVED: shifts_domains,
        Aspect.NODE_LABELS: shifts_domains,
        Aspect.NODE_TAINTS: counts_taints,
    },
    VOLUME_BINDING: {
        Aspect.CLASS_ADDED: always,
        Aspect.CLASS_TOPOLOGIES: always,
        Aspect.CLAIM_ADDED: uses_claim,
        Aspect.CLAIM_CHANGED: uses_claim,
        Aspect.CLAIM_LET_GO: has_unbound_claim,
        Aspect.VOLUME_ADDED: may_have_volume,
        Aspect.VOLUME_CHANGED: may_have_volume,
        Aspect.NODE_ADDED: always,
        Aspect.NODE_LABELS: always,
        Aspect.CSINODE_ADDED: always,
        Aspect.CSINODE_MIGRATED: always,
        Aspect.DRIVER_CHANGED: wants_no_capacity,
        Aspect.CAPACITY_ADDED: always,
        Aspect.CAPACITY_GREW: always,
        Aspect.CAPACITY_LET_GO: has_unbound_claim,
    },
    VOLUME_ZONE: {
        Aspect.CLASS_ADDED: is_delayed_class,
        Aspect.NODE_ADDED: always,
        Aspect.NODE_LABELS: always,
        Aspect.CLAIM_ADDED: names_claim,
        Aspect.CLAIM_CHANGED: names_claim,
        Aspect.VOLUME_ADDED: may_have_volume,
        Aspect.VOLUME_CHANGED: zones_changed,
    },
    NODE_VOLUME_LIMITS: {
        Aspect.CSINODE_ADDED: always,
        Aspect.CSINODE_DRIVERS: limit_grew,
        Aspect.NODE_ADDED: always,
        Aspect.NODE_ALLOCATABLE: attachable_grew,
        Aspect.DRIVER_CHANGED: driver_may_be_missing,
        Aspect.POD_LEFT: had_volumes,
        Aspect.CLAIM_ADDED: uses_claim,
        Aspect.ATTACHMENT_REMOVED: uses_any_claim,
    },
    VOLUME_RESTRICTIONS: {
        Aspect.POD_LEFT: shared_a_volume,
        Aspect.NODE_ADDED: always,
        Aspect.CLAIM_ADDED: names_claim,
    },
    # Not a plugin of Kubernetes: nodes that rejected the pod themselves (`rules.failure_memory`).
    NODE_REJECTED: dict.fromkeys(
        (
            Aspect.NODE_ADDED,
            Aspect.NODE_LABELS,
            Aspect.NODE_TAINTS,
            Aspect.NODE_ALLOCATABLE,
            Aspect.CSINODE_ADDED,
            Aspect.CSINODE_DRIVERS,
        ),
        always,
    ),
}


def are_known(rejectors: frozenset[str]) -> bool:
    """Whether hints are registered for all these plugins, and there is one. An extender or external plugin has no
    registrations, and a pod without rejectors found no nodes at all: any change may help those.
    """
    return bool(rejectors) and all(plugin in HINTS for plugin in rejectors)


@lru_cache(maxsize=4_096)
def hints_for(rejectors: frozenset[str], aspects: Aspects) -> tuple[Hint, ...]:
    """The hints to call, in no particular order; none: the change helps no pod that these plugins refused."""
    if not are_known(rejectors):
        return (always,)
    asked = (HINTS[plugin].get(aspect) for plugin in sorted(rejectors) for aspect in sorted(aspects))
    return tuple(dict.fromkeys(hint for hint in asked if hint is not None))


def helps(hints: tuple[Hint, ...], change: ObjectChange, pod: Pod, snapshot: Snapshot) -> bool:
    """A hint that fails counts as yes: a needless attempt costs a decision, a missed one five minutes."""
    for hint in hints:
        try:
            if hint(change, pod, snapshot):
                return True
        except Exception:
            return True
    return False
