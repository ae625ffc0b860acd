"""How many nodes would do for a pod: one verdict counts for all nodes for which it must be the same."""

from volsched.scheduling.index.node_groups import Region, digest_of, groups, regions
from volsched.scheduling.index.node_verdict import Judge
from volsched.scheduling.index.prefilter import Prefilter


def fitting_nodes(judge: Judge, standing: Prefilter) -> int:
    """The nodes that would do, as a mask. Unlike a search, this looks at every group of nodes there is."""
    question, found = judge.question, 0
    known: dict[tuple[Region, object], bool] = {}
    for region in regions(question, standing.passed):
        for group in groups(question, region):
            key = (region, digest_of(question, group))
            if key not in known:
                known[key] = judge.ask(judge.held.nodes.any(group.mask)).status.passed
            if known[key]:
                found |= group.mask
    return found
