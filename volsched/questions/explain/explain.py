"""Why a pod can or cannot go where it wants, as data, cut to what the caller may see."""

import re
from collections.abc import Callable, Collection
from dataclasses import asdict, replace
from typing import Any

from volsched.kube.workloads import Pod
from volsched.questions.explain.remedies import Remedy, find_remedies
from volsched.questions.explain.survey import PER_REASON, NodeSurroundings, Refusing, survey
from volsched.questions.simulate.changes import Changes, objects_of
from volsched.scheduling.index import Index
from volsched.scheduling.rules.cycle import Verdict
from volsched.scheduling.rules.failure_memory import NO_DEMERITS, Demerits
from volsched.scheduling.rules.pod_claims import claim_uses, is_delay_binding, is_fully_bound
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import AttemptError, Code, distance

# What is told here is so now. What was decided in the past is a fact, and told by `explain_past`.

SET_BY_HAND = (
    "its node was set by hand (spec.nodeName), so that no scheduler looks at it: claims that wait for their first "
    "consumer stay Pending"
)
ANEW = "delete the pod and create it without spec.nodeName"
ANEW_THERE = f"{ANEW}; to keep it on that node, give it a nodeSelector with the node's kubernetes.io/hostname"


def explain_pod(
    index: Index,
    pod: Pod,
    *,
    only: str | None = None,
    avoid: frozenset[str] = frozenset(),
    demerits: Demerits = NO_DEMERITS,
    binding: str | None = None,
    left_out: int = 0,
) -> dict[str, Any]:
    """The decision for the pod as it would be made now, and what would help where there is no node for it.

    A pod that has a node is looked at as if it had none. `only` asks about one node, whatever others would say;
    `avoid` are nodes that turned the pod away a short while ago, `demerits` count against those where its bindings
    failed, `binding` is the one that is under way for it, `left_out` counts volumes that others stand for.
    """
    wanting = replace(pod, node_name="")
    around = NodeSurroundings(index.snapshot, wanting, index.profile, avoid, demerits, left_out)
    found = survey(index, wanting, around, only=only)
    remedies = [] if found.fits else find_remedies(index, around, found, only=only)
    told = {
        "pod": pod.key,
        "profile": index.profile.name,
        "nodes": len(index.snapshot.nodes) if only is None else 1,
        "node": pod.node_name or None,
        "binding": binding,
        "fits": found.fits,
        "error": found.made.status.code is Code.ERROR,
        "message": "; ".join(found.made.status.reasons),
        "bound": [{"claim": claim.key, "volume": claim.volume_name} for claim in found.made.claims.bound],
        "chosen": None if found.made.chosen is None else placement(found.made.chosen),
        "runnersUp": [{"node": it.node, "score": it.score} for it in found.made.runners_up],
        "refused": [_group(group) for group in found.refusing()],
        "remedies": [_remedy(it) for it in remedies],
    }
    stuck = waiting_in_vain(index.snapshot, pod)
    if stuck and binding is None:
        # What is told to help was tried: on its own node, as `bind claim` would.
        there = survey(index, wanting, around, only=pod.node_name).fits
        told["stuck"] = {"claims": stuck, "why": SET_BY_HAND, "remedies": _ways_out(pod, stuck, there=there)}
    return told


def _ways_out(pod: Pod, claims: list[str], *, there: bool) -> list[str]:
    if not there:
        return [f"{pod.node_name} cannot serve its claims; {ANEW}, and it goes where they can be served"]
    return [*(f"run: volsched bind claim {it} --node {pod.node_name}" for it in claims), f"or {ANEW_THERE}"]


def waiting_in_vain(snapshot: Snapshot, pod: Pod) -> list[str]:
    """Claims of a pod that has a node which wait for a scheduler that never comes."""
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


def _group(group: Refusing) -> dict[str, Any]:
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


# What of an explanation is told to somebody who may see some namespaces only: nothing of the objects in
# others.
#
# A remedy that needs somebody else's object is left out whole, and counted; where else such an object is
# named, its name is withheld. What is looked at is the finished answer, so that no text can be forgotten.

WITHHELD = "an object in another namespace"
_KEY = re.compile(r"(?<![\w.-])([a-z0-9](?:[a-z0-9-]*[a-z0-9])?)/([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)")

Told = dict[str, Any]


def disclosed(told: Told, hidden: Collection[str]) -> Told:
    """The explanation without what is in these namespaces."""
    if not hidden:
        return told
    names = frozenset(hidden)
    cut = {name: _cut_remedies(value, names) for name, value in told.items()}
    kept, withheld = _kept(told.get("remedies", []), names)
    if "remedies" in told:
        cut["remedies"] = kept
    if withheld:
        cut["remediesWithheld"] = withheld
    return {name: _withheld(value, names) for name, value in cut.items()}


def _cut_remedies(value: Any, hidden: frozenset[str]) -> Any:
    """Of a part that has remedies of its own."""
    if not isinstance(value, dict) or "remedies" not in value:
        return value
    return {**value, "remedies": _kept(value["remedies"], hidden)[0]}


def _kept(remedies: list[Any], hidden: frozenset[str]) -> tuple[list[Any], int]:
    """Those that name nothing of these namespaces, and how many do."""
    kept: list[Any] = []
    for remedy in remedies:
        elsewhere = remedy.get("elsewhere", []) if isinstance(remedy, dict) else []
        own = {**remedy, "elsewhere": []} if isinstance(remedy, dict) else remedy
        if not _names(own, hidden):
            seen = [it for it in elsewhere if not _names(it, hidden)]
            kept.append({**remedy, "elsewhere": seen} if isinstance(remedy, dict) else remedy)
    return kept, len(remedies) - len(kept)


def _names(value: Any, hidden: frozenset[str]) -> bool:
    return bool(_withheld(value, hidden) != value)


def _withheld(value: Any, hidden: frozenset[str]) -> Any:
    if isinstance(value, str):
        return _KEY.sub(_replacement(hidden), value) if "/" in value else value
    if isinstance(value, dict):
        return {key: _withheld(item, hidden) for key, item in value.items()}
    return [_withheld(item, hidden) for item in value] if isinstance(value, list | tuple) else value


def _replacement(hidden: frozenset[str]) -> Callable[["re.Match[str]"], str]:
    return lambda found: WITHHELD if found[1] in hidden else found[0]
