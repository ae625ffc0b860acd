"""Hints of the plugins that look at where other pods are: inter-pod affinity and topology spread."""

from volsched.kube.workloads import Node, Pod
from volsched.scheduling.plugins.affinity_terms import AffinityTerm, means, sound_terms, terms_of
from volsched.scheduling.plugins.inter_pod_affinity import means_all
from volsched.scheduling.plugins.topology_spread import DO_NOT_SCHEDULE, Constraint, constraints_of
from volsched.scheduling.queue.object_changes import ObjectChange, is_placed
from volsched.scheduling.rules.snapshot import Snapshot


def is_neighbour(change: ObjectChange, pod: Pod, snapshot: Snapshot) -> bool:
    """A pod came, left or changed its labels: one more to be near to, or one fewer to keep away from."""
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
        # With the last of them gone, the pod may be the first of those that want to be together.
        return True
    if any(_means(it, old, snapshot) and not _means(it, new, snapshot) for it in mine.anti_affinity):
        return True
    theirs = () if old is None or new is not None else sound_terms(old).anti_affinity
    return any(means(term, pod, snapshot) for term in theirs)


def shifts_balance(change: ObjectChange, pod: Pod, _: Snapshot) -> bool:
    """A pod that one of the constraints counts came, left, or is counted otherwise now."""
    counted = [
        (_counted(constraint, pod, change.old), _counted(constraint, pod, change.new))
        for constraint in constraints_of(pod, DO_NOT_SCHEDULE)
    ]
    moved = _moved(change.old, change.new)
    return any(before != after or (before and moved) for before, after in counted)


def shifts_domains(change: ObjectChange, pod: Pod, _: Snapshot) -> bool:
    """A node with the labels of all constraints came, left or was changed: there are other domains now."""
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
