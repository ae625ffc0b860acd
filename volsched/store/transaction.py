"""One SQL transaction for many commands: lock the head, decide each in memory, write everything, commit.

Commands of a batch see each other's results. A command that is refused, or that breaks, fails alone: all is
checked in memory before the first row is written, and if the database itself refuses a batch it is halved until
the culprit stands alone.

Lock order: the head row first, always. It is held to commit, which makes positions dense and commit-ordered.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from pydantic_core import from_json
from sqlalchemy import Connection, Table, delete, insert, literal, select

from volsched.core.binding.saga import advance, context_of, fail
from volsched.core.binding.seen import claim_of, manifest_of
from volsched.core.decision import Decision, NewEffect, States
from volsched.core.fold import BindingState, ObjectState, State, UnknownState, evolve
from volsched.events.catalogue import CATALOGUE, CatalogueError, Change, check_payload
from volsched.events.envelope import Event, NewEvent, canonical, is_finite, link
from volsched.events.streams import ATTEMPT, BINDING, noun_and_key
from volsched.faults import reach
from volsched.store import tables
from volsched.store.commands import Command, ConflictError, DeposedError, Done, EffectDone, Outcome
from volsched.store.database import Database
from volsched.store.effects import EffectState, lock_fences
from volsched.store.errors import ConnectionLostError, Mark, NewerStoreError, NotMigratedError
from volsched.store.reactions import events_after, touching_bindings
from volsched.store.rows import (
    ASSUMED,
    VIEWS,
    assumed_values,
    attempt_state,
    binding_state,
    object_state,
    rows_of,
    values_of,
)
from volsched.store.snapshots import write_snapshots

REACTION = "volsched"
"""The actor of events that follow from others; their cause says from which."""
Reaction = Callable[[str, States], Decision]
_ASSUMPTIONS = frozenset(
    entry.name for entry in CATALOGUE.values() if entry.change in (Change.ASSUME, Change.FREE)
)
_FACTS = frozenset(
    entry.name
    for entry in CATALOGUE.values()
    if entry.change in (Change.CREATE, Change.PATCH, Change.DELETE, Change.MOVE_BINDING, Change.MOVE_LEG)
)
"""Events that something may follow from. That a thing is planned or assumed changes nothing beside its plan."""
FORMAT = 1
"""What this program reads and writes; a store says which formats may do so."""


@dataclass(slots=True)
class Head:
    position: int
    hash: bytes
    at: int


@dataclass(slots=True)
class _Batch:
    """What a transaction has decided so far and will write."""

    head: Head
    now: int
    states: dict[str, State] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    """Last version of streams that have no state in the views: deleted objects."""
    loaded: set[str] = field(default_factory=set)
    events: list[Event] = field(default_factory=list)
    effects: list[tuple[NewEffect, int]] = field(default_factory=list)
    results: list[tuple[str, int, int, str]] = field(default_factory=list)
    finished: list[EffectDone] = field(default_factory=list)
    changed: dict[str, None] = field(default_factory=dict)

    def version(self, stream: str) -> int:
        state = self.states.get(stream)
        return self.versions.get(stream, 0) if state is None else state.version

    def take(self, events: Sequence[Event], states: dict[str, State], effects: Iterable[NewEffect]) -> None:
        self.states |= states
        self.changed |= dict.fromkeys(states)
        self.events += events
        if events:
            self.head = Head(events[-1].position, events[-1].hash, self.now)
        self.effects += [(effect, self.head.position) for effect in effects]


def execute(
    database: Database, commands: Sequence[Command], *, now: int, react: Reaction = advance
) -> list[Outcome]:
    """Carry out the commands in one transaction; one outcome each, in order. `now` is in microseconds.

    `react` says what follows for a binding from what is now so; only tests give another one.
    """
    if not commands:
        return []
    refusals: tuple[type[Exception], ...] = (*database.refusals, ConflictError)
    try:
        return _execute(database, commands, now, react)
    except refusals as error:
        if len(commands) == 1:
            return [error]
    middle = len(commands) // 2
    settled = execute(database, commands[:middle], now=now, react=react)
    try:
        return settled + execute(database, commands[middle:], now=now, react=react)
    except ConnectionLostError as lost:
        lost.settled = settled + lost.settled
        raise


def is_committed(database: Database, mark: Mark | None) -> bool:
    """Whether a batch whose connection was lost is in the log; raises ConnectionLostError while it cannot tell."""
    events = tables.events
    with database.read() as connection:
        asked = select(events.c.hash).where(events.c.position == (mark.position if mark else 0))
        found = connection.execute(asked).scalar()
    return mark is not None and found is not None and bytes(found) == mark.hash


def _execute(database: Database, commands: Sequence[Command], now: int, react: Reaction) -> list[Outcome]:
    mark: Mark | None = None
    outcomes: list[Outcome] = []
    try:
        with database.write() as connection:
            head = lock_head(database, connection)
            batch = _Batch(head, max(now, head.at))
            _load(database, connection, batch, (stream for command in commands for stream in command.streams))
            guards = _Guards.load(database, connection, commands)
            outcomes = [_attempt(batch, guards, command) for command in commands]
            _react(database, connection, batch, react)
            _write(database, connection, batch)
            if batch.events:
                mark = Mark(batch.head.position, batch.head.hash)
            reach("commit.before")
    except ConnectionLostError as lost:
        lost.mark, lost.outcomes = mark, outcomes
        raise
    reach("commit.after")
    return outcomes


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


def load_states(
    database: Database, connection: Connection, streams: Iterable[str]
) -> tuple[dict[str, State], dict[str, int]]:
    """What each stream has become, from the views; and the last versions of streams that have no row there."""
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


@dataclass(slots=True)
class _Guards:
    """What commands are checked against, read under the head lock."""

    results: dict[str, Done]
    epochs: dict[str, int]
    fences: dict[str, int]
    recent: list[Event]
    """What was appended since the oldest decision of the batch was made."""

    @classmethod
    def load(cls, database: Database, connection: Connection, commands: Sequence[Command]) -> "_Guards":
        fetch = database.dialect.fetch
        keys = [command.key for command in commands if command.key is not None]
        leases = {command.lease.name for command in commands if command.lease is not None}
        effects = [command.effect.key for command in commands if command.effect is not None]
        results = {
            row["key"]: Done(position=row["position"], events=0, result=from_json(row["result"]), repeated=True)
            for row in (fetch(connection, tables.commands, "key", keys) if keys else ())
        }
        epochs = {
            row["name"]: row["epoch"]
            for row in (fetch(connection, tables.leases, "name", leases) if leases else ())
        }
        seen = [command.seen.position for command in commands if command.seen is not None]
        recent = events_after(connection, min(seen)) if seen else []
        return cls(results, epochs, lock_fences(database, connection, effects) if effects else {}, recent)

    def check(self, command: Command) -> None:
        lease, effect = command.lease, command.effect
        if lease is not None and self.epochs.get(lease.name) != lease.epoch:
            raise DeposedError(f'lease "{lease.name}" is no longer held in epoch {lease.epoch}')
        if effect is not None and self.fences.get(effect.key) != effect.fence:
            raise DeposedError(f'effect "{effect.key}" is no longer claimed with fence {effect.fence}')

    def check_seen(self, command: Command, events: Sequence[Event]) -> None:
        """No other writer made the decision worthless, before this transaction or earlier in it."""
        if command.seen is None:
            return
        if self.recent and self.recent[0].position > command.seen.position + 1:
            raise ConflictError(f"decided at {command.seen.position}, and what came next is archived already")
        for event in chain(self.recent, events):
            if event.position > command.seen.position and event.actor != command.actor:
                why = command.seen.outdated(event)
                if why is not None:
                    raise ConflictError(f"decided at {command.seen.position}, but at {event.position} {why}")


def _attempt(batch: _Batch, guards: _Guards, command: Command) -> Outcome:
    """Decide one command against what the batch has become; on any failure the batch is as it was."""
    if command.key is not None and command.key in guards.results:
        return guards.results[command.key]
    try:
        guards.check(command)
        if not command.actor.isprintable():
            raise CatalogueError(f"actor {command.actor!r} may not hold control characters")
        for stream, version in command.expected.items():
            if batch.version(stream) != version:
                raise ConflictError(f"{stream} is at version {batch.version(stream)}, not at {version}")
        guards.check_seen(command, batch.events)
        decision = command.decide(batch.states)
        unnamed = next((new for new in decision.events if new.stream not in command.streams), None)
        if unnamed is not None:
            raise CatalogueError(f"{unnamed.type} is about {unnamed.stream}, which the command did not name")
        events, states = _stage(batch, command.actor, decision.events, command.cause)
    except Exception as error:
        # Whatever a decide raises concerns its own command only; the neighbours go on.
        return error
    batch.take(events, states, decision.effects)
    position = batch.head.position
    done = Done(position=position, events=len(events), result=decision.result)
    if command.effect is not None:
        batch.finished.append(command.effect)
        del guards.fences[command.effect.key]
    if command.key is not None:
        batch.results.append((command.key, position, batch.now, canonical(dict(decision.result))))
        guards.results[command.key] = Done(position=position, events=0, result=decision.result, repeated=True)
    return done


def _stage(
    batch: _Batch, actor: str, new_events: Iterable[NewEvent], cause: int | None
) -> tuple[list[Event], dict[str, State]]:
    """The events with their places in the log, and what their streams become."""
    events: list[Event] = []
    states: dict[str, State] = {}
    previous = batch.head.hash
    for position, new in enumerate(new_events, start=batch.head.position + 1):
        state = states.get(new.stream, batch.states.get(new.stream))
        version = (batch.versions.get(new.stream, 0) if state is None else state.version) + 1
        caused = new if cause is None or new.cause is not None else replace(new, cause=cause)
        event = place(caused, actor, batch.now, position, version, previous)
        states[new.stream] = evolve(
            state, type_=new.type, version=version, position=position, at=batch.now, data=new.data
        )
        events.append(event)
        previous = event.hash
    return events, states


def place(new: NewEvent, actor: str, at: int, position: int, version: int, previous: bytes) -> Event:
    """The event at its place in the log, checked against the catalogue and linked to the one before."""
    stream, type_, cause, binding = new.stream, new.type, new.cause, new.binding
    if not stream.isprintable() or not (binding is None or binding.isprintable()):
        raise CatalogueError(f"{stream!r} and {binding!r} may not hold control characters")
    schema = check_payload(type_, stream.partition("/")[0], new.data).schema
    try:
        data = canonical(new.data)
    except TypeError as error:
        raise CatalogueError(
            f"{type_} of {stream} cannot be stored: {error}; write such a value as a string"
        ) from None
    # Looked for only where there is a null that it may have become: it would be a walk through every event.
    if "null" in data and not is_finite(new.data):
        raise CatalogueError(f"{type_} of {stream} holds a number that is not finite; write it as a string")
    hash_ = link(previous, position, stream, version, type_, schema, at, actor, cause, binding, data)
    # Past the constructor of the named tuple, which costs as much again as the tuple.
    return tuple.__new__(Event, (position, stream, version, type_, schema, at, actor, cause, binding, data, hash_))


def _react(database: Database, connection: Connection, batch: _Batch, react: Reaction) -> None:
    """Let every open binding that these events touch move on, in the transaction of the events themselves."""
    fresh = {event.stream: event.position for event in batch.events if _is_fact(batch, event)}
    while fresh:
        touched = [stream.partition("/")[2] for stream in fresh if stream.startswith(f"{BINDING}/")]
        bindings = {*touched, *touching_bindings(database, connection, [*fresh, *_reserved_for(batch, fresh)])}
        bindings |= {
            stream.partition("/")[2]
            for stream, state in batch.states.items()
            if isinstance(state, BindingState) and any(it in fresh for it in context_of(state, batch.states))
        }
        _load(database, connection, batch, (f"{BINDING}/{binding}" for binding in bindings))
        for _ in range(2):
            # Twice: only a claim that is loaded tells which volume was provisioned for it.
            states = (batch.states.get(f"{BINDING}/{binding}") for binding in bindings)
            open_ = [state for state in states if isinstance(state, BindingState) and state.open]
            _load(database, connection, batch, (it for state in open_ for it in context_of(state, batch.states)))
        following: dict[str, int] = {}
        for binding in sorted(bindings):
            last = _advance(batch, binding, fresh, react)
            if last is not None:
                following[f"{BINDING}/{binding}"] = last
        # What became of a binding matters to those that joined it, and to nobody else.
        fresh = following


def _is_fact(batch: _Batch, event: Event) -> bool:
    """Something may follow from it. A plan is a fact only where it has nothing to write, and can go on at once."""
    state = batch.states[event.stream]
    if event.type in _FACTS or not isinstance(state, BindingState):
        return event.type in _FACTS
    return not any(leg.owner for leg in state.legs)


def _advance(batch: _Batch, binding: str, fresh: Mapping[str, int], react: Reaction) -> int | None:
    """Move a binding as far as it goes; the position of its last event, if it moved at all."""
    last = None
    while (decision := _reaction(batch, binding, react)).events:
        cause = last
        if cause is None:
            state = batch.states[f"{BINDING}/{binding}"]
            assert isinstance(state, BindingState)
            known = (f"{BINDING}/{binding}", *context_of(state, batch.states))
            cause = max((fresh[stream] for stream in known if stream in fresh), default=None)
        events, states = _stage(batch, REACTION, decision.events, cause)
        batch.take(events, states, decision.effects)
        last = events[-1].position
    return last


def _reaction(batch: _Batch, binding: str, react: Reaction) -> Decision:
    try:
        return react(binding, batch.states)
    except Exception as error:
        # What has happened must be recorded whatever it does to a binding that cannot make sense of it.
        return fail(binding, f"it cannot be judged: {type(error).__name__}: {error}", batch.states)


def _reserved_for(batch: _Batch, streams: Iterable[str]) -> Iterator[str]:
    """The claims that these volumes name: that a volume was made for a claim, only the volume says at first."""
    for stream in streams:
        manifest = manifest_of(batch.states, stream) if stream.startswith("volume/") else None
        claim = None if manifest is None else claim_of(manifest)
        if claim is not None:
            yield f"claim/{claim.get('namespace')}/{claim.get('name')}"


def _load(database: Database, connection: Connection, batch: _Batch, streams: Iterable[str]) -> None:
    missing = {stream for stream in streams if stream not in batch.loaded}
    if missing:
        states, versions = load_states(database, connection, missing)
        batch.states |= states
        batch.versions |= versions
        batch.loaded |= missing


def _write(database: Database, connection: Connection, batch: _Batch) -> None:
    dialect = database.dialect
    if batch.events:
        dialect.insert(connection, tables.events, batch.events)
        written = {event.stream for event in batch.events if event.type not in _ASSUMPTIONS}
        write_views(database, connection, {stream: batch.states[stream] for stream in written})
        _write_assumptions(database, connection, batch, batch.changed.keys() - written)
        write_snapshots(dialect, connection, batch.events, batch.states)
        dialect.move_head(connection, batch.head.position, batch.head.hash, batch.head.at)
    if batch.effects:
        _enqueue(database, connection, batch)
    if batch.results:
        dialect.insert(connection, tables.commands, batch.results)
    if batch.finished:
        _finish(database, connection, batch.finished, batch.now)


def write_views(database: Database, connection: Connection, states: dict[str, State]) -> None:
    """Bring the views to what these streams have become."""
    rows: dict[Table, list[tuple[Any, ...]]] = {}
    gone: dict[Table, list[str]] = {}
    for stream, state in states.items():
        noun, key = noun_and_key(stream)
        if isinstance(state, ObjectState) and state.manifest is None:
            gone.setdefault(VIEWS[noun][0], []).append(key)
        elif not isinstance(state, UnknownState):
            for table, row in rows_of(noun, key, state):
                rows.setdefault(table, []).append(values_of(table)(row))
    for table, keys in gone.items():
        connection.execute(delete(table).where(table.c.key.in_(keys)))
    for table, values in rows.items():
        database.dialect.upsert(connection, table, values)


def _write_assumptions(database: Database, connection: Connection, batch: _Batch, streams: Iterable[str]) -> None:
    """Objects that were only assumed or freed: the most frequent change, and the manifest stays as it is."""
    rows: dict[Table, list[tuple[Any, ...]]] = {}
    for stream in streams:
        noun, key = noun_and_key(stream)
        state = batch.states[stream]
        if isinstance(state, ObjectState):
            rows.setdefault(VIEWS[noun][0], []).append(assumed_values(key, state))
    for table, values in rows.items():
        database.dialect.update(connection, table, ASSUMED, values)


def _enqueue(database: Database, connection: Connection, batch: _Batch) -> None:
    """Add the effects behind all others of their lanes: (position, seq) grows with every one that is queued."""
    fetch = database.dialect.fetch
    done = fetch(connection, tables.effects_done, "key", [effect.key for effect, _ in batch.effects])
    if done:
        raise ConflictError(f'effect "{done[0]["key"]}" is done already and its key cannot be used again')
    first, seq = batch.effects[0][1], 0
    if first == batch.head.position - len(batch.events):
        # A command without events shares the position of an earlier transaction, whose effects may still be there.
        mates = fetch(connection, tables.effects, "lane", {effect.lane for effect, _ in batch.effects})
        seq = max((mate["seq"] + 1 for mate in mates if mate["position"] == first), default=0)
    rows = [_effect_row(*entry, number) for number, entry in enumerate(batch.effects, start=seq)]
    database.dialect.insert(connection, tables.effects, rows)


def _effect_row(effect: NewEffect, position: int, seq: int) -> tuple[Any, ...]:
    return (
        effect.key, effect.lane, effect.queue, effect.kind, effect.binding, canonical(dict(effect.data)), position,
        seq, max(effect.due, 0), EffectState.READY, None, None, 0, 0, None,
    )  # fmt: skip


def _finish(database: Database, connection: Connection, finished: Sequence[EffectDone], now: int) -> None:
    """Move effects whose outcome is recorded out of the queue, so that the queue stays as small as the work."""
    by_outcome: dict[str, list[str]] = {}
    for effect in finished:
        by_outcome.setdefault(effect.outcome, []).append(effect.key)
    queue, done = tables.effects, tables.effects_done
    for outcome, keys in by_outcome.items():
        these = database.dialect.among(queue.c.key, keys)
        kept = (queue.c.key, queue.c.lane, queue.c.queue, queue.c.kind, queue.c.binding, queue.c.data)
        moved = select(*kept, literal(outcome), queue.c.attempts, literal(now)).where(these)
        connection.execute(insert(done).from_select(list(done.columns), moved))
        connection.execute(delete(queue).where(these))
