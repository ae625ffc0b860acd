"""Calling the rules for one node or many, without irrelevant objects; refusals in full."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from volsched.kube.storage import Claim, Volume
from volsched.kube.workloads import Node, Pod
from volsched.scheduling.index.contents import Contents
from volsched.scheduling.index.node_groups import Region, digest_of, groups, regions
from volsched.scheduling.index.node_sets import Chosen, positions
from volsched.scheduling.index.pod_query import PodQuery
from volsched.scheduling.index.prefilter import Prefilter
from volsched.scheduling.rules.cycle import Attempt, NodeRefusal, Verdict, volume_verdict
from volsched.scheduling.rules.pod_claims import PodClaims
from volsched.scheduling.rules.profile import Profile
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import Status, distance


def terse(profile: Profile) -> Profile:
    """The profile without explanations, which scan all volumes; its answers are the same."""
    return replace(profile, explains=False)


@dataclass(frozen=True, slots=True)
class Judge:
    contents: Contents
    profile: Profile
    question: PodQuery

    def ask(self, node: Node, *, near: Collection[str] | None = None) -> Verdict:
        """The rules' verdict on the node's volumes, from a snapshot of what matters there.

        `near`: volumes that may be named in its reasons, for a profile that explains.
        """
        question = self.question
        position = self.contents.nodes.position_of(node.name)
        claims = PodClaims(
            bound=question.claims.bound,
            delayed=question.claims.delayed,
            candidates=self._candidates(position),
        )
        view = self._snapshot_for(node.name, position)
        if near is not None:
            view = replace(view, stored_volumes=Chosen(self.contents.whole.stored_volumes, near))
        return volume_verdict(
            view,
            question.pod,
            claims,
            question.rules,
            node,
            profile=self.profile,
            limited=question.limited,
            contended=question.inline or bool(question.exclusive),
        )

    def _snapshot_for(self, node: str, position: int) -> Snapshot:
        contents, question = self.contents, self.question
        if not (question.rooms or question.limited or question.inline or question.exclusive):
            # Most pods. A snapshot costs as much as checking a claim.
            return contents.quiet
        keys = {key for rooms in question.rooms for key in rooms.keys_at(position)}
        # Promised capacity counts even if the object no longer covers the node.
        keys |= {contents.whole.promised.get(claim.meta.uid, "") for claim in question.claims.delayed}
        return replace(
            contents.quiet,
            pods=self._pods(node),
            attachments=contents.relations.attachments_to(node) if question.limited else {},
            capacities={
                key: contents.whole.capacities[key] for key in sorted(keys & contents.whole.capacities.keys())
            },
        )

    def _candidates(self, position: int) -> dict[str, tuple[Volume, ...]]:
        """The volumes worth trying, per class of the delayed claims and in name order."""
        volumes = self.contents.whole.stored_volumes
        candidates: dict[str, tuple[Volume, ...]] = dict.fromkeys(self.question.claims.candidates, ())
        for errand in self.question.errands:
            candidates[errand.class_name] = tuple([volumes[name] for name in errand.names_at(position)])
        return candidates

    def _pods(self, node: str) -> dict[str, Pod]:
        """Pods that may compete for a claim of the pod; if slots or disks matter, all pods of the node too."""
        pods = self.contents.relations.pods_using(self.question.exclusive)
        if self.question.limited or self.question.inline:
            pods |= self.contents.relations.pods_on(node)
        return pods


# Why volumes keep a pod off some nodes, in full: which claim, which volume came nearest, which rule it failed.
#
# The rules would scan all volumes. Here they read those that the node reaches and that are near the claim in
# size, and a few others if it reaches none, so that an attempt on thousands of nodes can store its reasons at
# little cost.

MOST_REFUSALS = 3
NODES_ASKED = 3
"""Nodes checked per refusal, of those that the attempt names."""
FEW_MEMBERS = 64
"""Up to this many volumes that the same nodes reach are all checked, whatever their class and phase."""
NEAR_IN_SIZE = 4
ELSEWHERE = 16


def nearest_refusals(judge: Judge, standing: Prefilter, refusal: Attempt) -> dict[Status, Verdict]:
    """The nearest refusal for each status. `judge` explains. Nodes that other plugins refuse are skipped."""
    others = {it.status for it in (*standing.before, *standing.after)}
    nearest: dict[Status, Verdict] = {}
    for status, _ in sorted(refusal.refused.items(), key=lambda it: (-it[1], it[0].reasons))[:MOST_REFUSALS]:
        if status in others:
            continue
        nodes = (judge.contents.whole.nodes[name] for name in refusal.examples.get(status, ())[:NODES_ASKED])
        verdicts = [judge.ask(node, near=_near(judge, node)) for node in nodes]
        own = [it for it in verdicts if it.status == status and it.status.rejections]
        if own:
            nearest[status] = min(own, key=lambda it: (distance(it.status.rejections), it.node))
    return nearest


def _near(judge: Judge, node: Node) -> list[str]:
    """Names of the volumes that are worth mentioning in an explanation of the node."""
    names = {name for claim in judge.question.claims.delayed for name in _near_claim(judge, node, claim)}
    return sorted(names & judge.contents.whole.stored_volumes.keys())


def _near_claim(judge: Judge, node: Node, claim: Claim) -> Iterator[str]:
    contents = judge.contents
    position, shelf = contents.nodes.position_of(node.name), contents.storage.shelves.get(claim.class_name)
    yield from (volume.name for volume in islice(contents.relations.volumes_naming(claim.key), FEW_MEMBERS))
    reached = False
    for domain in contents.domains.around(node, position):
        if len(domain.members) <= FEW_MEMBERS:
            mine = [it for it in domain.members if contents.storage.reaches.get(it) is domain]
            yield from mine
            reached = reached or bool(mine)
        elif shelf is not None and domain in shelf.shared:
            yield from (name for _, name, _ in shelf.shared[domain].near(claim.size.nano, NEAR_IN_SIZE))
            reached = True
    if not reached and shelf is not None:
        yield from islice(shelf.names(), ELSEWHERE)


# How many nodes fit a pod: one verdict counts for all equivalent nodes.


def fitting_nodes(judge: Judge, standing: Prefilter) -> int:
    """The nodes that fit, as a mask. Unlike a search, this checks every group of nodes."""
    question, fitting = judge.question, 0
    known: dict[tuple[Region, object], bool] = {}
    for region in regions(question, standing.passed):
        for group in groups(question, region):
            key = (region, digest_of(question, group))
            if key not in known:
                known[key] = judge.ask(judge.contents.nodes.any(group.mask)).status.passed
            if known[key]:
                fitting |= group.mask
    return fitting


# The verdict of each of many nodes on a pod, for callers that answer per node.
#
# One verdict serves all equivalent nodes, as in counting.


@dataclass(frozen=True, slots=True)
class PodRefused:
    """Raised if the pod itself is refused or faulty, so that no node need be checked."""

    refusal: NodeRefusal
    claims: PodClaims = field(default_factory=PodClaims)


@dataclass(frozen=True, slots=True)
class RollCall:
    status: Status
    """The status of the pod as a whole: without success no node was checked."""
    claims: PodClaims
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    """By node. Only one of several equivalent nodes was checked: the volumes in the verdict are that node's.

    A node that was checked alone has its own verdict.
    """


def call(judge: Judge, standing: Prefilter, wanted: int) -> Iterator[Verdict]:
    """The verdicts of the wanted nodes. Scores are those of volumes alone."""
    nodes = judge.contents.nodes
    for refused in standing.before:
        for position in positions(refused.mask & wanted):
            yield Verdict(nodes.at(position).name, refused.status, plugin=refused.plugin)
    for region in regions(judge.question, standing.reached & wanted):
        for group in groups(judge.question, region):
            said = judge.ask(nodes.any(group.mask))
            left = group.mask
            if said.status.passed:
                for refused in standing.after:
                    for position in positions(refused.mask & left):
                        yield Verdict(nodes.at(position).name, refused.status, plugin=refused.plugin)
                    left &= ~refused.mask
            for position in positions(left):
                name = nodes.at(position).name
                yield Verdict(name, said.status, said.answer, said.score, said.plugin, said.scores)
