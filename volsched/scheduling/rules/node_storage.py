"""One node with all that serving a claim there depends on, shared by those who serve and those who explain."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from volsched.kube.storage import Claim, Volume
from volsched.kube.workloads import Node
from volsched.scheduling.rules.disks import attach_id
from volsched.scheduling.rules.matching import Search
from volsched.scheduling.rules.profile import Profile
from volsched.scheduling.rules.snapshot import Snapshot

Plan = list[tuple[Claim, Volume | None]]
"""In serving order, the volume for each claim; None = to be provisioned."""


# Not frozen, though nobody changes it: made for every node, in a third of the time that a frozen one takes.
@dataclass(slots=True, kw_only=True)
class NodeStorage:
    snapshot: Snapshot
    node: Node
    profile: Profile
    candidates: Mapping[str, Sequence[Volume]]
    slots: Mapping[str, int]
    """Attach slots left per driver; a driver that is not listed has no limit."""

    def search(
        self, claim: Claim, *, taken: Collection[Volume] = (), slots: Mapping[str, int] | None = None
    ) -> Search:
        """A search for the claim here, with these volumes and no more than these slots left out."""
        return Search(
            claim=claim,
            node=self.node,
            taken={volume.name for volume in taken} if taken else (),
            full_drivers={driver for driver, free in slots.items() if free <= 0} if slots else (),
            enforce_match_fields=self.profile.enforce_match_fields,
            unseen=self.profile.takes_unseen,
        )

    def provisioner_of(self, claim: Claim) -> str:
        return self.snapshot.classes[claim.class_name].provisioner


def slots_after(slots: Mapping[str, int], volumes: Iterable[Volume]) -> Mapping[str, int]:
    """What is left of the attach slots once these volumes are attached; below 0 they do not fit."""
    if not slots:
        return slots
    left = dict(slots)
    for volume in volumes:
        attached_as = attach_id(volume)
        if attached_as is not None and attached_as.driver in left:
            left[attached_as.driver] -= 1
    return left
