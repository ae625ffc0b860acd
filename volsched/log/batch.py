"""The state of one transaction in memory: states read, and decided events with their positions in the log."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, update

from volsched.kube.problems import DEPTH_MAX, excess, is_deeper
from volsched.log import tables
from volsched.log.commands import EffectDone
from volsched.log.database import Database, Recent
from volsched.log.errors import NewerStoreError, NotMigratedError
from volsched.log.events.catalogue import CLOCK_CORRECTED, CatalogueError, check_payload
from volsched.log.events.envelope import REACTION, Event, NewEvent, canonical, is_finite, link
from volsched.log.events.fold import NewEffect, ObjectState, State, evolve
from volsched.log.events.streams import ATTEMPT, BINDING, LOG_CLOCK, noun_and_key
from volsched.log.revisions import FORMAT
from volsched.log.row_states import attempt_state, binding_state, object_state
from volsched.log.rows import VIEWS

LIGHT_PAYLOAD = 2**12
"""Events of up to this many characters skip the size check: the rules check everything that users write."""
ENVELOPE_DEPTH = 2
"""Nesting levels that an event adds around an object's fields."""
CARRIED_US = 300_000_000
"""The log's time may be ahead of a writer's clock by this much; it stands still until the clock catches up."""


@dataclass(slots=True)
class Head:
    position: int
    hash: bytes
    at: int


@dataclass(slots=True)
class Batch:
    """The decisions of a transaction so far, to be written."""

    head: Head
    now: int
    recent: Recent
    """States of streams that need not be read."""
    is_draft: bool = False
    """Its events have provisional positions and no hashes (`log.drafts`)."""
    states: dict[str, State] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    """Last version of streams that have no state in the views: deleted objects."""
    loaded: set[str] = field(default_factory=set)
    looked_at: set[str] = field(default_factory=set)
    """Streams whose open bindings were looked for."""
    events: list[Event] = field(default_factory=list)
    effects: list[tuple[NewEffect, int]] = field(default_factory=list)
    results: list[tuple[str, int, int, str]] = field(default_factory=list)
    finished: list[EffectDone] = field(default_factory=list)
    carried_out: list[NewEffect] = field(default_factory=list)
    """Effects of this transaction that were carried out in it: they were never queued."""
    changed: dict[str, State | None] = field(default_factory=dict)
    """The streams that have events, with their states before."""

    def version(self, stream: str) -> int:
        state = self.states.get(stream)
        return self.versions.get(stream, 0) if state is None else state.version

    def take(self, events: Sequence[Event], states: dict[str, State], effects: Iterable[NewEffect]) -> None:
        for stream in states:
            if stream not in self.changed:
                self.changed[stream] = self.states.get(stream)
        self.states |= states
        self.events += events
        if events:
            self.head = Head(events[-1].position, events[-1].hash, self.now)
        self.effects += [(effect, self.head.position) for effect in effects]


def lock_head(database: Database, connection: Connection) -> Head:
    row = database.dialect.begin_write(connection)
    if row is None:
        raise NotMigratedError("the store has no head; run: volsched migrate")
    _, position, hash_, at, _, min_writer = row
    if min_writer > FORMAT:
        raise NewerStoreError(
            f"the store asks for writers of format {min_writer} or newer and this program writes format {FORMAT}; "
            "install the newer volsched"
        )
    return Head(position, bytes(hash_), at)


def declare_format(database: Database) -> None:
    """Declare this format the minimum: from now on the store may hold events that earlier programs cannot read."""
    head = tables.log_head
    with database.write_beside_log() as connection:
        for column in (head.c.min_reader, head.c.min_writer):
            connection.execute(update(head).where(column < FORMAT).values({column: FORMAT}))


def begin_batch(database: Database, connection: Connection, head: Head, *, now: int, actor: str) -> Batch:
    """A batch at the log's time, which never goes back except by a correction recorded in the log.

    Clocks of healthy machines differ a little: then time stands still. A larger lead means that the last writer's
    clock was wrong, or ours is; carrying it on would stamp every event into the future until that time is reached.
    """
    if head.at <= now + CARRIED_US:
        return Batch(head, max(now, head.at), database.recent)
    batch = Batch(head, now, database.recent)
    load(database, connection, batch, [LOG_CLOCK])
    corrected = NewEvent(stream=LOG_CLOCK, type=CLOCK_CORRECTED, data={"before": head.at, "after": now})
    batch.take(*stage(batch, actor, [corrected], None), ())
    return batch


def load_states(
    database: Database, connection: Connection, streams: Iterable[str]
) -> tuple[dict[str, State], dict[str, int]]:
    """The state of each stream, from the views; and the last versions of streams that have no row there."""
    by_noun: dict[str, list[str]] = {}
    for stream in streams:
        noun, key = noun_and_key(stream)
        by_noun.setdefault(noun, []).append(key)
    states: dict[str, State] = {}
    for noun, keys in by_noun.items():
        for key, state in _load_noun(database, connection, noun, keys):
            states[f"{noun}/{key}"] = state
    absent = [f"{noun}/{key}" for noun, keys in by_noun.items() for key in keys if f"{noun}/{key}" not in states]
    return states, database.dialect.fetch_versions(connection, absent) if absent else {}


def _load_noun(
    database: Database, connection: Connection, noun: str, keys: list[str]
) -> Iterable[tuple[str, State]]:
    fetch = database.dialect.fetch
    if noun == BINDING:
        legs: dict[str, list[dict[str, Any]]] = {}
        for leg in fetch(connection, tables.binding_legs, "binding", keys):
            legs.setdefault(leg["binding"], []).append(leg)
        rows = fetch(connection, tables.bindings, "id", keys)
        return [(row["id"], binding_state(row, legs.get(row["id"], []))) for row in rows]
    if noun == ATTEMPT:
        return [(row["id"], attempt_state(row)) for row in fetch(connection, tables.attempts, "id", keys)]
    if noun in VIEWS:
        return [(row["key"], object_state(row)) for row in fetch(connection, VIEWS[noun][0], "key", keys)]
    return []


def load(database: Database, connection: Connection, batch: Batch, streams: Iterable[str]) -> None:
    missing: list[str] = []
    for stream in dict.fromkeys(streams):
        if stream not in batch.loaded:
            batch.loaded.add(stream)
            known = batch.recent.get(stream)
            if known is None:
                missing.append(stream)
            else:
                batch.states[stream] = known
    if missing:
        states, versions = load_states(database, connection, missing)
        batch.states |= states
        batch.versions |= versions


def stage(
    batch: Batch, actor: str, new_events: Iterable[NewEvent], cause: int | None
) -> tuple[list[Event], dict[str, State]]:
    """The events with their positions in the log, and the new states of their streams."""
    events: list[Event] = []
    states: dict[str, State] = {}
    previous = None if batch.is_draft else batch.head.hash
    first = batch.head.position + 1
    for position, new in enumerate(new_events, start=first):
        state = states.get(new.stream, batch.states.get(new.stream))
        version = (batch.versions.get(new.stream, 0) if state is None else state.version) + 1
        by, led_by = (REACTION, first) if new.is_consequence else (actor, cause)
        event = place(new, by, batch.now, position, version, previous, led_by)
        became = states[new.stream] = evolve(
            state, type_=new.type, version=version, position=position, at=batch.now, data=new.data
        )
        nested = event.data.count("{") + event.data.count("[")
        if len(event.data) > LIGHT_PAYLOAD or nested > DEPTH_MAX:
            _refuse_excess(new, state, became)
        events.append(event)
        previous = None if batch.is_draft else event.hash
    return events, states


def _refuse_excess(new: NewEvent, before: State | None, after: State) -> None:
    """The last check for every writer: export, archive, backup and all others must be able to read the event."""
    if is_deeper(new.data, DEPTH_MAX + ENVELOPE_DEPTH):
        raise CatalogueError(f"{new.type} of {new.stream} is nested more than {DEPTH_MAX} levels deep")
    old = before.manifest if isinstance(before, ObjectState) else None
    problem = excess(after.manifest, old) if isinstance(after, ObjectState) and after.manifest else None
    if problem is not None:
        raise CatalogueError(f"{new.stream} {problem}")


def place(
    new: NewEvent,
    actor: str,
    at: int,
    position: int,
    version: int,
    previous: bytes | None,
    cause: int | None = None,
) -> Event:
    """The event at its position in the log, checked against the catalogue and linked to the one before.

    `cause` applies to an event that names none itself. `previous`: None where it is not linked yet.
    """
    stream, type_, binding = new.stream, new.type, new.binding
    cause = cause if new.cause is None else new.cause
    if not stream.isprintable() or not (binding is None or binding.isprintable()):
        raise CatalogueError(f"{stream!r} and {binding!r} may not hold control characters")
    schema = check_payload(type_, stream.partition("/")[0], new.data).schema
    try:
        data = canonical(new.data)
    except TypeError as error:
        raise CatalogueError(
            f"{type_} of {stream} cannot be stored: {error}; write such a value as a string"
        ) from None
    # A non-finite number becomes null: without a null in the text, the walk through the data is skipped.
    if "null" in data and not is_finite(new.data):
        raise CatalogueError(f"{type_} of {stream} holds a number that is not finite; write it as a string")
    hash_ = (
        b""
        if previous is None
        else link(previous, position, stream, version, type_, schema, at, actor, cause, binding, data)
    )
    # Bypasses the constructor of the named tuple, which costs as much again as the tuple.
    return tuple.__new__(Event, (position, stream, version, type_, schema, at, actor, cause, binding, data, hash_))
