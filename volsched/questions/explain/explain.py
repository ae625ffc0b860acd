"""Why a pod can or cannot be placed, as data, without objects that the caller may not see."""

import re
from collections.abc import Callable, Collection
from dataclasses import asdict, replace
from typing import Any

from volsched.kube.meta import OUR_SCHEDULERS
from volsched.kube.workloads import Pod
from volsched.questions.explain.remedies import Remedy, find_remedies
from volsched.questions.explain.survey import (
    PER_REASON,
    WHOLE_STORE,
    NodeSurroundings,
    RefusalGroup,
    StoreSample,
    survey,
)
from volsched.questions.simulate.changes import Changes, objects_of
from volsched.scheduling.index import Index
from volsched.scheduling.rules.cycle import Verdict
from volsched.scheduling.rules.failure_memory import NO_DEMERITS, Demerits
from volsched.scheduling.rules.pod_claims import claim_uses, is_delay_binding, is_fully_bound
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import AttemptError, Code, distance

# These answers are about the present. `stored_decisions` has the decisions of the past.

SET_BY_HAND = (
    "its node was set by hand (spec.nodeName), so that no scheduler looks at it: claims that wait for their first "
    "consumer stay Pending"
)
RECREATE = "delete the pod and create it without spec.nodeName"
RECREATE_THERE = (
    f"{RECREATE}; to keep it on that node, give it a nodeSelector with the node's kubernetes.io/hostname"
)


def explain_pod(
    index: Index,
    pod: Pod,
    *,
    only: str | None = None,
    avoid: frozenset[str] = frozenset(),
    demerits: Demerits = NO_DEMERITS,
    binding: str | None = None,
    sample: StoreSample = WHOLE_STORE,
) -> dict[str, Any]:
    """The decision about the pod as it would be made now, and, if no node fits, the remedies.

    A pod with a node is decided as if it had none. `only`: decide about one node alone; `avoid`: nodes that
    recently rejected the pod; `demerits` count against nodes where its bindings failed; `binding`: its binding in
    flight.
    """
    unplaced = replace(pod, node_name="")
    surroundings = NodeSurroundings(index.snapshot, unplaced, index.profile, avoid, demerits, sample)
    result = survey(index, unplaced, surroundings, only=only)
    remedies = [] if result.fits else find_remedies(index, surroundings, result, only=only)
    answer = {
        "pod": pod.key,
        "profile": index.profile.name,
        "nodes": len(index.snapshot.nodes) if only is None else 1,
        "node": pod.node_name or None,
        "binding": binding,
        "fits": result.fits,
        "error": result.attempt.status.code is Code.ERROR,
        "message": "; ".join(result.attempt.status.reasons),
        "bound": [{"claim": claim.key, "volume": claim.volume_name} for claim in result.attempt.claims.bound],
        "chosen": None if result.attempt.chosen is None else placement(result.attempt.chosen),
        "runnersUp": [{"node": it.node, "score": it.score} for it in result.attempt.runners_up],
        "refused": [_group(group) for group in result.refusals()],
        "remedies": [_remedy(it) for it in remedies],
    }
    if pod.node_name and pod.node_name not in index.snapshot.nodes:
        answer["nodeGone"] = True
    if pod.scheduler_name not in OUR_SCHEDULERS:
        answer["scheduler"] = pod.scheduler_name
    stuck = stuck_claims(index.snapshot, pod)
    if stuck and binding is None:
        # A remedy is tried before it is proposed: this one on the pod's own node, as `bind claim` does.
        is_there = pod.node_name in index.snapshot.nodes
        can_serve = is_there and survey(index, unplaced, surroundings, only=pod.node_name).fits
        remedies_there = _stuck_remedies(pod, stuck, can_serve=can_serve)
        answer["stuck"] = {"claims": stuck, "why": SET_BY_HAND, "remedies": remedies_there}
    return answer


def _stuck_remedies(pod: Pod, claims: list[str], *, can_serve: bool) -> list[str]:
    if not can_serve:
        return [f"{pod.node_name} cannot serve its claims; {RECREATE}, and it goes where they can be served"]
    return [*(f"run: volsched bind claim {it} --node {pod.node_name}" for it in claims), f"or {RECREATE_THERE}"]


def stuck_claims(snapshot: Snapshot, pod: Pod) -> list[str]:
    """Claims that stay unbound because the pod's node was set by hand: no scheduler handles the pod."""
    if not pod.node_name:
        return []
    claims = (snapshot.claim(key) for key in dict.fromkeys(use.key for use in claim_uses(pod)))
    unbound = (claim for claim in claims if claim is not None and not is_fully_bound(claim))
    try:
        return [claim.key for claim in unbound if is_delay_binding(snapshot, claim)]
    except AttemptError:
        return []


def placement(verdict: Verdict) -> dict[str, Any]:
    return {
        "node": verdict.node,
        "score": verdict.score,
        "scores": dict(verdict.scores),
        "bindings": [
            {
                "claim": binding.claim.key,
                "volume": binding.volume.name,
                "requested": str(binding.claim.size),
                "capacity": str(binding.volume.size),
            }
            for binding in verdict.answer.bindings
        ],
        "provisions": [
            {
                "claim": provision.claim.key,
                "class": provision.claim.class_name,
                "requested": str(provision.claim.size),
                "capacityObject": None if provision.capacity is None else provision.capacity.key,
            }
            for provision in verdict.answer.provisions
        ],
    }


def _group(group: RefusalGroup) -> dict[str, Any]:
    return {
        "plugin": group.plugin,
        "reasons": list(group.status.reasons),
        "count": group.count,
        "nodes": [verdict.node for verdict in group.verdicts],
        "details": [
            {
                "node": verdict.node,
                "rejections": [asdict(rejection) for rejection in verdict.status.rejections],
            }
            for verdict in sorted(group.verdicts, key=_distance)[:PER_REASON]
            if verdict.status.rejections
        ],
    }


def _distance(verdict: Verdict) -> tuple[int, int, str]:
    return *distance(verdict.status.rejections), verdict.node


def _remedy(remedy: Remedy) -> dict[str, Any]:
    return {
        "changes": _changes(remedy.changes),
        "objects": sorted(f"{kind}/{key}" for kind, key in objects_of(remedy.changes)),
        "bytes": sum(change.size for change in remedy.changes),
        "node": remedy.node,
        "elsewhere": [[change.text for change in changes] for changes in remedy.elsewhere],
    }


def _changes(changes: Changes) -> list[dict[str, str]]:
    return [{"kind": change.kind.value, "text": change.text} for change in changes]


# A caller with access to some namespaces must not learn of objects in the others.
#
# A remedy that needs a hidden object is left out, and counted; elsewhere the name of such an object is removed.
# The finished answer is searched, so that no text is missed.

WITHHELD = "an object in another namespace"
_KEY = re.compile(r"(?<![\w.-])([a-z0-9](?:[a-z0-9-]*[a-z0-9])?)/([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)")

Explanation = dict[str, Any]


def redacted(answer: Explanation, hidden: Collection[str]) -> Explanation:
    """The explanation without the objects of these namespaces."""
    if not hidden:
        return answer
    names = frozenset(hidden)
    cut = {name: _redacted_part(value, names) for name, value in answer.items()}
    visible, withheld = _visible_remedies(answer.get("remedies", []), names)
    if "remedies" in answer:
        cut["remedies"] = visible
    if withheld:
        cut["remediesWithheld"] = withheld
    return {name: _redacted(value, names) for name, value in cut.items()}


def _redacted_part(value: Any, hidden: frozenset[str]) -> Any:
    """A part of the explanation, with its own remedies redacted, if it has any."""
    if not isinstance(value, dict) or "remedies" not in value:
        return value
    return {**value, "remedies": _visible_remedies(value["remedies"], hidden)[0]}


def _visible_remedies(remedies: list[Any], hidden: frozenset[str]) -> tuple[list[Any], int]:
    """The remedies that mention no object of these namespaces, and the number of the others."""
    visible: list[Any] = []
    for remedy in remedies:
        elsewhere = remedy.get("elsewhere", []) if isinstance(remedy, dict) else []
        own = {**remedy, "elsewhere": []} if isinstance(remedy, dict) else remedy
        if not _mentions(own, hidden):
            shown = [it for it in elsewhere if not _mentions(it, hidden)]
            visible.append({**remedy, "elsewhere": shown} if isinstance(remedy, dict) else remedy)
    return visible, len(remedies) - len(visible)


def _mentions(value: Any, hidden: frozenset[str]) -> bool:
    return bool(_redacted(value, hidden) != value)


def _redacted(value: Any, hidden: frozenset[str]) -> Any:
    if isinstance(value, str):
        return _KEY.sub(_replacement(hidden), value) if "/" in value else value
    if isinstance(value, dict):
        return {key: _redacted(item, hidden) for key, item in value.items()}
    return [_redacted(item, hidden) for item in value] if isinstance(value, list | tuple) else value


def _replacement(hidden: frozenset[str]) -> Callable[["re.Match[str]"], str]:
    return lambda match: WITHHELD if match[1] in hidden else match[0]
