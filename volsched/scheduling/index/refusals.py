"""Why volumes keep a pod off some nodes, in full: which claim, which volume came nearest, which rule it failed.

The rules would look at every volume there is. Here they look at those that the node reaches and that come near the
claim in size, and at a few others where it reaches none, so that an attempt on thousands of nodes can keep its
reasons for the price of a few looks.
"""

from collections.abc import Iterator
from itertools import islice

from volsched.kube.storage import Claim
from volsched.kube.workloads import Node
from volsched.scheduling.index.node_verdict import Judge
from volsched.scheduling.index.prefilter import Prefilter
from volsched.scheduling.rules.cycle import Attempt, Verdict
from volsched.scheduling.rules.rejection import distance
from volsched.scheduling.rules.status import Status

MOST_REFUSALS = 3
NODES_ASKED = 3
"""Of each refusal, of those that the attempt names."""
FEW_MEMBERS = 64
"""Up to so many volumes that the same nodes reach are all looked at, whatever their class and phase."""
NEAR_IN_SIZE = 4
ELSEWHERE = 16


def nearest_refusals(judge: Judge, standing: Prefilter, refusal: Attempt) -> dict[Status, Verdict]:
    """`judge` explains. A node that others refuse before or after its volumes has nothing to say about them."""
    others = {it.status for it in (*standing.before, *standing.after)}
    found: dict[Status, Verdict] = {}
    for status, _ in sorted(refusal.refused.items(), key=lambda it: (-it[1], it[0].reasons))[:MOST_REFUSALS]:
        if status in others:
            continue
        nodes = (judge.held.whole.nodes[name] for name in refusal.examples.get(status, ())[:NODES_ASKED])
        verdicts = [judge.ask(node, near=_near(judge, node)) for node in nodes]
        own = [it for it in verdicts if it.status == status and it.status.rejections]
        if own:
            found[status] = min(own, key=lambda it: (distance(it.status.rejections), it.node))
    return found


def _near(judge: Judge, node: Node) -> list[str]:
    """Names of the volumes that are worth naming to somebody who asks about the node."""
    names = {name for claim in judge.question.claims.delayed for name in _near_claim(judge, node, claim)}
    return sorted(names & judge.held.whole.stored_volumes.keys())


def _near_claim(judge: Judge, node: Node, claim: Claim) -> Iterator[str]:
    held = judge.held
    position, shelf = held.nodes.position_of(node.name), held.storage.shelves.get(claim.class_name)
    yield from (volume.name for volume in islice(held.relations.volumes_naming(claim.key), FEW_MEMBERS))
    reached = False
    for domain in held.domains.around(node, position):
        if len(domain.members) <= FEW_MEMBERS:
            mine = [it for it in domain.members if held.storage.reaches.get(it) is domain]
            yield from mine
            reached = reached or bool(mine)
        elif shelf is not None and domain in shelf.shared:
            yield from (name for _, name, _ in shelf.shared[domain].near(claim.size.nano, NEAR_IN_SIZE))
            reached = True
    if not reached and shelf is not None:
        yield from islice(shelf.names(), ELSEWHERE)
