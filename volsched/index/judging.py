"""Asking the rules about one node, with everything left out that cannot matter there."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from volsched.core.claims import claim_uses
from volsched.core.cycle import Attempt, attempt
from volsched.core.profile import Profile
from volsched.core.snapshot import Snapshot
from volsched.index.contents import Contents
from volsched.index.question import Question
from volsched.model.storage import READ_WRITE_ONCE_POD, Volume
from volsched.model.workloads import Node, Pod


class Narrowed(Mapping[str, Volume]):
    """Volumes to choose from are few; a volume that somebody names is found among all of them."""

    def __init__(self, everything: Mapping[str, Volume], choice: Mapping[str, None]) -> None:
        self._everything, self._choice = everything, choice

    def __getitem__(self, name: str) -> Volume:
        return self._everything[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._choice)

    def __len__(self) -> int:
        return len(self._choice)


def terse(profile: Profile) -> Profile:
    """The same answers without the explanations, which look at every volume there is."""
    return replace(profile, explains=False)


@dataclass(frozen=True, slots=True)
class Judge:
    held: Contents
    profile: Profile
    question: Question

    def ask(self, node: Node) -> Attempt:
        """The un-indexed attempt on a snapshot with one node and what matters there."""
        held, question = self.held, self.question
        position = held.nodes.mask_of(node.name).bit_length() - 1
        keys = [key for rooms in question.rooms for key in rooms.seen_from(position)]
        narrow = replace(
            held.whole,
            nodes={node.name: node},
            stored_volumes=Narrowed(held.whole.stored_volumes, self._choice(position)),
            pods=self._pods(node.name),
            attachments=held.relations.attachments_to(node.name) if question.limited else {},
            capacities={key: held.whole.capacities[key] for key in keys},
        )
        return attempt(narrow, question.pod, profile=self.profile)

    def _choice(self, position: int) -> dict[str, None]:
        names: dict[str, None] = {}
        for errand in self.question.errands:
            names |= dict.fromkeys(row[1] for row in errand.rows_at(position))
            for want in errand.wants:
                names |= dict.fromkeys(volume.name for volume in want.named_by)
        return names

    def _pods(self, node: str) -> dict[str, Pod]:
        """Those that may dispute a claim of the pod; where slots or disks matter, all pods of the node too."""
        claims = (self.held.whole.claim(use.key) for use in claim_uses(self.question.pod))
        exclusive = [
            claim.key for claim in claims if claim is not None and READ_WRITE_ONCE_POD in claim.access_modes
        ]
        pods = self.held.relations.pods_using(exclusive)
        if self.question.limited or self.question.inline:
            pods |= self.held.relations.pods_on(node)
        return pods


def without_volumes(whole: Snapshot) -> Snapshot:
    """Enough to look at the pod itself: no volume to choose from, any volume to be looked up."""
    return replace(whole, stored_volumes=Narrowed(whole.stored_volumes, {}))
