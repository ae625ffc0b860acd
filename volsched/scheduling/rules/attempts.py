"""What is kept of a scheduling attempt: why each set of nodes refused the pod, or which node won, against whom."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from volsched.kube.workloads import Pod
from volsched.log.events.envelope import NewEvent, canonical
from volsched.scheduling.rules.cycle import EXAMPLES, NODE_VOLUME_LIMITS, Attempt, Verdict
from volsched.scheduling.rules.rejection import Failure, distance
from volsched.scheduling.rules.status import TOO_MANY_VOLUMES, Code, Status

RUNNERS_UP = 3
REASONS_KEPT = 3
"""That are told claim by claim. Whatever the number of nodes and claims, what is kept of an attempt is bounded."""
CLAIMS_KEPT = 3
RULES_KEPT = 3
LONGEST = 120
PLANNED = "planned"
UNSCHEDULABLE = "unschedulable"
ERROR = "error"
FAILED = "failed"
"""It was planned, and the binding failed (`core.binding.failures`)."""
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


def claims_kept(found: Attempt) -> str:
    """What is kept of it claim by claim, to be compared: the same message may stand for something else by now."""
    return canonical([it.get("claims", []) for it in _reasons(found)])


def rejectors_of(found: Attempt) -> frozenset[str]:
    """The plugins whose hints may bring the pod back; none where it had no node to be refused by."""
    # Attach limits are judged inside the volume decision, but it is slots that must come free.
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
    claims: dict[str, list[dict[str, Any]]] = {}
    in_full = found.in_full or _nearest(found.verdicts)
    for status, count in sorted(found.refused.items(), key=lambda it: -it[1]):
        for reason in dict.fromkeys(status.reasons):
            counts[reason] += count
            named.setdefault(reason, []).extend(found.examples.get(status, ()))
            if status in in_full and reason not in claims and len(claims) < REASONS_KEPT:
                claims[reason] = claim_reasons(in_full[status], reason)
    ordered = sorted(counts, key=lambda reason: (-counts[reason], reason))
    return [
        {"reason": reason, "nodes": counts[reason], "some": sorted(named[reason])[:EXAMPLES]}
        | ({"claims": claims[reason]} if claims.get(reason) else {})
        for reason in ordered
    ]


def claim_reasons(verdict: Verdict, reason: str) -> list[dict[str, Any]]:
    """What is kept of a node's refusal: its claims, what each lacks, and the volume that came nearest."""
    found: list[dict[str, Any]] = []
    for rejection in [it for it in verdict.status.rejections if it.reason == reason][:CLAIMS_KEPT]:
        entry: dict[str, Any] = {"claim": rejection.claim, "node": verdict.node}
        if rejection.failures:
            entry["failures"] = [_failure(it) for it in rejection.failures[:RULES_KEPT]]
        if rejection.misses:
            nearest = rejection.misses[0]
            entry |= {"volume": nearest.volume, "rules": [_failure(it) for it in nearest.failures[:RULES_KEPT]]}
        found.append(entry)
    return found


def _nearest(verdicts: Iterable[Verdict]) -> dict[Status, Verdict]:
    """Of each refusal, the node that comes nearest to taking the pod."""
    found: dict[Status, Verdict] = {}
    for verdict in verdicts:
        known = found.get(verdict.status)
        if verdict.status.rejections and (
            known is None or distance(verdict.status.rejections) < distance(known.status.rejections)
        ):
            found[verdict.status] = verdict
    return found


def _failure(failure: Failure) -> dict[str, str]:
    return {"rule": failure.rule.value, "wanted": _short(failure.wanted), "got": _short(failure.got)}


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
