"""The pool of pods that found no node, arranged so that a change finds whom it may help without asking all."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from volsched.scheduling.queue.entry import Entry
from volsched.scheduling.queue.hints import are_known, hints_for
from volsched.scheduling.queue.object_changes import Aspects, ObjectChange, claim_concerned
from volsched.scheduling.rules.pod_claims import claim_uses

_Group = TypeVar("_Group", bound=Hashable)


@dataclass(slots=True)
class Unschedulable:
    _by_rejectors: dict[frozenset[str], dict[str, Entry]] = field(default_factory=dict)
    """A change that concerns none of a set's plugins passes all its pods by at once."""
    _by_claim: dict[str, dict[str, Entry]] = field(default_factory=dict)
    """Most changes are of claims and volumes that are somebody's already."""

    def __bool__(self) -> bool:
        return bool(self._by_rejectors)

    def __iter__(self) -> Iterator[Entry]:
        return (entry for members in self._by_rejectors.values() for entry in members.values())

    def add(self, entry: Entry) -> None:
        key = entry.pod.key
        self._by_rejectors.setdefault(entry.rejectors, {})[key] = entry
        for use in claim_uses(entry.pod):
            self._by_claim.setdefault(use.key, {})[key] = entry

    def remove(self, entry: Entry) -> None:
        _take(self._by_rejectors, entry.rejectors, entry.pod.key)
        for claim in {use.key for use in claim_uses(entry.pod)}:
            _take(self._by_claim, claim, entry.pod.key)

    def concerned(self, change: ObjectChange, aspects: Aspects) -> list[Entry]:
        """The pods of whom it is worth asking whether the change helps them."""
        claim = claim_concerned(change)
        users = None if claim is None else self._by_claim.get(claim, {})
        found: list[Entry] = []
        for rejectors, members in self._by_rejectors.items():
            if not hints_for(rejectors, aspects):
                continue
            if users is None or not are_known(rejectors):
                found += members.values()
            else:
                found += (members[key] for key in users if key in members)
        return found


def _take(groups: dict[_Group, dict[str, Entry]], group: _Group, key: str) -> None:
    del groups[group][key]
    if not groups[group]:
        del groups[group]
