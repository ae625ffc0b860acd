"""TaintToleration: taints keep pods away that do not tolerate them, or make a node less welcome."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from volsched.kube.workloads import Node, Pod, Taint, Toleration
from volsched.scheduling.plugins.plugin import MAX_SCORE, Prepared, normalised
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import SUCCESS, Code, Status

NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"
PREFER_NO_SCHEDULE = "PreferNoSchedule"
UNTOLERATED = Status(Code.UNRESOLVABLE, ("node(s) had untolerated taint(s)",))


@dataclass(frozen=True, slots=True)
class _Judging(Prepared):
    tolerations: tuple[Toleration, ...]

    def filter(self, node: Node) -> Status:
        return taint_status(self.tolerations, node.taints)

    def scores(self, nodes: Sequence[Node]) -> Sequence[int]:
        return taint_scores([unwelcome(self.tolerations, node.taints) for node in nodes])


@dataclass(frozen=True, slots=True)
class TaintToleration:
    name: str = "TaintToleration"

    def prefilter(self, snapshot: Snapshot, pod: Pod) -> tuple[Status, Prepared | None]:
        del snapshot
        return SUCCESS, _Judging(pod.tolerations)


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def keeps_away(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> Taint | None:
    """The first taint that the pod may not be on a node with."""
    hard = (taint for taint in taints if taint.effect in (NO_SCHEDULE, NO_EXECUTE))
    return next((taint for taint in hard if not tolerates(tolerations, taint)), None)


def taint_status(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> Status:
    """Which taint it is, the reason does not say, as in the reference: nodes are counted by their reasons."""
    return SUCCESS if keeps_away(tolerations, taints) is None else UNTOLERATED


def unwelcome(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> int:
    """How many taints would rather not have the pod."""
    soft = (taint for taint in taints if taint.effect == PREFER_NO_SCHEDULE)
    return sum(not tolerates(tolerations, taint) for taint in soft)


def taint_scores(counts: Sequence[int]) -> list[int]:
    """The fewer the better. Where there are none, all nodes would get the same, which is left out."""
    if not any(counts):
        return [0] * len(counts)
    return [MAX_SCORE - share for share in normalised(counts)]


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case operator:
            return operator == "Exists"
