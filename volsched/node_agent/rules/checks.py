"""What a node asks about a pod besides its volumes: those of the scheduler's filters that a kubelet repeats.

Between a decision and its admission a node may have changed, and a pod whose nodeName was set by hand was never
decided on at all.
"""

from collections.abc import Callable, Sequence

from volsched.kube.workloads import Node, Pod
from volsched.scheduling.plugins.node_affinity import selects
from volsched.scheduling.plugins.node_resources import room_of, shortage, wanted_by
from volsched.scheduling.plugins.taint_toleration import NO_EXECUTE, keeps_away

Check = Callable[[Pod, Node, Sequence[Pod]], str | None]
"""Why the pod may not run on the node beside these others, or None."""


def resources(pod: Pod, node: Node, others: Sequence[Pod]) -> str | None:
    missing = shortage(wanted_by(pod), room_of(node, others)).reasons
    return f'node "{node.name}" has not enough room: {", ".join(missing)}' if missing else None


def node_affinity(pod: Pod, node: Node, _: Sequence[Pod]) -> str | None:
    """The pod's node selector and its required node affinity."""
    return None if selects(pod, node) else f'node "{node.name}" does not match the pod\'s node affinity/selector'


def taints(pod: Pod, node: Node, _: Sequence[Pod]) -> str | None:
    """Only taints that would also drive a running pod away: to be scheduled past the others is allowed."""
    driving = [taint for taint in node.taints if taint.effect == NO_EXECUTE]
    found = keeps_away(pod.tolerations, driving)
    return None if found is None else f'node "{node.name}" has taint {found.key}:NoExecute, which is not tolerated'


CHECKS: tuple[Check, ...] = (resources, node_affinity, taints)
