"""The survey of one decision for people: the chosen node, the nodes that refuse the pod, the nearest volumes."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from volsched.kube.manifest import is_bound_to, reaches
from volsched.kube.selectors import label_selector_matches, label_selector_problem
from volsched.kube.storage import Claim, StorageCapacity, Volume, VolumeNodeAffinity
from volsched.kube.workloads import Node, Pod, PodAffinity
from volsched.questions.simulate.changes import ClusterChange, changed_pod, restricted_to, snapshot_with
from volsched.scheduling.index import Index
from volsched.scheduling.rules.cycle import Attempt, Verdict, attempt, prepare
from volsched.scheduling.rules.failure_memory import NO_DEMERITS, Demerits
from volsched.scheduling.rules.matching import Search, failed_rules
from volsched.scheduling.rules.pod_claims import claim_uses, is_fully_bound
from volsched.scheduling.rules.profile import Profile
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import Rule, Status

# The surroundings of a pod on one node of many: the nearest volumes within reach, and little else.
#
# An explanation checks every rule for every volume. With tens of thousands of volumes, only those of interest to
# a reader are checked.

NEAR_ON_NODE = 20
NEAR_ANYWHERE = 3
NO_TERMS = PodAffinity()


@dataclass(frozen=True, slots=True)
class Near:
    """A volume, and every rule that it fails for a claim."""

    volume: Volume
    rules: tuple[Rule, ...]


def nearest(search: Search, volumes: Iterable[Volume], most: int) -> list[Near]:
    """The nearest volumes: those that fail the fewest rules first, then those closest in size."""
    claim = search.claim
    if claim.selector is not None and label_selector_problem(claim.selector) is not None:
        # An unreadable selector matches nothing; the other rules can still be checked.
        search = replace(search, claim=replace(claim, selector=None))
    near = [Near(volume, tuple(failed_rules(search, volume))) for volume in volumes]
    near.sort(key=lambda it: (len(it.rules), abs(it.volume.size.nano - claim.size.nano), it.volume.name))
    return near[:most]


def covers(capacity: StorageCapacity, node: Node) -> bool:
    """Whether the capacity object covers the node."""
    topology = capacity.node_topology
    sound = topology is not None and label_selector_problem(topology) is None
    return sound and topology is not None and label_selector_matches(topology, node.labels)


@dataclass(frozen=True, slots=True)
class _InReach:
    """The groups of volumes that a node reaches, and the capacity objects that cover it."""

    groups: tuple[int, ...]
    capacities: list[str]


@dataclass(frozen=True, slots=True)
class _PodPlaces:
    """A snapshot's pods, indexed by the ways in which they matter: rules must not scan tens of thousands."""

    order: Mapping[str, int]
    """Pod → its place in the snapshot: rules name the first pod that they find, so a part keeps the order."""
    on_node: Mapping[str, list[str]]
    using: Mapping[str, list[str]]
    """Claim → the pods that use it."""
    everywhere: tuple[str, ...]
    """Pods without a node, and pods whose own affinity may refuse a pod on any node."""

    @classmethod
    def of(cls, pods: Mapping[str, Pod]) -> "_PodPlaces":
        on_node: dict[str, list[str]] = {}
        using: dict[str, list[str]] = {}
        everywhere: list[str] = []
        for key, pod in pods.items():
            on_node.setdefault(pod.node_name, []).append(key)
            for use in claim_uses(pod):
                using.setdefault(use.key, []).append(key)
            if not pod.node_name or _has_terms(pod):
                everywhere.append(key)
        order = {key: place for place, key in enumerate(pods)}
        return cls(order, on_node, using, tuple(everywhere))

    def near(self, node: str, claims: Iterable[str]) -> list[str]:
        """The pods that matter to a decision about the node and these claims."""
        keys = {*self.everywhere, *self.on_node.get(node, ())}
        keys.update(key for claim in claims for key in self.using.get(claim, ()))
        return sorted(keys, key=self.order.__getitem__)


def _has_terms(pod: Pod) -> bool:
    """Whether the pod has affinity terms, so that it and pods on other nodes may matter to each other."""
    return pod.pod_affinity != NO_TERMS or pod.pod_anti_affinity != NO_TERMS


@dataclass(frozen=True, slots=True)
class StoreSample:
    """What was read of a large store."""

    left_out: int = 0
    """Number of volumes that were not read; others represent them."""
    nodes: Sequence[str] | None = None
    """The nodes of `sampled_nodes`, if they are known: the volumes within their reach were read."""


WHOLE_STORE = StoreSample()


@dataclass(slots=True)
class NodeSurroundings:
    """A snapshot of effective objects, and the part of it that matters on one node or another."""

    snapshot: Snapshot
    pod: Pod
    profile: Profile
    avoid: frozenset[str] = frozenset()
    demerits: Demerits = NO_DEMERITS
    sample: StoreSample = WHOLE_STORE
    _pod_places: _PodPlaces | None = None
    _groups: list[list[Volume]] | None = None
    """Groups of volumes reached from the same nodes. Computed on first use: a pod that fits needs no groups."""
    _anywhere: dict[str, list[Near]] = field(default_factory=dict)
    _in_reach_of: dict[str, _InReach] = field(default_factory=dict)
    _choices: dict[tuple[tuple[int, ...], str], list[str]] = field(default_factory=dict)
    """A cache by the groups within reach: thousands of nodes of a zone reach the same volumes."""

    def claims(self) -> list[Claim]:
        """The pod's claims that exist."""
        claims = (self.snapshot.claim(key) for key in dict.fromkeys(use.key for use in claim_uses(self.pod)))
        return [claim for claim in claims if claim is not None]

    def unbound_claims(self) -> list[Claim]:
        """The pod's claims that are not bound."""
        return [claim for claim in self.claims() if not is_fully_bound(claim)]

    def nearest_anywhere(self, claim: Claim) -> list[Near]:
        """The volumes nearest to the claim, on any node."""
        if claim.key not in self._anywhere:
            # The claim as in the snapshot, without the changes that are tried on it.
            stored = next((it for it in self.unbound_claims() if it.key == claim.key), None)
            volumes = self.snapshot.stored_volumes.values()
            self._anywhere[claim.key] = (
                []
                if stored is None
                else nearest(Search(claim=stored, node=None, delay_binding=False), volumes, NEAR_ANYWHERE)
            )
        return self._anywhere[claim.key]

    def node_reaching(self, volume: Volume) -> Node | None:
        """The first node, by name, that reaches the volume."""
        nodes = (node for _, node in sorted(self.snapshot.nodes.items()) if self._reaches(volume, node))
        return next(nodes, None)

    def judge(self, node: str, changes: Iterable[ClusterChange] = ()) -> Attempt:
        """The attempt on this node alone after the changes, with all reasons."""
        changes = tuple(changes)
        pod = changed_pod(self.pod, changes)
        # The nodes to avoid are remembered in an annotation: without it, no node is avoided.
        avoid = self.avoid if pod.meta.annotations == self.pod.meta.annotations else frozenset()
        profile = replace(self.profile, explains=True)
        return attempt(self.snapshot_at(node, changes), pod, profile=profile, avoid=avoid, only={node})

    def snapshot_at(self, node: str, changes: Iterable[ClusterChange] = ()) -> Snapshot:
        """The snapshot after the changes, as far as it matters on the node."""
        changes = tuple(changes)
        written = [it for change in changes for it in (*change.touched, *change.follows)]
        # A claim that is recreated or unbound looks for volumes that did not matter before.
        unbound = [it for it in written if isinstance(it, Claim) and not is_fully_bound(it)]
        return snapshot_with(self._narrow(self.snapshot.nodes[node], [*self.unbound_claims(), *unbound]), changes)

    def _narrow(self, node: Node, claims: Sequence[Claim]) -> Snapshot:
        snapshot, in_reach = self.snapshot, self._in_reach(node)
        names = dict.fromkeys(name for claim in claims for name in self._volumes_for(node, in_reach.groups, claim))
        narrow = replace(
            snapshot,
            stored_volumes=restricted_to(snapshot.stored_volumes, sorted(names)),
            capacities=restricted_to(snapshot.capacities, in_reach.capacities),
        )
        # Spreading counts the pods of every domain; all other rules look at the node alone.
        if self.pod.spread:
            return narrow
        return replace(
            narrow,
            nodes=restricted_to(snapshot.nodes, [node.name]),
            pods=snapshot.pods if _has_terms(self.pod) else self._pods_near(node, claims, names),
        )

    def _pods_near(self, node: Node, claims: Sequence[Claim], volumes: Iterable[str]) -> Mapping[str, Pod]:
        """The pods on the node, those with affinity terms, and the users of claims that a remedy may name."""
        if self._pod_places is None:
            self._pod_places = _PodPlaces.of(self.snapshot.pods)
        refs = (self.snapshot.stored_volumes[name].claim_ref for name in volumes)
        holders = {f"{ref.namespace}/{ref.name}" for ref in refs if ref is not None}
        keys = {use.key for use in claim_uses(self.pod)} | {claim.key for claim in claims} | holders
        return restricted_to(self.snapshot.pods, self._pod_places.near(node.name, keys))

    def _in_reach(self, node: Node) -> _InReach:
        if node.name not in self._in_reach_of:
            groups = tuple(place for place, it in enumerate(self._volume_groups()) if self._reaches(it[0], node))
            rooms = [key for key, it in self.snapshot.capacities.items() if covers(it, node)]
            self._in_reach_of[node.name] = _InReach(groups, rooms)
        return self._in_reach_of[node.name]

    def _volume_groups(self) -> list[list[Volume]]:
        if self._groups is None:
            groups: dict[VolumeNodeAffinity | None, list[Volume]] = {}
            for volume in self.snapshot.stored_volumes.values():
                groups.setdefault(volume.node_affinity, []).append(volume)
            self._groups = list(groups.values())
        return self._groups

    def _volumes_for(self, node: Node, within: tuple[int, ...], claim: Claim) -> list[str]:
        """The volumes worth checking for the claim if these groups of volumes are within reach."""
        key = within, f"{claim.key} {claim.class_name} {claim.size} {claim.access_modes} {claim.selector}"
        if key not in self._choices:
            volumes = [volume for place in within for volume in self._volume_groups()[place]]
            search = Search(claim=claim, node=node, enforce_match_fields=self.profile.enforce_match_fields)
            near = [*nearest(search, volumes, NEAR_ON_NODE), *self.nearest_anywhere(claim)]
            # If volumes name the claim, only those may serve it.
            naming = (it.name for it in self.snapshot.stored_volumes.values() if is_bound_to(it, claim))
            self._choices[key] = [*(it.volume.name for it in near), *naming]
        return self._choices[key]

    def _reaches(self, volume: Volume, node: Node) -> bool:
        return reaches(volume, node, enforce_match_fields=self.profile.enforce_match_fields)


# On a small cluster every node is judged with all its reasons. On a large one the index decides and counts, and
# only some nodes of every kind are judged for their reasons: those with near volumes, and some of the others.

SMALL = 40_000
"""Nodes times objects checked on each, up to which every node is judged with all its reasons."""
SAMPLED = 24
"""Number of nodes judged, of many, besides those with near volumes."""
PER_REASON = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalGroup:
    """Nodes that refuse the pod for the same reasons."""

    status: Status
    plugin: str
    count: int
    verdicts: tuple[Verdict, ...]
    """The verdicts of all of these nodes, or of some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    attempt: Attempt
    verdicts: tuple[Verdict, ...] = ()
    """The verdicts of all nodes, or of some; those that pass do not refuse the pod."""

    @property
    def fits(self) -> bool:
        return self.attempt.chosen is not None

    def refusals(self) -> list[RefusalGroup]:
        """The refusals, the largest group first: it is most likely the interesting one."""
        groups: dict[Status, list[Verdict]] = {status: [] for status in self.attempt.refused}
        for verdict in self.verdicts:
            if not verdict.status.passed:
                groups.setdefault(verdict.status, []).append(verdict)
        counts: Mapping[Status, int] = self.attempt.refused or Counter(it.status for it in self.verdicts)
        refusals = [
            RefusalGroup(
                status=status,
                plugin=verdicts[0].plugin if verdicts else "",
                count=counts.get(status, len(verdicts)),
                verdicts=tuple(verdicts),
            )
            for status, verdicts in groups.items()
        ]
        return sorted(refusals, key=lambda it: (-it.count, it.status.reasons))


def is_small(*, nodes: int, on_each: int) -> bool:
    return nodes * on_each <= SMALL


def survey(index: Index, pod: Pod, surroundings: NodeSurroundings, *, only: str | None = None) -> Survey:
    """The decision for the pod, with the verdicts that explain it; with `only`, about that node."""
    snapshot, avoid = index.snapshot, surroundings.avoid
    if only is not None:
        result = surroundings.judge(only)
        return Survey(attempt=result, verdicts=result.verdicts)
    volumes = len(snapshot.stored_volumes) + surroundings.sample.left_out
    if is_small(nodes=len(snapshot.nodes), on_each=volumes + len(snapshot.capacities) + len(snapshot.pods)):
        profile = replace(index.profile, explains=True)
        result = attempt(snapshot, pod, profile=profile, avoid=avoid, demerits=surroundings.demerits)
        return Survey(attempt=result, verdicts=result.verdicts)
    result = index.decide(pod, avoid=avoid, demerits=surroundings.demerits)
    if result.chosen is not None or not result.refused:
        return Survey(attempt=result)
    names = surroundings.sample.nodes
    if names is None:
        names = sampled_nodes(index, pod, surroundings)
    judged = (surroundings.judge(name).verdicts for name in names)
    return Survey(attempt=result, verdicts=tuple(verdict for verdicts in judged for verdict in verdicts))


def near_nodes(surroundings: NodeSurroundings) -> Iterator[str]:
    """Nodes on which one of the pod's claims comes nearest to a volume, or to capacity for one."""
    for claim in surroundings.unbound_claims():
        for near in surroundings.nearest_anywhere(claim):
            node = surroundings.node_reaching(near.volume)
            if node is not None:
                yield node.name
        roomy = _roomiest(surroundings, claim)
        if roomy is not None:
            yield roomy.name


def _roomiest(surroundings: NodeSurroundings, claim: Claim) -> Node | None:
    """A node that the capacity object with the largest limit covers."""
    snapshot = surroundings.snapshot
    of_class = [
        (it.limit, it.key, it)
        for it in snapshot.capacities.values()
        if it.storage_class_name == claim.class_name and it.limit is not None
    ]
    if not of_class:
        return None
    _, _, roomiest = max(of_class, key=lambda it: it[:2])
    return next((it for _, it in sorted(snapshot.nodes.items()) if covers(roomiest, it)), None)


def sampled_nodes(index: Index, pod: Pod, surroundings: NodeSurroundings) -> Sequence[str]:
    """Some nodes of each kind: refused for the same reason before volumes are looked at, or for their volumes."""
    ready, _ = prepare(index.profile.before_volumes, index.snapshot, pod)
    kinds: dict[Status | None, list[str]] = {}
    for name, node in sorted(index.snapshot.nodes.items()):
        statuses = (status for it in ready for status in (it.prepared.leaves_out(node), it.prepared.filter(node)))
        kinds.setdefault(next((it for it in statuses if not it.passed), None), []).append(name)
    by_volumes = kinds.pop(None, [])
    step = max(len(by_volumes) // SAMPLED, 1)
    names = [*near_nodes(surroundings), *by_volumes[::step][:SAMPLED]]
    for others in kinds.values():
        names += others[:PER_REASON]
    return list(dict.fromkeys(names))
