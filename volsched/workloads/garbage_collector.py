"""The garbage collector: pods and claims go with the controller that made them.

An owner that this store has never seen is not known to be gone: the manifests of another cluster name owners by
the uids they had there. Such objects are kept, and told so.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache

from volsched.kube.kinds import key_of
from volsched.kube.manifest import metadata, uid
from volsched.log.commands import Command
from volsched.log.database import Database
from volsched.log.events.decision import NOTHING, Decision, States
from volsched.log.events.fold import ObjectState
from volsched.log.events.object_states import living, manifest_of
from volsched.log.events.streams import KIND_OF_NOUN, NOUN_OF_KIND, noun_and_key
from volsched.log.reads.timelines import lives
from volsched.log.transaction import execute
from volsched.objects import door
from volsched.runtime.world import World
from volsched.workloads.agenda import Agenda
from volsched.workloads.rules.ownership import (
    COLLECTED,
    OWNER_UNKNOWN,
    Owner,
    is_orphan,
    is_owned,
    kept_orphan,
    owners,
)

BATCH = 256
COMPONENT = "garbage-collector"
PREFIXES = tuple(f"{NOUN_OF_KIND[kind]}/" for kind in COLLECTED)


@dataclass(slots=True)
class GarbageCollector:
    database: Database
    world: World
    owner: str
    grace: int | None = 0
    """As that of `StatefulSets`."""
    _agenda: Agenda = field(default_factory=Agenda)
    _owners: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Owned object → its owners; both as streams."""
    _owned: dict[str, set[str]] = field(default_factory=dict)
    _uids: dict[str, str] = field(default_factory=dict)
    """Owner → its uid when last seen: as long as it is that one, nothing has become of what it owns."""

    def update(self, streams: Iterable[str], now: int) -> None:  # noqa: ARG002 - a Part's; nothing here waits
        states = self.world.states
        for stream in streams:
            if stream in self._owned and self._uids[stream] != self._uid(stream):
                self._uids[stream] = self._uid(stream)
                self._agenda.add(self._owned[stream])
            if stream.startswith(PREFIXES) and (is_owned(states.get(stream)) or stream in self._owners):
                self._look(stream)

    def step(self, now: int) -> int:
        with self._agenda.batch(now, BATCH) as owned:
            execute(self.database, list(self._commands(owned, now)), now=now)
        return len(owned)

    def next_due(self) -> int | None:
        return self._agenda.next_due()

    def _look(self, stream: str) -> None:
        state = living(self.world.states, stream)
        known: tuple[str, ...] = ()
        if state is not None:
            known = tuple(owner.stream for owner in owners(state.manifest or {}) if owner.stream)
            self._agenda.add((stream,))
        for owner in self._owners.pop(stream, ()):
            self._owned[owner].discard(stream)
            if not self._owned[owner]:
                del self._owned[owner], self._uids[owner]
        if known:
            self._owners[stream] = known
            for owner in known:
                self._owned.setdefault(owner, set()).add(stream)
                self._uids.setdefault(owner, self._uid(owner))

    def _uid(self, stream: str) -> str:
        return uid(manifest_of(self.world.states, stream) or {})

    def _commands(self, batch: Iterable[str], now: int) -> Iterator[Command]:
        # Pods of one set have one owner, whose whole story is read for it.
        was_here = cache(self._was_here)
        for stream in batch:
            state = living(self.world.states, stream)
            if state is None or state.manifest is None or not is_orphan(state.manifest, self.world.states):
                continue
            if "deletionTimestamp" in metadata(state.manifest):
                continue
            strangers = [owner for owner in owners(state.manifest) if not was_here(owner)]
            if strangers:
                yield self._keeping(stream, state, strangers[0], now)
            else:
                yield self._collecting(stream, state, now)

    def _was_here(self, owner: Owner) -> bool:
        with self.database.read() as connection:
            return any(life.uid == owner.uid for life in lives(connection, owner.stream))

    def _collecting(self, stream: str, seen: ObjectState, now: int) -> Command:
        kind = KIND_OF_NOUN[noun_and_key(stream)[0]].name
        delete = door.delete_seen(kind, seen, door.controller(self.owner, now), grace=self.grace).command
        manifest = seen.manifest or {}

        def decide(states: States) -> Decision:
            # Asked once more, now that nobody can change it: the owner may be back.
            return delete.decide(states) if is_orphan(manifest, states) else NOTHING

        streams = (*delete.streams, *(owner.stream for owner in owners(manifest)))
        return Command(actor=self.owner, streams=tuple(dict.fromkeys(streams)), decide=decide)

    def _keeping(self, stream: str, seen: ObjectState, owner: Owner, now: int) -> Command:
        kind, manifest = KIND_OF_NOUN[noun_and_key(stream)[0]].name, seen.manifest or {}
        return door.notice(
            kind, key_of(kind, manifest), door.controller(self.owner, now), uid=uid(manifest), type_="Warning",
            reason=OWNER_UNKNOWN, message=kept_orphan(owner), component=COMPONENT,
            once=True,
        )  # fmt: skip
