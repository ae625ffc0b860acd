"""What is kept of a scheduling attempt: why each set of nodes refused the pod, or which node won, against whom."""

from collections import Counter
from typing import Any

from volsched.core.cycle import EXAMPLES, NODE_VOLUME_LIMITS, Attempt
from volsched.core.status import TOO_MANY_VOLUMES, Code
from volsched.events.envelope import NewEvent
from volsched.model.workloads import Pod

RUNNERS_UP = 3
PLANNED = "planned"
UNSCHEDULABLE = "unschedulable"
ERROR = "error"
PREFILTER_TAIL = " not found"
"""What the reference adds where a PreFilter refused the pod: its search for something to free asks for what a
later PreFilter would have kept, and tells that there is none."""


def attempt_made(pod: Pod, found: Attempt, id_: str, decided_at: int, decider: str) -> NewEvent:
    """Reasons by node set, not by node: five thousand nodes refuse a pod in a handful of ways."""
    detail: dict[str, Any] = {"message": message_of(found), "reasons": _reasons(found)}
    if found.chosen is not None:
        detail["score"] = found.chosen.score
        if found.chosen.scores:
            detail["scores"] = dict(found.chosen.scores)
        detail["runnersUp"] = [{"node": it.node, "score": it.score} for it in found.runners_up[:RUNNERS_UP]]
    data: dict[str, Any] = {
        "pod": pod.key, "pod_uid": pod.meta.uid, "outcome": _outcome(found), "detail": detail,
        "decided_at": decided_at, "decider": decider,
    }  # fmt: skip
    if found.chosen is not None:
        data["node"] = found.chosen.node
    binding = id_ if found.chosen else None
    return NewEvent(stream=f"attempt/{id_}", type="AttemptMade", data=data, binding=binding)


def message_of(found: Attempt) -> str:
    """Why the pod can go nowhere, in one line; empty where it can."""
    return "; ".join(found.status.reasons)


def told_message(found: Attempt) -> str:
    """The same as the pod is told it, word for word as by the reference."""
    before_nodes = bool(found.rejectors) and not found.refused
    return message_of(found) + (PREFILTER_TAIL if before_nodes else "")


def rejectors_of(found: Attempt) -> frozenset[str]:
    """The plugins whose hints may bring the pod back; none where it had no node to be refused by."""
    # Attach limits are judged inside the volume decision (behaviour 10.4), but it is slots that must come free.
    limited = found.rejectors and TOO_MANY_VOLUMES in message_of(found)
    return found.rejectors | {NODE_VOLUME_LIMITS} if limited else found.rejectors


def _outcome(found: Attempt) -> str:
    if found.chosen is not None:
        return PLANNED
    return ERROR if found.status.code is Code.ERROR else UNSCHEDULABLE


def _reasons(found: Attempt) -> list[dict[str, Any]]:
    """The commonest first. One reason may be part of several refusals, but no node gave two of them."""
    counts: Counter[str] = Counter()
    named: dict[str, list[str]] = {}
    for status, count in found.refused.items():
        for reason in dict.fromkeys(status.reasons):
            counts[reason] += count
            named.setdefault(reason, []).extend(found.examples.get(status, ()))
    ordered = sorted(counts, key=lambda reason: (-counts[reason], reason))
    return [
        {"reason": reason, "nodes": counts[reason], "some": sorted(named[reason])[:EXAMPLES]} for reason in ordered
    ]
