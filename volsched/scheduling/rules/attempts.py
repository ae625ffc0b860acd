"""The stored record of a scheduling attempt, and the pod's status that reports it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from volsched.kube.manifest import Manifest, spec
from volsched.kube.manifest import status as pod_status
from volsched.kube.problems import shortened
from volsched.kube.workloads import Pod
from volsched.log.events.envelope import NewEvent, canonical
from volsched.objects.rules.object_events import SCHEDULER, notice_event
from volsched.scheduling.rules.cycle import EXAMPLES, NODE_VOLUME_LIMITS, Attempt, Verdict
from volsched.scheduling.rules.reasons import GATED, TOO_MANY_VOLUMES, assigned
from volsched.scheduling.rules.status import Code, Failure, Status, distance

RUNNERS_UP = 3
REASONS_KEPT = 3
"""Number of reasons stored with their claims: it bounds the stored size for any number of nodes and claims."""
CLAIMS_KEPT = 3
RULES_KEPT = 3
LONGEST = 120
PLANNED = "planned"
UNSCHEDULABLE = "unschedulable"
ERROR = "error"
FAILED = "failed"
"""The attempt was planned, and its binding failed (`binding.rules.failures`)."""
PREFILTER_TAIL = " not found"
"""The reference's suffix if a PreFilter refused the pod: its preemption looks for the state of a later PreFilter,
and reports that there is none."""


def event_of_attempt(pod: Pod, decision: Attempt, id_: str, decided_at: int, decider: str) -> NewEvent:
    """The event that stores an attempt, with reasons by set of nodes: 5,000 nodes refuse a pod for few reasons."""
    detail: dict[str, Any] = {"message": message_of(decision), "reasons": _reasons(decision)}
    if decision.chosen is not None:
        detail["score"] = decision.chosen.score
        if decision.chosen.scores:
            detail["scores"] = dict(decision.chosen.scores)
        detail["runnersUp"] = [{"node": it.node, "score": it.score} for it in decision.runners_up[:RUNNERS_UP]]
    data: dict[str, Any] = {
        "pod": pod.key, "pod_uid": pod.meta.uid, "outcome": _outcome(decision), "detail": detail,
        "decided_at": decided_at, "decider": decider,
    }  # fmt: skip
    if decision.chosen is not None:
        data["node"] = decision.chosen.node
    binding = id_ if decision.chosen else None
    return NewEvent(stream=f"attempt/{id_}", type="AttemptMade", data=data, binding=binding)


def message_of(decision: Attempt) -> str:
    """Why no node fits, in one line; empty if one does."""
    return "; ".join(decision.status.reasons)


def pod_message(decision: Attempt) -> str:
    """The message on the pod, word for word as in the reference."""
    before_nodes = bool(decision.rejectors) and not decision.refused
    return message_of(decision) + (PREFILTER_TAIL if before_nodes else "")


def claims_kept(decision: Attempt) -> str:
    """The stored details per claim, for comparison: an attempt with the same message may have other details."""
    return canonical([it.get("claims", []) for it in _reasons(decision)])


def rejectors_of(decision: Attempt) -> frozenset[str]:
    """The plugins whose hints may wake the pod; empty if there were no nodes."""
    # Attach limits are checked inside the volume decision, but freed slots must wake the pod.
    limited = decision.rejectors and TOO_MANY_VOLUMES in message_of(decision)
    return decision.rejectors | {NODE_VOLUME_LIMITS} if limited else decision.rejectors


def _outcome(decision: Attempt) -> str:
    if decision.chosen is not None:
        return PLANNED
    return ERROR if decision.status.code is Code.ERROR else UNSCHEDULABLE


def _reasons(decision: Attempt) -> list[dict[str, Any]]:
    """The reasons, the commonest first. One may be part of several refusals, but each node has one refusal."""
    counts: Counter[str] = Counter()
    named: dict[str, list[str]] = {}
    claims: dict[str, list[dict[str, Any]]] = {}
    in_full = decision.in_full or _nearest(decision.verdicts)
    for status, count in sorted(decision.refused.items(), key=lambda it: -it[1]):
        for reason in dict.fromkeys(status.reasons):
            counts[reason] += count
            named.setdefault(reason, []).extend(decision.examples.get(status, ()))
            if status in in_full and reason not in claims and len(claims) < REASONS_KEPT:
                claims[reason] = claim_reasons(in_full[status], reason)
    ordered = sorted(counts, key=lambda reason: (-counts[reason], reason))
    return [
        {"reason": reason, "nodes": counts[reason], "some": sorted(named[reason])[:EXAMPLES]}
        | ({"claims": claims[reason]} if claims.get(reason) else {})
        for reason in ordered
    ]


def claim_reasons(verdict: Verdict, reason: str) -> list[dict[str, Any]]:
    """The stored form of a node's refusal: its claims, the failures of each, and the nearest volume."""
    entries: list[dict[str, Any]] = []
    for rejection in [it for it in verdict.status.rejections if it.reason == reason][:CLAIMS_KEPT]:
        entry: dict[str, Any] = {"claim": rejection.claim, "node": verdict.node}
        if rejection.failures:
            entry["failures"] = [_failure(it) for it in rejection.failures[:RULES_KEPT]]
        if rejection.misses:
            nearest = rejection.misses[0]
            entry |= {"volume": nearest.volume, "rules": [_failure(it) for it in nearest.failures[:RULES_KEPT]]}
        entries.append(entry)
    return entries


def _nearest(verdicts: Iterable[Verdict]) -> dict[Status, Verdict]:
    """For each refusal, the node that comes nearest to fitting the pod."""
    nearest: dict[Status, Verdict] = {}
    for verdict in verdicts:
        known = nearest.get(verdict.status)
        if verdict.status.rejections and (
            known is None or distance(verdict.status.rejections) < distance(known.status.rejections)
        ):
            nearest[verdict.status] = verdict
    return nearest


def _failure(failure: Failure) -> dict[str, str]:
    return {
        "rule": failure.rule.value,
        "wanted": shortened(failure.wanted, LONGEST),
        "got": shortened(failure.got, LONGEST),
    }


# A pod's scheduling status: the condition PodScheduled, the nominated node, and the events.

POD_SCHEDULED = "PodScheduled"
UNSCHEDULABLE_REASON = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"
SCHEDULING_GATED = "SchedulingGated"
FAILED_SCHEDULING = "FailedScheduling"
"""The reason of the event that accompanies the condition."""
SCHEDULED = "Scheduled"
COMPONENT = SCHEDULER
Conditions = list[dict[str, Any]]


def reason_of(code: Code) -> str:
    """The condition's reason for an attempt that ended with this code."""
    return SCHEDULER_ERROR if code is Code.ERROR else UNSCHEDULABLE_REASON


def refused_conditions(pod: Manifest, *, reason: str, message: str, now: str) -> Conditions | None:
    """The pod's conditions once it found no node; None if they are the same already, word for word.

    `now` is an RFC 3339 time; the time of the last transition is kept.
    """
    said = _scheduled_condition(pod)
    wanted = {"type": POD_SCHEDULED, "status": "False", "reason": reason, "message": message}
    if said is not None and {**said, **wanted} == said:
        return None
    since = said.get("lastTransitionTime", now) if said is not None and said.get("status") == "False" else now
    return _with(pod, {**wanted, "lastTransitionTime": since})


def gated_conditions(pod: Manifest, now: str) -> Conditions | None:
    """The conditions of a pod that is created with scheduling gates; None if it has none."""
    if not spec(pod).get("schedulingGates"):
        return None
    held_up = {"type": POD_SCHEDULED, "status": "False", "reason": SCHEDULING_GATED, "message": GATED}
    return [{**held_up, "lastTransitionTime": now}]


def nomination(node: str | None) -> dict[str, Any]:
    """Sets or removes the pod's nominated node."""
    return {"status": {"nominatedNodeName": node}}


def placing_patch(pod: Manifest, node: str, now: str) -> dict[str, Any]:
    """The writes of binding to the pod: its node, the condition, and no nomination."""
    changed: dict[str, Any] = {"conditions": placed_conditions(pod, now)}
    if pod_status(pod).get("nominatedNodeName"):
        changed["nominatedNodeName"] = None
    return {"spec": {"nodeName": node}, "status": changed}


def placed_conditions(pod: Manifest, now: str) -> Conditions:
    """The pod's conditions once it has its node."""
    said = _scheduled_condition(pod)
    since = said.get("lastTransitionTime", now) if said is not None and said.get("status") == "True" else now
    return _with(pod, {"type": POD_SCHEDULED, "status": "True", "lastTransitionTime": since})


def scheduled_event(plan: Mapping[str, Any], stream: str, *, binding: str, now: str) -> NewEvent:
    """The Kubernetes event that reports the node of a plan's pod."""
    return notice_event(
        None, stream, kind="Pod", key=plan["pod"], uid=plan["pod_uid"], type_="Normal", reason=SCHEDULED,
        message=scheduled_message(plan), component=COMPONENT, now=now, binding=binding,
    )  # fmt: skip


def scheduled_message(plan: Mapping[str, Any]) -> str:
    return assigned(plan["pod"], plan["node"])


def scheduled_stream(pod: str, binding: str) -> str:
    """The event's stream: one per binding, so that its existence need not be checked."""
    return f"notice/{pod}.{binding}"


def _scheduled_condition(pod: Manifest) -> dict[str, Any] | None:
    return next((it for it in pod_status(pod).get("conditions", ()) if it.get("type") == POD_SCHEDULED), None)


def _with(pod: Manifest, condition: dict[str, Any]) -> Conditions:
    others = [it for it in pod_status(pod).get("conditions", ()) if it.get("type") != POD_SCHEDULED]
    return [*others, condition]
