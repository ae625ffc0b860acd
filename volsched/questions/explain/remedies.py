"""The smallest changes that make a pod fit, each tried before it is proposed; what helps failing bindings."""

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

# For some nodes, what keeps the pod away is answered by one change after another, the smallest first, until
# the node would take it. Whatever comes out is then tried on the whole cluster by the same decision that
# schedules pods: only what makes it find a node is proposed.

MOST_NODES = 8
MOST_CHANGES = 5
MOST_LOOKS = 60
"""Combinations that are looked at on one node."""
PER_NODE = 4
"""Answers of different shapes that one node is asked for."""
PER_SHAPE = 6
TOLD = 5
ONCE = (ChangeKind.RAISE_CAPACITY, ChangeKind.LOWER_REQUEST)
"""Made twice to one object, the second of these would have done."""

Shape = tuple[str, ...]
"""What the same changes in other places have in common."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    changes: Changes
    node: str
    """Where the pod would go then."""
    elsewhere: tuple[Changes, ...] = ()
    """The same in other places: each would do as well."""


def find_remedies(
    index: Index, around: NodeSurroundings, found: Survey, *, only: str | None = None
) -> list[Remedy]:
    """The index is changed and put back for every trial. With `only`, that node must take the pod."""
    pod, avoid = around.pod, around.avoid
    proposed: dict[frozenset[str], Changes] = {}
    for node in [only] if only is not None else _worth_trying(index, around, found):
        for changes in _on_node(around, node):
            proposed.setdefault(_texts(changes), changes)
    told: dict[Shape, Remedy] = {}
    enough: list[frozenset[str]] = []
    looked: Counter[Shape] = Counter()
    for changes in sorted(proposed.values(), key=weight):
        shape = _shape(changes)
        if looked[shape] == PER_SHAPE or (len(told) == TOLD and shape not in told):
            continue
        if any(less <= _texts(changes) for less in enough):
            # Part of it would do, on another node.
            continue
        looked[shape] += 1
        made = tried(index, pod, changes, avoid=avoid, only=only)
        if made.chosen is None or not _is_least(index, pod, changes, avoid=avoid, only=only):
            continue
        enough.append(_texts(changes))
        known = told.get(shape)
        if known is None:
            told[shape] = Remedy(changes=changes, node=made.chosen.node)
        else:
            told[shape] = replace(known, elsewhere=(*known.elsewhere, changes))
    return list(told.values())


def tried(
    index: Index,
    pod: Pod,
    changes: Iterable[ClusterChange],
    *,
    avoid: frozenset[str] = frozenset(),
    only: str | None = None,
) -> Attempt:
    """The decision on the whole cluster, or on one of its nodes, as it would be after the changes."""
    changes = tuple(changes)
    after = changed_pod(pod, changes)
    if after.meta.annotations != pod.meta.annotations:
        avoid = frozenset()
    with _laid(index, pod, changes):
        if only is not None:
            # Whether the node takes it is all that is asked; what comes near among all volumes takes long to say.
            terse = replace(index.profile, explains=False)
            return attempt(index.snapshot, after, profile=terse, avoid=avoid, only={only})
        return index.decide(after, avoid=avoid)


def _is_least(index: Index, pod: Pod, changes: Changes, *, avoid: frozenset[str], only: str | None) -> bool:
    """None of the changes could be left out: what one node needs may be more than another does."""
    for place, change in enumerate(changes if len(changes) > 1 else ()):
        # A later change of the same object was made on top of this one, and holds it as well.
        if not change.objects & objects_of(changes[place + 1 :]):
            less = (*changes[:place], *changes[place + 1 :])
            if tried(index, pod, less, avoid=avoid, only=only).chosen is not None:
                return False
    return True


@contextmanager
def _laid(index: Index, pod: Pod, changes: Changes) -> Iterator[None]:
    """The index after the changes; the pod itself is asked about, not put."""
    before: dict[tuple[type[Object], str], Object | None] = {}
    puts = [it for change in changes for it in (*change.touched, *change.follows) if not _is(it, pod)]
    drops = [it for change in changes for it in change.removed]
    for value in (*puts, *drops):
        held: Object | None = getattr(index.snapshot, FIELD_OF[type(value)]).get(value.meta.key)
        before.setdefault((type(value), value.meta.key), held)
    try:
        for value in puts:
            index.put(value)
        for value in drops:
            index.drop(type(value), value.meta.key)
        yield
    finally:
        for (kind, key), was in before.items():
            if was is None:
                index.drop(kind, key)
            else:
                index.put(was)


def _is(value: Object, pod: Pod) -> bool:
    return isinstance(value, Pod) and value.key == pod.key


def _worth_trying(index: Index, around: NodeSurroundings, found: Survey) -> Iterable[str]:
    """All nodes of a few; of many, those where something comes near and some of every group."""
    nodes = sorted(index.snapshot.nodes)
    if len(nodes) <= MOST_NODES:
        return nodes
    near = dict.fromkeys(near_nodes(around))
    # The smaller a group, the more likely its nodes are refused for something that is theirs alone.
    groups = reversed(found.refusing())
    some = [verdict.node for group in groups for verdict in group.verdicts[:PER_REASON]]
    return list(dict.fromkeys([*list(near)[: MOST_NODES // 2], *some, *near, *nodes]))[:MOST_NODES]


def _on_node(around: NodeSurroundings, node: str) -> Iterator[Changes]:
    """Sets of changes after which the node would take the pod, the smallest first and one of each shape."""
    tickets = count()
    frontier: list[tuple[tuple[int, int, int, str], int, Changes]] = [(weight(()), next(tickets), ())]
    seen: set[frozenset[str]] = set()
    done: dict[Shape, frozenset[str]] = {}
    looks = 0
    while frontier and looks < MOST_LOOKS and len(done) < PER_NODE:
        _, _, changes = heapq.heappop(frontier)
        texts = _texts(changes)
        if _shape(changes) in done or any(solved <= texts for solved in done.values()):
            continue
        looks += 1
        made = around.judged(node, changes)
        if made.chosen is not None:
            done[_shape(changes)] = texts
            yield changes
            continue
        if len(changes) == MOST_CHANGES:
            continue
        for change in _candidates(around, node, changes, made):
            more = texts | {change.text}
            if more not in seen and more != texts and not _is_repeated(change, changes):
                seen.add(more)
                heapq.heappush(frontier, (weight((*changes, change)), next(tickets), (*changes, change)))


def _is_repeated(change: ClusterChange, before: Changes) -> bool:
    return change.kind in ONCE and any((it.kind, it.objects) == (change.kind, change.objects) for it in before)


def _candidates(around: NodeSurroundings, node: str, changes: Changes, made: Attempt) -> Iterator[ClusterChange]:
    snapshot = around.around(node, changes)
    if node not in snapshot.nodes:
        return
    scene = RemedyScene(
        snapshot=snapshot,
        pod=changed_pod(around.pod, changes),
        node=snapshot.nodes[node],
        profile=around.profile,
        verdict=made.verdicts[0] if made.verdicts else None,
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


# What would help a pod whose bindings keep failing. These are not tried: who failed is not ours to try.
#
# The rules say that the nodes would do, so no change to pod or claims is looked for. What is told is who has
# to act, and how to find out more.

AGAIN = "the pod is tried again by itself"


def failure_remedies(snapshot: Snapshot, groups: Iterable[Mapping[str, Any]], untried: list[str]) -> list[str]:
    """The likeliest first, none of them twice."""
    groups = list(groups)
    found = [text for group in groups for text in _for(snapshot, group)]
    failed = ", ".join(dict.fromkeys(group["node"] for group in groups))
    if untried:
        found.append(f"keep it off {failed}, as with: kubectl cordon {failed.split(', ')[0]}")
    return list(dict.fromkeys(found))


def _for(snapshot: Snapshot, group: Mapping[str, Any]) -> Iterator[str]:
    reason, claim = str(group["reason"]), snapshot.claim(group["claim"] or "")
    named = group["volume"]
    if PROVISIONING_FAILED in reason and claim is not None:
        yield from _provisioning(snapshot, group, claim)
    elif reason == DEADLINE_EXCEEDED and claim is not None:
        maker = _provisioner(snapshot, claim)
        yield (
            f'see that provisioner "{maker}" of class "{claim.class_name}" runs and what it says: '
            f"volsched describe pvc {claim.key}"
        )
        yield "give it more time: annotation volsched.io/bind-timeout-seconds on the pod"
    elif named is not None and (reason.endswith(CHANGED) or "ClaimRef" in reason or "different PV" in reason):
        yield f"find out who else writes volume {named}: volsched audit who pv {named}"
    elif "node affinity" in reason:
        yield (
            f"the volume cannot be reached from {group['node']}: correct the node's labels, or what the "
            "provisioner says of where it makes volumes"
        )
    else:
        yield f"see what was done: volsched history binding {group['binding']}"


def _provisioning(snapshot: Snapshot, group: Mapping[str, Any], claim: Claim) -> Iterator[str]:
    maker, node = _provisioner(snapshot, claim), snapshot.nodes.get(group["node"])
    said = f"it says: {group['words']}" if group["words"] else f"what it says: volsched describe pvc {claim.key}"
    yield f'have provisioner "{maker}" serve class "{claim.class_name}", and {AGAIN}; {said}'
    if (
        node is not None
        and not zone_key(node.labels)
        and any(zone_key(it.labels) for it in snapshot.nodes.values())
    ):
        yield f"label {node.name} with its zone, as other nodes are: kubectl label node {node.name} {ZONE}=ZONE"
    modes = ", ".join(claim.access_modes)
    yield (
        f'add a PersistentVolume of at least {claim.size} (class "{claim.class_name}", {modes}) for '
        f"{claim.key}: a volume that is there goes before one to be made"
    )


def _provisioner(snapshot: Snapshot, claim: Claim) -> str:
    held = snapshot.classes.get(claim.class_name)
    return "unknown" if held is None else held.provisioner
