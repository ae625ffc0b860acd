"""NodeName: a pod that names its node goes nowhere else."""

from dataclasses import dataclass

from volsched.kube.workloads import Node, Pod
from volsched.scheduling.plugins.plugin import Prepared
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import SKIP, SUCCESS, Code, Status

OTHER_NODE = Status(Code.UNRESOLVABLE, ("node(s) didn't match the requested node name",))


@dataclass(frozen=True, slots=True)
class _Named(Prepared):
    name: str

    def filter(self, node: Node) -> Status:
        return SUCCESS if node.name == self.name else OTHER_NODE


@dataclass(frozen=True, slots=True)
class NodeName:
    name: str = "NodeName"

    def prefilter(self, snapshot: Snapshot, pod: Pod) -> tuple[Status, Prepared | None]:
        del snapshot
        return (SUCCESS, _Named(pod.node_name)) if pod.node_name else (SKIP, None)
