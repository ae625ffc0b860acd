"""What is kept of a scheduling attempt: why each set of nodes refused the pod, or which node won, against whom."""

from typing import Any

from volsched.core.cycle import Attempt
from volsched.events.envelope import NewEvent
from volsched.model.workloads import Pod

SOME_NODES = 5
RUNNERS_UP = 3


def attempt_made(pod: Pod, found: Attempt, id_: str, decided_at: int, decider: str) -> NewEvent:
    """Reasons by node set, not by node: five thousand nodes refuse a pod in a handful of ways."""
    nodes: dict[str, list[str]] = {}
    for verdict in found.verdicts:
        for reason in verdict.status.reasons:
            nodes.setdefault(reason, []).append(verdict.node)
    detail: dict[str, Any] = {
        "message": "; ".join(found.status.reasons),
        "reasons": [
            {"reason": reason, "nodes": len(names), "some": names[:SOME_NODES]} for reason, names in nodes.items()
        ],
    }
    if found.chosen is not None:
        detail["score"] = found.chosen.score
        detail["runnersUp"] = [{"node": it.node, "score": it.score} for it in found.runners_up[:RUNNERS_UP]]
    data: dict[str, Any] = {
        "pod": pod.key, "pod_uid": pod.meta.uid, "outcome": "planned" if found.chosen else "unschedulable",
        "detail": detail, "decided_at": decided_at, "decider": decider,
    }  # fmt: skip
    if found.chosen is not None:
        data["node"] = found.chosen.node
    binding = id_ if found.chosen else None
    return NewEvent(stream=f"attempt/{id_}", type="AttemptMade", data=data, binding=binding)
