"""What a pod meets on one node of many: the volumes within reach that come nearest, and little else.

An explanation looks at every rule of every volume. With tens of thousands of volumes that is done for those only
that somebody would want to hear of.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from volsched.kube.claim_reference import is_bound_to, reaches
from volsched.kube.selectors import label_selector_matches, label_selector_problem
from volsched.kube.storage import Claim, StorageCapacity, Volume, VolumeNodeAffinity
from volsched.kube.workloads import Node, Pod
from volsched.questions.simulate.changes import ClusterChange, applied, changed_pod, narrowed
from volsched.scheduling.rules.cycle import Attempt, attempt
from volsched.scheduling.rules.failure_memory import NO_DEMERITS, Demerits
from volsched.scheduling.rules.matching import Search, failed_rules
from volsched.scheduling.rules.pod_claims import claim_uses, is_fully_bound
from volsched.scheduling.rules.profile import Profile
from volsched.scheduling.rules.rejection import Rule
from volsched.scheduling.rules.snapshot import Snapshot

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
    _groups: list[list[Volume]] = field(default_factory=list)
    """Volumes that are reached from the same nodes."""
    _anywhere: dict[str, list[Near]] = field(default_factory=dict)
    _within: dict[str, _Seen] = field(default_factory=dict)
    _choices: dict[tuple[tuple[int, ...], str], list[str]] = field(default_factory=dict)
    """By what is within reach: thousands of nodes of a zone see the same volumes."""

    def __post_init__(self) -> None:
        everything = list(self.snapshot.stored_volumes.values())
        groups: dict[VolumeNodeAffinity | None, list[Volume]] = {}
        for volume in everything:
            groups.setdefault(volume.node_affinity, []).append(volume)
        self._groups = list(groups.values())
        for claim in self.waiting():
            search = Search(claim=claim, node=None, delay_binding=False)
            self._anywhere[claim.key] = nearest(search, everything, NEAR_ANYWHERE)

    def waiting(self) -> list[Claim]:
        """The pod's claims that are not bound."""
        claims = (self.snapshot.claim(key) for key in dict.fromkeys(use.key for use in claim_uses(self.pod)))
        return [claim for claim in claims if claim is not None and not is_fully_bound(claim)]

    def nearest_anywhere(self, claim: Claim) -> list[Near]:
        """Whatever node they are on."""
        return self._anywhere.get(claim.key, [])

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
        # A claim that is made anew, or set free, looks for volumes that did not matter before.
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
            groups = tuple(place for place, it in enumerate(self._groups) if self._reaches(it[0], node))
            rooms = [key for key, it in self.snapshot.capacities.items() if speaks_for(it, node)]
            self._within[node.name] = _Seen(groups, rooms)
        return self._within[node.name]

    def _choice(self, node: Node, within: tuple[int, ...], claim: Claim) -> list[str]:
        """The volumes worth looking at for the claim, where these groups of volumes are within reach."""
        key = within, f"{claim.key} {claim.class_name} {claim.size} {claim.access_modes} {claim.selector}"
        if key not in self._choices:
            volumes = [volume for place in within for volume in self._groups[place]]
            search = Search(claim=claim, node=node, enforce_match_fields=self.profile.enforce_match_fields)
            near = [*nearest(search, volumes, NEAR_ON_NODE), *self.nearest_anywhere(claim)]
            # Where volumes name the claim, those alone may serve it.
            naming = (it.name for it in self.snapshot.stored_volumes.values() if is_bound_to(it, claim))
            self._choices[key] = [*(it.volume.name for it in near), *naming]
        return self._choices[key]

    def _reaches(self, volume: Volume, node: Node) -> bool:
        return reaches(volume, node, enforce_match_fields=self.profile.enforce_match_fields)
