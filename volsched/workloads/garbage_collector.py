"""Automatic deletion of objects whose controller is deleted, and of expired data such as events."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache

from volsched.binding.rules.failures import REQUESTED
from volsched.kube.kinds import key_of
from volsched.kube.manifest import is_being_deleted, metadata, uid
from volsched.log.commands import Command
from volsched.log.database import Database
from volsched.log.events.fold import NOTHING, Decision, ObjectState, States, living, manifest_of
from volsched.log.events.streams import KIND_OF_NOUN, NOUN_OF_KIND, noun_and_key, stream_of
from volsched.log.reads.event_audit import lives
from volsched.log.retention.expiry import expire_commands, expire_done, old_notices
from volsched.log.transaction import execute
from volsched.objects import door
from volsched.runtime.clock import SECOND
from volsched.runtime.world import World
from volsched.workloads.agenda import Agenda
from volsched.workloads.rules.ownership import (
    COLLECTED,
    ORPHAN,
    OWNER_UNKNOWN,
    Owner,
    ending,
    is_orphan,
    is_owned,
    kept_orphan,
    owners,
    without_owner,
)

# An owner that this store has never seen may still exist: manifests of another cluster name owners by their uids
# there. Such objects are kept, with a notice.

BATCH = 256
COMPONENT = "garbage-collector"
PREFIXES = tuple(f"{NOUN_OF_KIND[kind]}/" for kind in COLLECTED)


@dataclass(slots=True)
class GarbageCollector:
    database: Database
    world: World
    owner: str
    grace: int | None = 0
    """The grace period of pods, as in `StatefulSets`."""
    _agenda: Agenda = field(default_factory=Agenda)
    _owners: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Owned object → its owners; both as streams."""
    _owned: dict[str, set[str]] = field(default_factory=dict)
    _uids: dict[str, str] = field(default_factory=dict)
    """Owner → its uid when last seen: while it is unchanged, its dependents need no check."""
    _ending: set[str] = field(default_factory=set)
    """Owners in deletion that wait until their dependents are handled."""

    def update(self, streams: Iterable[str], now: int) -> None:  # noqa: ARG002 - a Part's; nothing here waits
        states = self.world.states
        for stream in streams:
            if ending(manifest_of(states, stream) or {}) is not None or stream in self._ending:
                self._update_ending(stream)
            for owner in self._ending.intersection(self._owners.get(stream, ())):
                self._agenda.add((owner,))
            if stream in self._owned and self._uids[stream] != self._uid(stream):
                self._uids[stream] = self._uid(stream)
                self._agenda.add(self._owned[stream])
            if stream.startswith(PREFIXES) and (is_owned(states.get(stream)) or stream in self._owners):
                self._update_object(stream)

    def step(self, now: int) -> int:
        with self._agenda.batch(now, BATCH) as owned:
            execute(self.database, list(self._commands(owned, now)), now=now)
        return len(owned)

    def next_due(self) -> int | None:
        return self._agenda.next_due()

    def _update_ending(self, stream: str) -> None:
        if ending(manifest_of(self.world.states, stream) or {}) is None:
            self._ending.discard(stream)
        else:
            self._ending.add(stream)
            self._agenda.add((stream,))

    def _update_object(self, stream: str) -> None:
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
        # Cached: pods of one set share an owner, and the check reads its whole history.
        was_here = cache(self._was_here)
        for stream in batch:
            state = living(self.world.states, stream)
            if stream in self._ending and state is not None:
                yield from self._ending_commands(stream, state, now)
            if state is None or state.manifest is None or not is_orphan(state.manifest, self.world.states):
                continue
            if "deletionTimestamp" in metadata(state.manifest):
                continue
            strangers = [owner for owner in owners(state.manifest) if not was_here(owner)]
            if strangers:
                yield self._keep_command(stream, state, strangers[0], now)
            else:
                yield self._collect_command(stream, state, now)

    def _ending_commands(self, stream: str, state: ObjectState, now: int) -> Iterator[Command]:
        manifest, author = state.manifest or {}, door.controller(self.owner, now)
        finalizer, own = ending(manifest), uid(manifest)
        dependents = [
            (KIND_OF_NOUN[noun_and_key(it)[0]].name, dependent)
            for it in sorted(self._owned.get(stream, ()))
            if (dependent := living(self.world.states, it)) is not None
            and any(owner.uid == own for owner in owners(dependent.manifest or {}))
        ]
        for kind, dependent in dependents:
            if finalizer == ORPHAN:
                yield door.update(
                    kind, without_owner(dependent.manifest or {}, own), author, expected=dependent
                ).command
            elif not is_being_deleted(dependent.manifest or {}):
                yield door.delete_unchanged(kind, dependent, author, grace=self.grace).command
        if not dependents and finalizer is not None:
            left = [it for it in metadata(manifest)["finalizers"] if it != finalizer]
            kind = KIND_OF_NOUN[noun_and_key(stream)[0]].name
            wanted = {**manifest, "metadata": {**metadata(manifest), "finalizers": left}}
            yield door.update(kind, wanted, author, expected=state).command

    def _was_here(self, owner: Owner) -> bool:
        with self.database.read() as connection:
            return any(life.uid == owner.uid for life in lives(connection, owner.stream))

    def _collect_command(self, stream: str, state: ObjectState, now: int) -> Command:
        kind = KIND_OF_NOUN[noun_and_key(stream)[0]].name
        delete = door.delete_unchanged(kind, state, door.controller(self.owner, now), grace=self.grace).command
        manifest = state.manifest or {}

        def decide(states: States) -> Decision:
            # Checked again under the lock: the owner may have been recreated.
            return delete.decide(states) if is_orphan(manifest, states) else NOTHING

        streams = (*delete.streams, *(owner.stream for owner in owners(manifest)))
        return Command(actor=self.owner, streams=tuple(dict.fromkeys(streams)), decide=decide)

    def _keep_command(self, stream: str, state: ObjectState, owner: Owner, now: int) -> Command:
        kind, manifest = KIND_OF_NOUN[noun_and_key(stream)[0]].name, state.manifest or {}
        return door.notice(
            kind, key_of(kind, manifest), door.controller(self.owner, now), uid=uid(manifest), type_="Warning",
            reason=OWNER_UNKNOWN, message=kept_orphan(owner), component=COMPONENT,
            once=True,
        )  # fmt: skip


# Data that grows with the work must expire: Kubernetes events, idempotency keys, finished effects.
#
# The log has its own retention (`volsched retention`), because people decide how long to keep history. This data
# is useless after its time, so it expires without a decision or a command.

DAY = 86_400 * SECOND
EVERY = 60 * SECOND
EXPIRY_BATCH = 500
MEMORIES = frozenset({REQUESTED})
"""Events that serve as counters: they are kept as long as their object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """How long each kind of data is kept, in microseconds."""

    notices: int = DAY
    commands: int = 7 * DAY
    done: int = 30 * DAY


DEFAULT_KEEP = Keep()


@dataclass(slots=True)
class Expiry:
    database: Database
    world: World
    owner: str
    keep: Keep = DEFAULT_KEEP
    _due: int = 0

    def update(self, streams: Iterable[str], now: int) -> None:
        """Changes do not matter: data expires by time alone."""

    def step(self, now: int) -> int:
        """Expire a batch of each kind; the next batch follows at once while there is more, else in a minute."""
        if now < self._due:
            return 0
        expired = self._expire_notices(now)
        expired += expire_commands(self.database, before=now - self.keep.commands)
        expired += expire_done(self.database, before=now - self.keep.done)
        if expired == 0:
            self._due = now + EVERY
        return expired

    def next_due(self) -> int | None:
        """None: no other part waits for expiry."""
        return None

    def _expire_notices(self, now: int) -> int:
        with self.database.read() as connection:
            # Every query returns the remembered notices again; there are few in a batch.
            old = old_notices(connection, before=now - self.keep.notices, limit=2 * EXPIRY_BATCH)
        commands = list(self._delete_commands((f"notice/{it.key}" for it in old), now))[:EXPIRY_BATCH]
        execute(self.database, commands, now=now)
        return len(commands)

    def _delete_commands(self, streams: Iterable[str], now: int) -> Iterator[Command]:
        for stream in streams:
            state = living(self.world.states, stream)
            if state is not None and state.manifest is not None and not self._is_remembered(stream):
                yield door.delete_unchanged("Event", state, door.controller(self.owner, now)).command

    def _is_remembered(self, stream: str) -> bool:
        manifest = manifest_of(self.world.states, stream) or {}
        about = manifest.get("involvedObject") or {}
        if manifest.get("reason") not in MEMORIES or about.get("kind") not in NOUN_OF_KIND:
            return False
        key = "/".join(filter(None, (about.get("namespace"), about.get("name"))))
        of = manifest_of(self.world.states, stream_of(about["kind"], key))
        return of is not None and uid(of) == about.get("uid")
