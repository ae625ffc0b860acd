"""The condition PodScheduled: what a pod says of its own scheduling (behaviour 0.2)."""

from typing import Any

from volsched.core.binding.seen import Manifest, status
from volsched.core.status import Code

POD_SCHEDULED = "PodScheduled"
UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"
FAILED_SCHEDULING = "FailedScheduling"
"""Reason of the event that goes with the condition."""
Conditions = list[dict[str, Any]]


def reason_of(code: Code) -> str:
    """The condition's reason for an attempt that ended with this code."""
    return SCHEDULER_ERROR if code is Code.ERROR else UNSCHEDULABLE


def refused_conditions(pod: Manifest, *, reason: str, message: str, now: str) -> Conditions | None:
    """The pod's conditions once it found no node; None where it says so already, word for word.

    `now` is an RFC 3339 time; it is kept from the moment at which the pod last lost or gained its node.
    """
    said = _said(pod)
    wanted = {"type": POD_SCHEDULED, "status": "False", "reason": reason, "message": message}
    if said is not None and {**said, **wanted} == said:
        return None
    since = said.get("lastTransitionTime", now) if said is not None and said.get("status") == "False" else now
    return _with(pod, {**wanted, "lastTransitionTime": since})


def placed_conditions(pod: Manifest) -> Conditions | None:
    """The pod's conditions once it has its node; None where it never said that it had none.

    Most pods are placed at once and say nothing: that they were is told by their binding.
    """
    return None if _said(pod) is None else _with(pod, {"type": POD_SCHEDULED, "status": "True"})


def _said(pod: Manifest) -> dict[str, Any] | None:
    return next((it for it in status(pod).get("conditions", ()) if it.get("type") == POD_SCHEDULED), None)


def _with(pod: Manifest, condition: dict[str, Any]) -> Conditions:
    others = [it for it in status(pod).get("conditions", ()) if it.get("type") != POD_SCHEDULED]
    return [*others, condition]
