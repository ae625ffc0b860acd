"""Whether a node takes a pod, in the one order that keeps empty claims empty for as long as possible.

Everything that may turn the pod away is asked before its claims are marked: a pod that is rejected leaves them
Clean, so that they can be asked back and the pod moved. Once they are marked they are Dirty for good.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from volsched.kube.claim_reference import reaches
from volsched.kube.data_state import DIRTY
from volsched.kube.meta import ROLLBACK
from volsched.kube.workloads import Node, Pod
from volsched.node_agent.rules.checks import CHECKS, Check
from volsched.node_agent.rules.mount_check import Mount, mount_problem, out_of_reach


@dataclass(frozen=True, slots=True)
class Admitted:
    """The pod may start once these claims are marked Dirty."""

    marks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rejected:
    """The pod goes back to scheduling; its claims stay as they are."""

    message: str


@dataclass(frozen=True, slots=True)
class NotYet:
    """A claim cannot be mounted now. Nothing is marked: nothing is about to be used."""

    message: str


Verdict = Admitted | Rejected | NotYet


def admit(
    pod: Pod, node: Node, others: Sequence[Pod], mounts: Sequence[Mount], *, checks: Sequence[Check] = CHECKS
) -> Verdict:
    """`others` are the pods that the node has admitted and that have not come to their end."""
    refusal = _refusal(pod, node, others, mounts, checks)
    if refusal is not None:
        return Rejected(refusal)
    # A claim that is not bound completely has no data state of its own yet: marked now, the mark would be lost
    # when the controller completes the binding.
    problem = mount_problem(pod, node, mounts)
    return Admitted(to_mark(mounts)) if problem is None else NotYet(problem)


def to_mark(mounts: Sequence[Mount]) -> tuple[str, ...]:
    """Claims that do not say yet that they are used, in name order; absent means Dirty, and is made to say so."""
    claims = {mount.claim.key for mount in mounts if mount.claim is not None and mount.claim.data_state != DIRTY}
    return tuple(sorted(claims))


def _refusal(
    pod: Pod, node: Node, others: Sequence[Pod], mounts: Sequence[Mount], checks: Sequence[Check]
) -> str | None:
    for check in checks:
        reason = check(pod, node, others)
        if reason is not None:
            return reason
    for mount in mounts:
        if mount.volume is not None and not reaches(mount.volume, node):
            return out_of_reach(mount.volume, node)
    for mount in mounts:
        if mount.claim is not None and ROLLBACK in mount.claim.meta.annotations:
            return f'PersistentVolumeClaim "{mount.use.key}" is undergoing rollback'
    return None
