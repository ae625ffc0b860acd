"""Hints of the plugins that look at a node alone: may this node have the pod now, where it would not before?"""

from volsched.kube.workloads import Node, Pod
from volsched.scheduling.plugins.node_affinity import selects
from volsched.scheduling.plugins.node_resources import room_of, shortage, wanted_by
from volsched.scheduling.plugins.resource_requests import PODS, pod_requests, units_of
from volsched.scheduling.plugins.taint_toleration import keeps_away
from volsched.scheduling.queue.object_changes import ObjectChange
from volsched.scheduling.rules.snapshot import Snapshot


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
    """An empty node like this could have the pod, and it has more than before of something the pod asks for."""
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
    """The pod that is placed gives back some of what the waiting one asks for."""
    old, new = change.old, change.new
    if not isinstance(old, Pod) or not isinstance(new, Pod):
        return False
    before, after = pod_requests(old), pod_requests(new)
    return any(after.get(name, 0) < before.get(name, 0) for name in pod_requests(pod))
