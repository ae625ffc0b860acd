"""NodeUnschedulable: a cordoned node takes only pods that tolerate being there."""

from collections.abc import Sequence
from dataclasses import dataclass

from volsched.kube.workloads import Node, Pod, Taint, Toleration
from volsched.scheduling.plugins.plugin import Prepared
from volsched.scheduling.plugins.taint_toleration import NO_SCHEDULE, tolerates
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import SKIP, SUCCESS, Code, Status

UNSCHEDULABLE = Status(Code.UNRESOLVABLE, ("node(s) were unschedulable",))
CORDONED = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)


class _Judging(Prepared):
    def filter(self, node: Node) -> Status:
        return UNSCHEDULABLE if node.unschedulable else SUCCESS


@dataclass(frozen=True, slots=True)
class NodeUnschedulable:
    name: str = "NodeUnschedulable"

    def prefilter(self, snapshot: Snapshot, pod: Pod) -> tuple[Status, Prepared | None]:
        del snapshot
        return (SKIP, None) if goes_anywhere(pod.tolerations) else (SUCCESS, _Judging())


def goes_anywhere(tolerations: Sequence[Toleration]) -> bool:
    """Cordoned or not is all the same to the pod."""
    return tolerates(tolerations, CORDONED)
