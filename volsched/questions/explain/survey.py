"""One decision, surveyed for people: where the pod goes, who refuses it, and what comes nearest on a node."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from volsched.kube.manifest import is_bound_to, reaches
from volsched.kube.selectors import label_selector_matches, label_selector_problem
from volsched.kube.storage import Claim, StorageCapacity, Volume, VolumeNodeAffinity
from volsched.kube.workloads import Node, Pod
from volsched.questions.simulate.changes import ClusterChange, applied, changed_pod, narrowed
from volsched.scheduling.index import Index
from volsched.scheduling.rules.cycle import Attempt, Verdict, attempt, prepare
from volsched.scheduling.rules.failure_memory import NO_DEMERITS, Demerits
from volsched.scheduling.rules.matching import Search, failed_rules
from volsched.scheduling.rules.pod_claims import claim_uses, is_fully_bound
from volsched.scheduling.rules.profile import Profile
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import Rule, Status

# What a pod meets on one node of many: the volumes within reach that come nearest, and little else.
#
# An explanation looks at every rule of every volume. With tens of thousands of volumes that is done for those
# only that somebody would want to hear of.

NEAR_ON_NODE = 20
NEAR_ANYWHERE = 3


@dataclass(frozen=True, slots=True)
class Near:
    """A volume with every rule that keeps it from serving a claim."""

    volume: Volume
    rules: tuple[Rule, ...]


def nearest(search: Search, volumes: Iterable[Volume], most: int) -> list[Near]:
    """Those that fail the fewest rules, closest in size first; one that fails none is nearest of all."""
    claim = search.claim
    if claim.selector is not None and label_selector_problem(claim.selector) is not None:
        # Nothing matches a selector that cannot be read; what else is against a volume can still be said.
        search = replace(search, claim=replace(claim, selector=None))
    found = [Near(volume, tuple(failed_rules(search, volume))) for volume in volumes]
    found.sort(key=lambda it: (len(it.rules), abs(it.volume.size.nano - claim.size.nano), it.volume.name))
    return found[:most]


def speaks_for(capacity: StorageCapacity, node: Node) -> bool:
    """The capacity object is about what can be made where the node is."""
    topology = capacity.node_topology
    sound = topology is not None and label_selector_problem(topology) is None
    return sound and topology is not None and label_selector_matches(topology, node.labels)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What there is at a node: groups of volumes within reach, and capacity objects that speak for it."""

    groups: tuple[int, ...]
    capacities: list[str]


@dataclass(slots=True)
class NodeSurroundings:
    """A snapshot of effective objects, asked about one node after the other."""

    snapshot: Snapshot
    pod: Pod
    profile: Profile
    avoid: frozenset[str] = frozenset()
    demerits: Demerits = NO_DEMERITS
    left_out: int = 0
    """Volumes that were not read: others in the snapshot stand for them."""
    _groups: list[list[Volume]] | None = None
    """Volumes that are reached from the same nodes. Sorted when first asked for: a pod that fits needs none."""
    _anywhere: dict[str, list[Near]] = field(default_factory=dict)
    _within: dict[str, _Seen] = field(default_factory=dict)
    _choices: dict[tuple[tuple[int, ...], str], list[str]] = field(default_factory=dict)
    """By what is within reach: thousands of nodes of a zone see the same volumes."""

    def waiting(self) -> list[Claim]:
        """The pod's claims that are not bound."""
        claims = (self.snapshot.claim(key) for key in dict.fromkeys(use.key for use in claim_uses(self.pod)))
        return [claim for claim in claims if claim is not None and not is_fully_bound(claim)]

    def nearest_anywhere(self, claim: Claim) -> list[Near]:
        """Whatever node they are on, for the claim as it is in the snapshot."""
        if claim.key not in self._anywhere:
            volumes, there = (
                self.snapshot.stored_volumes.values(),
                [it for it in self.waiting() if it.key == claim.key],
            )
            found = [
                nearest(Search(claim=it, node=None, delay_binding=False), volumes, NEAR_ANYWHERE) for it in there
            ]
            self._anywhere[claim.key] = found[0] if found else []
        return self._anywhere[claim.key]

    def a_node_at(self, volume: Volume) -> Node | None:
        """The first node, by name, that reaches the volume."""
        nodes = (node for _, node in sorted(self.snapshot.nodes.items()) if self._reaches(volume, node))
        return next(nodes, None)

    def judged(self, node: str, changes: Iterable[ClusterChange] = ()) -> Attempt:
        """The attempt on this node alone after the changes, with the reasons in full."""
        changes = tuple(changes)
        pod = changed_pod(self.pod, changes)
        # What kept the node's refusal in mind is an annotation: without it there is nothing to avoid.
        avoid = self.avoid if pod.meta.annotations == self.pod.meta.annotations else frozenset()
        profile = replace(self.profile, explains=True)
        return attempt(self.around(node, changes), pod, profile=profile, avoid=avoid, only={node})

    def around(self, node: str, changes: Iterable[ClusterChange] = ()) -> Snapshot:
        """The snapshot after the changes, as far as it matters on the node."""
        changes = tuple(changes)
        after = [it for change in changes for it in (*change.touched, *change.follows)]
        # A claim that is recreated, or set free, looks for volumes that did not matter before.
        wanting = [it for it in after if isinstance(it, Claim) and not is_fully_bound(it)]
        return applied(self._narrow(self.snapshot.nodes[node], [*self.waiting(), *wanting]), changes)

    def _narrow(self, node: Node, claims: Sequence[Claim]) -> Snapshot:
        whole, seen = self.snapshot, self._seen(node)
        names = dict.fromkeys(name for claim in claims for name in self._choice(node, seen.groups, claim))
        narrow = replace(
            whole,
            stored_volumes=narrowed(whole.stored_volumes, sorted(names)),
            capacities=narrowed(whole.capacities, seen.capacities),
        )
        # Spreading counts the pods of every domain; all else is known of the node alone.
        return narrow if self.pod.spread else replace(narrow, nodes=narrowed(whole.nodes, [node.name]))

    def _seen(self, node: Node) -> _Seen:
        if node.name not in self._within:
            groups = tuple(place for place, it in enumerate(self._grouped()) if self._reaches(it[0], node))
            rooms = [key for key, it in self.snapshot.capacities.items() if speaks_for(it, node)]
            self._within[node.name] = _Seen(groups, rooms)
        return self._within[node.name]

    def _grouped(self) -> list[list[Volume]]:
        if self._groups is None:
            groups: dict[VolumeNodeAffinity | None, list[Volume]] = {}
            for volume in self.snapshot.stored_volumes.values():
                groups.setdefault(volume.node_affinity, []).append(volume)
            self._groups = list(groups.values())
        return self._groups

    def _choice(self, node: Node, within: tuple[int, ...], claim: Claim) -> list[str]:
        """The volumes worth looking at for the claim, where these groups of volumes are within reach."""
        key = within, f"{claim.key} {claim.class_name} {claim.size} {claim.access_modes} {claim.selector}"
        if key not in self._choices:
            volumes = [volume for place in within for volume in self._grouped()[place]]
            search = Search(claim=claim, node=node, enforce_match_fields=self.profile.enforce_match_fields)
            near = [*nearest(search, volumes, NEAR_ON_NODE), *self.nearest_anywhere(claim)]
            # Where volumes name the claim, those alone may serve it.
            naming = (it.name for it in self.snapshot.stored_volumes.values() if is_bound_to(it, claim))
            self._choices[key] = [*(it.volume.name for it in near), *naming]
        return self._choices[key]

    def _reaches(self, volume: Volume, node: Node) -> bool:
        return reaches(volume, node, enforce_match_fields=self.profile.enforce_match_fields)


# On a small cluster every node is judged with its reasons in full. On a large one the index decides and
# counts, and some nodes of every kind are judged to say why: those where something comes near, and some of
# the others.

SMALL = 40_000
"""Nodes times what is looked at on each, up to which every node is judged in full."""
SAMPLED = 24
"""Nodes that are looked at, of many, besides those where something comes near."""
PER_REASON = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusing:
    """Nodes that refuse the pod for the same reasons."""

    status: Status
    plugin: str
    count: int
    verdicts: tuple[Verdict, ...]
    """Of all of them, or of some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    made: Attempt
    verdicts: tuple[Verdict, ...] = ()
    """Of every node, or of some: whoever passes is not refused."""

    @property
    def fits(self) -> bool:
        return self.made.chosen is not None

    def refusing(self) -> list[Refusing]:
        """The largest group first: it is most likely what the reader came for."""
        groups: dict[Status, list[Verdict]] = {status: [] for status in self.made.refused}
        for verdict in self.verdicts:
            if not verdict.status.passed:
                groups.setdefault(verdict.status, []).append(verdict)
        counts: Mapping[Status, int] = self.made.refused or Counter(it.status for it in self.verdicts)
        found = [
            Refusing(
                status=status,
                plugin=verdicts[0].plugin if verdicts else "",
                count=counts.get(status, len(verdicts)),
                verdicts=tuple(verdicts),
            )
            for status, verdicts in groups.items()
        ]
        return sorted(found, key=lambda it: (-it.count, it.status.reasons))


def is_small(*, nodes: int, on_each: int) -> bool:
    return nodes * on_each <= SMALL


def survey(index: Index, pod: Pod, around: NodeSurroundings, *, only: str | None = None) -> Survey:
    """`only` looks at one node."""
    whole, avoid = index.snapshot, around.avoid
    if only is not None:
        made = around.judged(only)
        return Survey(made=made, verdicts=made.verdicts)
    volumes = len(whole.stored_volumes) + around.left_out
    if is_small(nodes=len(whole.nodes), on_each=volumes + len(whole.capacities) + len(whole.pods)):
        profile = replace(index.profile, explains=True)
        made = attempt(whole, pod, profile=profile, avoid=avoid, demerits=around.demerits)
        return Survey(made=made, verdicts=made.verdicts)
    made = index.decide(pod, avoid=avoid, demerits=around.demerits)
    if made.chosen is not None or not made.refused:
        return Survey(made=made)
    judged = (around.judged(name).verdicts for name in _sample(index, pod, around))
    return Survey(made=made, verdicts=tuple(verdict for verdicts in judged for verdict in verdicts))


def near_nodes(around: NodeSurroundings) -> Iterator[str]:
    """Nodes at which one of the pod's claims comes nearest to a volume, or to room for one."""
    for claim in around.waiting():
        for near in around.nearest_anywhere(claim):
            node = around.a_node_at(near.volume)
            if node is not None:
                yield node.name
        roomy = _roomiest(around, claim)
        if roomy is not None:
            yield roomy.name


def _roomiest(around: NodeSurroundings, claim: Claim) -> Node | None:
    """A node for which the capacity object with the most room speaks."""
    snapshot = around.snapshot
    mine = [
        (it.limit, it.key, it)
        for it in snapshot.capacities.values()
        if it.storage_class_name == claim.class_name and it.limit is not None
    ]
    if not mine:
        return None
    _, _, roomiest = max(mine, key=lambda it: it[:2])
    return next((it for _, it in sorted(snapshot.nodes.items()) if speaks_for(roomiest, it)), None)


def _sample(index: Index, pod: Pod, around: NodeSurroundings) -> Iterable[str]:
    """Some nodes of each kind: refused by the same plugin before volumes, or left for the volumes to decide."""
    ready, _ = prepare(index.profile.before_volumes, index.snapshot, pod)
    kinds: dict[Status | None, list[str]] = {}
    for name, node in sorted(index.snapshot.nodes.items()):
        statuses = (said for it in ready for said in (it.prepared.leaves_out(node), it.prepared.filter(node)))
        kinds.setdefault(next((it for it in statuses if not it.passed), None), []).append(name)
    left = kinds.pop(None, [])
    step = max(len(left) // SAMPLED, 1)
    names = [*near_nodes(around), *left[::step][:SAMPLED]]
    for others in kinds.values():
        names += others[:PER_REASON]
    return dict.fromkeys(names)
