"""What every one of many nodes says to a pod, for those that have to answer for each of them by name.

One verdict is taken for all nodes for which it must be the same, as where they are only counted.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from volsched.scheduling.index.node_groups import groups, regions
from volsched.scheduling.index.node_sets import positions
from volsched.scheduling.index.node_verdict import Judge
from volsched.scheduling.index.prefilter import Prefilter
from volsched.scheduling.rules.cycle import NodeRefusal, Verdict
from volsched.scheduling.rules.pod_claims import PodClaims
from volsched.scheduling.rules.status import Status


@dataclass(frozen=True, slots=True)
class PodRefused:
    """No node need be looked at: the pod is refused, or something is wrong with it."""

    refusal: NodeRefusal
    claims: PodClaims = field(default_factory=PodClaims)


@dataclass(frozen=True, slots=True)
class RollCall:
    status: Status
    """Of the pod as a whole: without success no node was asked."""
    claims: PodClaims
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    """By node. Of several alike, one has answered for all: what it found for the pod's volumes is its own.

    A node that was the only one to be asked has answered for itself.
    """


def call(judge: Judge, standing: Prefilter, wanted: int) -> Iterator[Verdict]:
    """The verdicts of the wanted nodes. Scores are those of volumes alone."""
    nodes = judge.held.nodes
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
