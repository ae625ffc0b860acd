"""The smallest changes that make a pod fit, each tried before it is proposed; and remedies for failed bindings."""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from volsched.binding.rules.reasons import CHANGED, DEADLINE_EXCEEDED, PROVISIONING_FAILED
from volsched.kube.meta import ZONE, zone_key
from volsched.kube.object_values import Object
from volsched.kube.storage import Claim
from volsched.kube.workloads import Pod
from volsched.questions.explain.remedies_nodes import node_changes
from volsched.questions.explain.remedies_scene import RemedyScene
from volsched.questions.explain.remedies_volumes import pod_changes, volume_changes
from volsched.questions.explain.survey import PER_REASON, NodeSurroundings, Survey, near_nodes
from volsched.questions.simulate.changes import ChangeKind, Changes, ClusterChange, changed_pod, objects_of, weight
from volsched.scheduling.index import Index
from volsched.scheduling.rules.cycle import VOLUME_BINDING, Attempt, attempt
from volsched.scheduling.rules.snapshot import FIELD_OF, Snapshot

# For some nodes, changes are added for each reason to refuse the pod, the smallest first, until the node would
# accept the pod. The result is then tried on the whole cluster by the same decision that schedules pods: only
# changes with which the pod finds a node are proposed.

MOST_NODES = 8
MOST_CHANGES = 5
MOST_LOOKS = 60
"""Maximum number of combinations of changes tried on one node."""
PER_NODE = 4
"""Maximum number of solutions of different shapes searched for on one node."""
PER_SHAPE = 6
MOST_REMEDIES = 5
ONCE = (ChangeKind.RAISE_CAPACITY, ChangeKind.LOWER_REQUEST)
"""Kinds of changes that are made once per object: the larger change alone would be enough."""

Shape = tuple[str, ...]
"""Identifies similar changes in different places."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    changes: Changes
    node: str
    """The node that the pod would get."""
    elsewhere: tuple[Changes, ...] = ()
    """Similar changes in other places, each of which would help as well."""


def find_remedies(
    index: Index, surroundings: NodeSurroundings, survey: Survey, *, only: str | None = None
) -> list[Remedy]:
    """The remedies; every trial changes and restores the index. With `only`, that node must accept the pod."""
    pod, avoid = surroundings.pod, surroundings.avoid
    proposed: dict[frozenset[str], Changes] = {}
    for node in [only] if only is not None else _nodes_to_try(index, surroundings, survey):
        for changes in _solutions_on(surroundings, node):
            proposed.setdefault(_texts(changes), changes)
    remedies: dict[Shape, Remedy] = {}
    sufficient: list[frozenset[str]] = []
    tries: Counter[Shape] = Counter()
    for changes in sorted(proposed.values(), key=weight):
        shape = _shape(changes)
        if tries[shape] == PER_SHAPE or (len(remedies) == MOST_REMEDIES and shape not in remedies):
            continue
        if any(less <= _texts(changes) for less in sufficient):
            # A part of these changes is enough, on another node.
            continue
        tries[shape] += 1
        result = trial(index, pod, changes, avoid=avoid, only=only)
        if result.chosen is None or not _is_least(index, pod, changes, avoid=avoid, only=only):
            continue
        sufficient.append(_texts(changes))
        remedy = remedies.get(shape)
        if remedy is None:
            remedies[shape] = Remedy(changes=changes, node=result.chosen.node)
        else:
            remedies[shape] = replace(remedy, elsewhere=(*remedy.elsewhere, changes))
    return list(remedies.values())


def trial(
    index: Index,
    pod: Pod,
    changes: Iterable[ClusterChange],
    *,
    avoid: frozenset[str] = frozenset(),
    only: str | None = None,
) -> Attempt:
    """The decision on the whole cluster, or on one of its nodes, after the changes."""
    changes = tuple(changes)
    after = changed_pod(pod, changes)
    if after.meta.annotations != pod.meta.annotations:
        avoid = frozenset()
    with _with_changes(index, pod, changes):
        if only is not None:
            # Only the node's acceptance matters here; finding the nearest volumes would take long.
            terse = replace(index.profile, explains=False)
            return attempt(index.snapshot, after, profile=terse, avoid=avoid, only={only})
        return index.decide(after, avoid=avoid)


def _is_least(index: Index, pod: Pod, changes: Changes, *, avoid: frozenset[str], only: str | None) -> bool:
    """Whether every change is needed: one node may need more changes than another."""
    for place, change in enumerate(changes if len(changes) > 1 else ()):
        # A later change of the same object is based on this one, and includes it.
        if not change.objects & objects_of(changes[place + 1 :]):
            less = (*changes[:place], *changes[place + 1 :])
            if trial(index, pod, less, avoid=avoid, only=only).chosen is not None:
                return False
    return True


@contextmanager
def _with_changes(index: Index, pod: Pod, changes: Changes) -> Iterator[None]:
    """The index with the changes, but without the pod itself, which the decision is about."""
    before: dict[tuple[type[Object], str], Object | None] = {}
    puts = [it for change in changes for it in (*change.touched, *change.follows) if not _is_pod(it, pod)]
    drops = [it for change in changes for it in change.removed]
    for value in (*puts, *drops):
        stored: Object | None = getattr(index.snapshot, FIELD_OF[type(value)]).get(value.meta.key)
        before.setdefault((type(value), value.meta.key), stored)
    try:
        for value in puts:
            index.put(value)
        for value in drops:
            index.drop(type(value), value.meta.key)
        yield
    finally:
        for (kind, key), original in before.items():
            if original is None:
                index.drop(kind, key)
            else:
                index.put(original)


def _is_pod(value: Object, pod: Pod) -> bool:
    return isinstance(value, Pod) and value.key == pod.key


def _nodes_to_try(index: Index, surroundings: NodeSurroundings, survey: Survey) -> Iterable[str]:
    """All nodes, if they are few; of many, those where a volume comes near, and some of every group."""
    nodes = first_nodes(index)
    if len(index.snapshot.nodes) <= MOST_NODES:
        return nodes
    nearest = dict.fromkeys(near_nodes(surroundings))
    # The smaller a group, the more likely its nodes refuse for reasons of their own.
    groups = reversed(survey.refusals())
    refusing = [verdict.node for group in groups for verdict in group.verdicts[:PER_REASON]]
    return list(dict.fromkeys([*list(nearest)[: MOST_NODES // 2], *refusing, *nearest, *nodes]))[:MOST_NODES]


def first_nodes(index: Index) -> list[str]:
    """Those that are tried where nothing speaks for others."""
    return sorted(index.snapshot.nodes)[:MOST_NODES]


def _solutions_on(surroundings: NodeSurroundings, node: str) -> Iterator[Changes]:
    """Sets of changes with which the node would accept the pod, the smallest first and one of each shape."""
    tickets = count()
    frontier: list[tuple[tuple[int, int, int, str], int, Changes]] = [(weight(()), next(tickets), ())]
    queued: set[frozenset[str]] = set()
    solved: dict[Shape, frozenset[str]] = {}
    looks = 0
    while frontier and looks < MOST_LOOKS and len(solved) < PER_NODE:
        _, _, changes = heapq.heappop(frontier)
        texts = _texts(changes)
        if _shape(changes) in solved or any(solution <= texts for solution in solved.values()):
            continue
        looks += 1
        result = surroundings.judge(node, changes)
        if result.chosen is not None:
            solved[_shape(changes)] = texts
            yield changes
            continue
        if len(changes) == MOST_CHANGES:
            continue
        for change in _candidates(surroundings, node, changes, result):
            more = texts | {change.text}
            if more not in queued and more != texts and not _is_repeated(change, changes):
                queued.add(more)
                heapq.heappush(frontier, (weight((*changes, change)), next(tickets), (*changes, change)))


def _is_repeated(change: ClusterChange, before: Changes) -> bool:
    return change.kind in ONCE and any((it.kind, it.objects) == (change.kind, change.objects) for it in before)


def _candidates(
    surroundings: NodeSurroundings, node: str, changes: Changes, result: Attempt
) -> Iterator[ClusterChange]:
    snapshot = surroundings.snapshot_at(node, changes)
    if node not in snapshot.nodes:
        return
    scene = RemedyScene(
        snapshot=snapshot,
        pod=changed_pod(surroundings.pod, changes),
        node=snapshot.nodes[node],
        profile=surroundings.profile,
        verdict=result.verdicts[0] if result.verdicts else None,
    )
    if scene.verdict is None:
        yield from pod_changes(scene)
    elif scene.verdict.plugin == VOLUME_BINDING:
        yield from volume_changes(scene)
    else:
        yield from node_changes(scene)


def _texts(changes: Changes) -> frozenset[str]:
    return frozenset(change.text for change in changes)


def _shape(changes: Changes) -> Shape:
    return tuple(sorted(change.shape or change.text for change in changes))


# Remedies for a pod whose bindings keep failing. They are not tried: the failure is outside volsched.
#
# By the rules the nodes fit, so no change of pod or claims is searched for. The remedies name the component that
# has to act, and the command that shows more.

RETRIED = "the pod is retried automatically"
_QUOTED = "; it says: "


def failure_remedies(snapshot: Snapshot, groups: Iterable[Mapping[str, Any]], untried: list[str]) -> list[str]:
    """The remedies, the most likely first, each once."""
    groups = list(groups)
    texts = [text for group in groups for text in _failure_remedies_for(snapshot, group)]
    failed = ", ".join(dict.fromkeys(group["node"] for group in groups))
    if untried:
        texts.append(f"keep it off {failed}, as with: kubectl cordon {failed.split(', ')[0]}")
    # A provisioner's message differs from node to node; the remedy does not.
    each: dict[str, str] = {}
    for text in texts:
        each.setdefault(text.partition(_QUOTED)[0], text)
    return list(each.values())


def _failure_remedies_for(snapshot: Snapshot, group: Mapping[str, Any]) -> Iterator[str]:
    reason, claim = str(group["reason"]), snapshot.claim(group["claim"] or "")
    volume = group["volume"]
    if PROVISIONING_FAILED in reason and claim is not None:
        yield from _provisioning_remedies(snapshot, group, claim)
    elif reason == DEADLINE_EXCEEDED and claim is not None:
        provisioner = _provisioner(snapshot, claim)
        yield (
            f'see that provisioner "{provisioner}" of class "{claim.class_name}" runs and what it says: '
            f"volsched describe pvc {claim.key}"
        )
        yield "give it more time: annotation volsched.io/bind-timeout-seconds on the pod"
    elif volume is not None and (reason.endswith(CHANGED) or "ClaimRef" in reason or "different PV" in reason):
        yield f"find out who else writes volume {volume}: volsched audit who pv {volume}"
    elif "node affinity" in reason:
        yield (
            f"the volume cannot be reached from {group['node']}: correct the node's labels, or the "
            "topology that the provisioner reports"
        )
    else:
        yield f"see what was done: volsched history binding {group['binding']}"


def _provisioning_remedies(snapshot: Snapshot, group: Mapping[str, Any], claim: Claim) -> Iterator[str]:
    provisioner, node = _provisioner(snapshot, claim), snapshot.nodes.get(group["node"])
    words = group["words"] or ""
    advice = f"{_QUOTED}{words}" if words else f"; what it says: volsched describe pvc {claim.key}"
    yield f'have provisioner "{provisioner}" serve class "{claim.class_name}", and {RETRIED}{advice}'
    as_others = any(zone_key(it.labels) for it in snapshot.nodes.values())
    if node is not None and not zone_key(node.labels) and (as_others or ZONE in words):
        like = ", as other nodes are" if as_others else ""
        yield f"label {node.name} with its zone{like}: kubectl label node {node.name} {ZONE}=ZONE"
    modes = ", ".join(claim.access_modes)
    yield (
        f'add a PersistentVolume of at least {claim.size} (class "{claim.class_name}", {modes}) for '
        f"{claim.key}: an existing volume is used before a new one is provisioned"
    )


def _provisioner(snapshot: Snapshot, claim: Claim) -> str:
    class_ = snapshot.classes.get(claim.class_name)
    return "unknown" if class_ is None else class_.provisioner
