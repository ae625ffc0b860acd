"""What must never be seen on a foreign cluster, write by write: looked for in the cluster itself, not in views.

While calls are under way our views may lag behind, so the invariants over views wait until a run has come to rest.
What is looked for here no lag excuses.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from volsched.binding.rules.late_writes import stamp_of
from volsched.binding.rules.phases import UNDER_WAY, Phase
from volsched.cluster.foreign_server import ForeignApi
from volsched.cluster.port import Manifest, PortChange
from volsched.kube.data_state import DIRTY
from volsched.kube.manifest import claim_is_bound, claim_of, spec, status, uid
from volsched.lab.simulation.actors import CLAIM, VOLUME
from volsched.log.events.fold import BindingState, State
from volsched.log.events.object_states import binding_stream
from volsched.questions.invariants import Violation

HOLDING = (*UNDER_WAY, Phase.COMMITTING)


@dataclass(slots=True)
class Truth:
    api: ForeignApi
    position: int = 0
    seen: dict[tuple[str, str], Manifest] = field(default_factory=dict)
    claims: dict[str, Manifest] = field(default_factory=dict)
    """By uid."""

    def look(self, states: Mapping[str, State], theirs: Collection[int]) -> list[Violation]:
        """`theirs` are the versions that others wrote: only what we write can be our fault."""
        found: list[Violation] = []
        head = int(self.api.head)
        for change in self.api.changes_between(self.position, head):
            if change.kind in (CLAIM, VOLUME):
                before = self.seen.get((change.kind, change.key))
                found += self._judged(change, before, states, int(change.version) in theirs)
                self._keep(change, before)
        self.position = head
        return found

    def _keep(self, change: PortChange, before: Manifest | None) -> None:
        if change.manifest is not None:
            self.seen[change.kind, change.key] = change.manifest
            if change.kind == CLAIM:
                self.claims[uid(change.manifest)] = change.manifest
            return
        self.seen.pop((change.kind, change.key), None)
        if before is not None:
            self.claims.pop(uid(before), None)

    def _judged(
        self, change: PortChange, before: Manifest | None, states: Mapping[str, State], theirs: bool
    ) -> Iterator[Violation]:
        after = change.manifest
        if before is None or after is None or uid(before) != uid(after):
            return
        if change.kind == CLAIM:
            yield from self._claim(change.key, before, after)
        else:
            yield from self._volume(change.key, before, after, states, theirs)

    def _claim(self, key: str, before: Manifest, after: Manifest) -> Iterator[Violation]:
        lost = spec(before).get("volumeName") and not spec(after).get("volumeName")
        if lost and status(before).get("dataState") == DIRTY:
            yield Violation(4, f"claim/{key} was dirty and lost its volume")
        if claim_is_bound(after) and not claim_is_bound(before):
            volume = self.seen.get((VOLUME, str(spec(after)["volumeName"])))
            reference = None if volume is None else claim_of(volume)
            if volume is not None and (reference or {}).get("uid") != uid(after):
                yield Violation(1, f"claim/{key} was bound to a volume that does not point back")

    def _volume(
        self, name: str, before: Manifest, after: Manifest, states: Mapping[str, State], theirs: bool
    ) -> Iterator[Violation]:
        had, has = ((claim_of(it) or {}).get("uid") for it in (before, after))
        if had == has or not had:
            return
        holder = self.claims.get(had)
        if has:
            yield Violation(1, f"volume/{name} was given to {has} while it was {had}'s")
        elif holder is not None and spec(holder).get("volumeName") == name:
            dirty = status(holder).get("dataState") == DIRTY
            if dirty or claim_is_bound(holder):
                yield Violation(4 if dirty else 1, f"volume/{name} was taken from its claim, which is bound to it")
        stamp = stamp_of(before)
        binding = states.get(binding_stream(stamp)) if stamp is not None else None
        if not theirs and isinstance(binding, BindingState) and binding.state in HOLDING:
            yield Violation(2, f"volume/{name} was undone under binding {stamp}, which is {binding.state}")
