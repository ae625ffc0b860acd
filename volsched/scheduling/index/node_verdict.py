"""Asking the rules about one node, with everything left out that cannot matter there."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from volsched.kube.storage import Volume
from volsched.kube.workloads import Node, Pod
from volsched.scheduling.index.contents import Contents
from volsched.scheduling.index.lookup import Chosen
from volsched.scheduling.index.pod_query import PodQuery
from volsched.scheduling.rules.cycle import Verdict, volume_verdict
from volsched.scheduling.rules.pod_claims import PodClaims
from volsched.scheduling.rules.profile import Profile
from volsched.scheduling.rules.snapshot import Snapshot


def terse(profile: Profile) -> Profile:
    """The same answers without the explanations, which look at every volume there is."""
    return replace(profile, explains=False)


@dataclass(frozen=True, slots=True)
class Judge:
    held: Contents
    profile: Profile
    question: PodQuery

    def ask(self, node: Node, *, near: Collection[str] | None = None) -> Verdict:
        """The rules' word on the node's volumes, from a snapshot of what matters there.

        `near`: volumes that may be named in its reasons, for a profile that explains.
        """
        question = self.question
        position = self.held.nodes.position_of(node.name)
        claims = PodClaims(
            bound=question.claims.bound,
            delayed=question.claims.delayed,
            candidates=self._candidates(position),
        )
        seen = self._seen_from(node.name, position)
        if near is not None:
            seen = replace(seen, stored_volumes=Chosen(self.held.whole.stored_volumes, near))
        return volume_verdict(
            seen,
            question.pod,
            claims,
            question.rules,
            node,
            profile=self.profile,
            limited=question.limited,
            contended=question.inline or bool(question.exclusive),
        )

    def _seen_from(self, node: str, position: int) -> Snapshot:
        held, question = self.held, self.question
        if not (question.rooms or question.limited or question.inline or question.exclusive):
            # As for most pods. To make a snapshot costs as much as to judge a claim.
            return held.quiet
        keys = {key for rooms in question.rooms for key in rooms.seen_from(position)}
        # What was promised counts wherever it speaks for by now.
        keys |= {held.whole.promised.get(claim.meta.uid, "") for claim in question.claims.delayed}
        return replace(
            held.quiet,
            pods=self._pods(node),
            attachments=held.relations.attachments_to(node) if question.limited else {},
            capacities={key: held.whole.capacities[key] for key in sorted(keys & held.whole.capacities.keys())},
        )

    def _candidates(self, position: int) -> dict[str, tuple[Volume, ...]]:
        """Per class of the delayed claims the volumes that are worth trying, in name order."""
        volumes = self.held.whole.stored_volumes
        found: dict[str, tuple[Volume, ...]] = dict.fromkeys(self.question.claims.candidates, ())
        for errand in self.question.errands:
            found[errand.class_name] = tuple([volumes[name] for name in errand.names_at(position)])
        return found

    def _pods(self, node: str) -> dict[str, Pod]:
        """Those that may dispute a claim of the pod; where slots or disks matter, all pods of the node too."""
        pods = self.held.relations.pods_using(self.question.exclusive)
        if self.question.limited or self.question.inline:
            pods |= self.held.relations.pods_on(node)
        return pods
