"""A pod's scheduling status: the condition PodScheduled, the nominated node, and the events."""

from collections.abc import Mapping
from typing import Any

from volsched.kube.manifest import Manifest, spec, status
from volsched.log.events.envelope import NewEvent
from volsched.objects.rules.notices import notice_event
from volsched.scheduling.rules.status import Code

POD_SCHEDULED = "PodScheduled"
UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"
SCHEDULING_GATED = "SchedulingGated"
GATED = "Scheduling is blocked due to non-empty scheduling gates"
FAILED_SCHEDULING = "FailedScheduling"
"""Reason of the event that goes with the condition."""
SCHEDULED = "Scheduled"
COMPONENT = "volsched-scheduler"
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


def gated_conditions(pod: Manifest, now: str) -> Conditions | None:
    """Those of a pod that is created with scheduling gates; None where it has none."""
    if not spec(pod).get("schedulingGates"):
        return None
    held_up = {"type": POD_SCHEDULED, "status": "False", "reason": SCHEDULING_GATED, "message": GATED}
    return [{**held_up, "lastTransitionTime": now}]


def nomination(node: str | None) -> dict[str, Any]:
    """Says where the pod will be, or takes that back."""
    return {"status": {"nominatedNodeName": node}}


def placing_patch(pod: Manifest, node: str, now: str) -> dict[str, Any]:
    """What binding does to the pod: it has its node, says so, and is no longer nominated for one."""
    changed: dict[str, Any] = {"conditions": placed_conditions(pod, now)}
    if status(pod).get("nominatedNodeName"):
        changed["nominatedNodeName"] = None
    return {"spec": {"nodeName": node}, "status": changed}


def placed_conditions(pod: Manifest, now: str) -> Conditions:
    """The pod's conditions once it has its node."""
    said = _said(pod)
    since = said.get("lastTransitionTime", now) if said is not None and said.get("status") == "True" else now
    return _with(pod, {"type": POD_SCHEDULED, "status": "True", "lastTransitionTime": since})


def scheduled_event(plan: Mapping[str, Any], stream: str, *, binding: str, now: str) -> NewEvent:
    """The Kubernetes event that tells which node the pod of a plan got."""
    return notice_event(
        None, stream, kind="Pod", key=plan["pod"], uid=plan["pod_uid"], type_="Normal", reason=SCHEDULED,
        message=scheduled_message(plan), component=COMPONENT, now=now, binding=binding,
    )  # fmt: skip


def scheduled_message(plan: Mapping[str, Any]) -> str:
    return f"Successfully assigned {plan['pod']} to {plan['node']}"


def scheduled_stream(pod: str, binding: str) -> str:
    """One for each binding, so that nobody need look whether it is there already."""
    return f"notice/{pod}.{binding}"


def _said(pod: Manifest) -> dict[str, Any] | None:
    return next((it for it in status(pod).get("conditions", ()) if it.get("type") == POD_SCHEDULED), None)


def _with(pod: Manifest, condition: dict[str, Any]) -> Conditions:
    others = [it for it in status(pod).get("conditions", ()) if it.get("type") != POD_SCHEDULED]
    return [*others, condition]
