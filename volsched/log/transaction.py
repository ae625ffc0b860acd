"""One SQL transaction for many commands: lock the head, decide each in memory, write everything, commit.

Commands of a batch see each other's results. A command that is refused, or that raises, fails alone: everything is
checked in memory before the first row is written, and if the database itself refuses a batch, the batch is halved
until the culprit is alone.

Lock order: the head row first, always. It is held to commit, which makes positions dense and commit-ordered.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import Any

from pydantic_core import from_json
from sqlalchemy import Connection, Delete, Insert, Table, bindparam, delete, insert, select

from volsched.binding.rules.saga import advance
from volsched.log import tables
from volsched.log.base import write_snapshots
from volsched.log.batch import Batch, begin_batch, load, lock_head, stage
from volsched.log.commands import (
    NO_PRECONDITION,
    Command,
    ConflictError,
    Continuation,
    DeposedError,
    Done,
    EffectDone,
    Outcome,
    Progress,
    Scan,
    version_of,
)
from volsched.log.commit_listeners import Commit
from volsched.log.database import Database
from volsched.log.dialects import Dialect
from volsched.log.effects import EffectState, lock_fences
from volsched.log.errors import CommitMark, ConnectionLostError
from volsched.log.events.catalogue import CATALOGUE, CatalogueError, StateChange
from volsched.log.events.envelope import Event, canonical
from volsched.log.events.fold import BindingState, NewEffect, ObjectState, State, UnknownState, pod_stream
from volsched.log.events.streams import noun_and_key
from volsched.log.phrases import packed
from volsched.log.reactions import Reaction, events_after, react_to, touching_bindings
from volsched.log.rows import ASSUMED, VIEWS, assumed_values, rows_of, values_of
from volsched.runtime.fault_points import reach

# Writing a transaction's decisions: events, views, effects, results, the head.

MANY = 32
"""Streams from which on a set is faster than a tuple."""
_ASSUMPTIONS = frozenset(
    entry.name for entry in CATALOGUE.values() if entry.change in (StateChange.ASSUME, StateChange.FREE)
)


def write(database: Database, connection: Connection, batch: Batch, *, packs: bool = False) -> None:
    effects = _effect_rows(database, connection, batch) if batch.effects else []
    with database.dialect.together(connection, len(batch.events)):
        _write(database, connection, batch, effects, packs=packs)


def _write(
    database: Database, connection: Connection, batch: Batch, effects: Sequence[tuple[Any, ...]], *, packs: bool
) -> None:
    """Nothing is read here: all of it may be sent at once."""
    dialect = database.dialect
    if batch.events:
        rows = [it._replace(data=packed(it.data)) for it in batch.events] if packs else batch.events
        dialect.insert(connection, tables.events, rows)
        written = {event.stream for event in batch.events if event.type not in _ASSUMPTIONS}
        write_views(database, connection, {stream: batch.states[stream] for stream in written})
        _write_assumptions(database, connection, batch, batch.changed.keys() - written)
        write_snapshots(dialect, connection, batch.events, batch.states)
        dialect.move_head(connection, batch.head.position, batch.head.hash, batch.head.at)
    if effects:
        dialect.insert(connection, tables.effects, effects)
    if batch.carried_out:
        dialect.insert(connection, tables.effects_done, [_done_row(it, batch.now) for it in batch.carried_out])
    if batch.results:
        dialect.insert(connection, tables.commands, batch.results)
    if batch.finished:
        _finish(database, connection, batch.finished, batch.now)


def write_views(database: Database, connection: Connection, states: dict[str, State]) -> None:
    """Bring the views to the new states of these streams."""
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
        database.dialect.run(
            connection, _removing(database.dialect, table), {"keys": database.dialect.named(keys)}
        )
    for table, values in rows.items():
        database.dialect.upsert(connection, table, values)


@cache
def _removing(dialect: Dialect, table: Table) -> Delete:
    return delete(table).where(dialect.among_named(table.c.key, "keys"))


def _write_assumptions(database: Database, connection: Connection, batch: Batch, streams: Iterable[str]) -> None:
    """Objects that were only assumed or freed: the most frequent change, without a change of the manifest."""
    rows: dict[Table, list[tuple[Any, ...]]] = {}
    for stream in streams:
        noun, key = noun_and_key(stream)
        state = batch.states[stream]
        if isinstance(state, ObjectState):
            rows.setdefault(VIEWS[noun][0], []).append(assumed_values(key, state))
    for table, values in rows.items():
        database.dialect.update(connection, table, ASSUMED, values)


def _effect_rows(database: Database, connection: Connection, batch: Batch) -> list[tuple[Any, ...]]:
    """The effects behind all others of their lanes: (position, seq) grows with each one."""
    fetch = database.dialect.fetch
    done = fetch(connection, tables.effects_done, "key", [effect.key for effect, _ in batch.effects])
    if done:
        raise ConflictError(f'effect "{done[0]["key"]}" is done already and its key cannot be used again')
    first, seq = batch.effects[0][1], 0
    if first == batch.head.position - len(batch.events):
        # A command without events shares the position of an earlier transaction, whose effects may still be
        # queued.
        mates = fetch(connection, tables.effects, "lane", {effect.lane for effect, _ in batch.effects})
        seq = max((mate["seq"] + 1 for mate in mates if mate["position"] == first), default=0)
    return [_effect_row(*entry, number) for number, entry in enumerate(batch.effects, start=seq)]


def _effect_row(effect: NewEffect, position: int, seq: int) -> tuple[Any, ...]:
    return (
        effect.key, effect.lane, effect.queue, effect.kind, effect.binding, canonical(dict(effect.data)), position,
        seq, max(effect.due, 0), EffectState.READY, None, None, 0, 0, None, None, None,
    )  # fmt: skip


def _done_row(effect: NewEffect, now: int) -> tuple[Any, ...]:
    data = canonical(dict(effect.data))
    return effect.key, effect.lane, effect.queue, effect.kind, effect.binding, data, "done", 1, now


def _finish(database: Database, connection: Connection, finished: Sequence[EffectDone], now: int) -> None:
    """Move effects whose outcome is recorded out of the queue, so that the queue stays as small as the work."""
    by_outcome: dict[str, list[str]] = {}
    for effect in finished:
        by_outcome.setdefault(effect.outcome, []).append(effect.key)
    copied, removed = _moving(database.dialect)
    for outcome, keys in by_outcome.items():
        these = database.dialect.named(keys)
        database.dialect.run(connection, copied, {"outcome": outcome, "now": now, "these": these})
        database.dialect.run(connection, removed, {"these": these})


@cache
def _moving(dialect: Dialect) -> tuple[Insert, Delete]:
    """Built once: building takes longer than executing."""
    queue, done = tables.effects, tables.effects_done
    these = dialect.among_named(queue.c.key, "these")
    kept = (queue.c.key, queue.c.lane, queue.c.queue, queue.c.kind, queue.c.binding, queue.c.data)
    outcome, now = bindparam("outcome", type_=done.c.outcome.type), bindparam("now", type_=done.c.done_at.type)
    moved = select(*kept, outcome, queue.c.attempts, now).where(these)
    return insert(done).from_select(list(done.columns), moved), delete(queue).where(these)


def execute(
    database: Database,
    commands: Sequence[Command],
    *,
    now: int,
    react: Reaction = advance,
    go_on: Continuation | None = None,
    packs: bool = False,
) -> list[Outcome]:
    """Commit the commands in one transaction; one outcome each, in order. `now` is in microseconds.

    `react` decides a binding's next step from the new state; only tests pass another one. `go_on` carries out, in
    the same transaction, what the commands have queued for the bindings that they plan or write for. With `packs`
    the events' data is stored packed, which takes longer: for what is observed all day. The store has to declare
    it before (`declare_format`).
    """
    if not commands:
        return []
    refusals: tuple[type[Exception], ...] = (*database.refusals, ConflictError)
    try:
        return _execute(database, commands, now, react, go_on, packs=packs)
    except refusals as error:
        if len(commands) == 1:
            return [error]
    middle = len(commands) // 2
    settled = execute(database, commands[:middle], now=now, react=react, go_on=go_on, packs=packs)
    try:
        return settled + execute(database, commands[middle:], now=now, react=react, go_on=go_on, packs=packs)
    except ConnectionLostError as lost:
        lost.settled = settled + lost.settled
        raise


def is_committed(database: Database, mark: CommitMark | None) -> bool:
    """Whether a batch whose connection was lost is in the log; raises ConnectionLostError while it cannot tell."""
    events = tables.events
    with database.read() as connection:
        asked = select(events.c.hash).where(events.c.position == (mark.position if mark else 0))
        found = connection.execute(asked).scalar()
    return mark is not None and found is not None and bytes(found) == mark.hash


def _execute(
    database: Database,
    commands: Sequence[Command],
    now: int,
    react: Reaction,
    go_on: Continuation | None,
    *,
    packs: bool,
) -> list[Outcome]:
    mark: CommitMark | None = None
    outcomes: list[Outcome] = []
    try:
        with database.write() as connection:
            head = lock_head(database, connection)
            locked = time.monotonic()
            began = head.position, head.hash
            database.recent.catch_up(database.dialect, connection, began)
            batch = begin_batch(database, connection, head, now=now, actor=commands[0].actor)
            load(database, connection, batch, (stream for command in commands for stream in _streams(command)))
            guards = _Guards.load(database, connection, commands)
            outcomes = [_attempt(batch, guards, command) for command in commands]
            react_to(database, connection, batch, react)
            if go_on is not None:
                _carry_on(database, connection, batch, guards, commands, react, go_on)
            write(database, connection, batch, packs=packs)
            database.recent.keep(began, (batch.head.position, batch.head.hash), batch.states)
            if batch.events:
                mark = CommitMark(batch.head.position, batch.head.hash)
            reach("commit.before")
    except ConnectionLostError as lost:
        lost.mark, lost.outcomes = mark, outcomes
        raise
    seconds = time.monotonic() - locked
    reach("commit.after")
    database.meters.head_lock.observe(seconds)
    if batch.events:
        database.report(Commit(events=batch.events, states=batch.states, seconds=seconds))
    return outcomes


# What follows within the transaction. Commands are decided, their reactions follow, and again, until nothing
# follows any more: the same events as in one transaction after the other, with one commit.


def _carry_on(
    database: Database,
    connection: Connection,
    batch: Batch,
    guards: "_Guards",
    commands: Sequence[Command],
    react: Reaction,
    go_on: Continuation,
) -> None:
    bindings = _planned_alone(database, connection, batch) | _written_for(batch, commands)
    tried: set[str] = set()
    seen = 0
    while bindings:
        reached = len(batch.events)
        queued = [it for it in batch.effects if it[0].binding in bindings and it[0].key not in tried]
        found = go_on(Progress(bindings=bindings, effects=queued, events=batch.events[seen:], states=batch.states))
        if not found:
            return
        load(database, connection, batch, (stream for it in found for stream in it.command.streams))
        done: set[str] = set()
        for it in found:
            outcome = _attempt(batch, guards, it.command)
            if it.effect is not None:
                tried.add(it.effect)
                if isinstance(outcome, Done):
                    done.add(it.effect)
        batch.carried_out += [effect for effect, _ in batch.effects if effect.key in done]
        batch.effects = [it for it in batch.effects if it[0].key not in done]
        react_to(database, connection, batch, react, since=reached)
        seen = reached


def _planned_alone(database: Database, connection: Connection, batch: Batch) -> set[str]:
    """The bindings planned here that share nothing with another open one.

    That a volume, a claim and a pod are in one open binding at a time is an index's to refuse, and a binding that
    ends in the transaction in which it began is never in that index. So these are looked up; all others are
    written as they are, for the index to see.
    """
    planned = {
        noun_and_key(event.stream)[1]: tuple(_taken_by(batch.states[event.stream]))
        for event in batch.events
        if event.type == "BindingPlanned"
    }
    if not planned:
        return set()
    uses = Counter(chain.from_iterable(planned.values()))
    others = touching_bindings(database, connection, uses) - planned.keys()
    if others:
        load(database, connection, batch, (f"binding/{it}" for it in others))
        uses.update(stream for it in others for stream in _taken_by(batch.states.get(f"binding/{it}")))
    return {binding for binding, taken in planned.items() if all(uses[stream] == 1 for stream in taken)}


def _taken_by(state: State | None) -> Iterator[str]:
    if isinstance(state, BindingState):
        yield pod_stream(state)
        for leg in state.legs:
            yield f"claim/{leg.claim}"
            if leg.volume is not None:
                yield f"volume/{leg.volume}"


def _written_for(batch: Batch, commands: Sequence[Command]) -> set[str]:
    """The bindings whose effects these commands have carried out: they were planned before, and refused or not."""
    done = {it.key for it in batch.finished}
    return {
        noun_and_key(stream)[1]
        for command in commands
        if command.precondition.effect is not None and command.precondition.effect.key in done
        for stream in command.streams
        if stream.startswith("binding/")
    }


def _streams(command: Command) -> Iterator[str]:
    """All streams that the command names: those it may read or write, and those it has read before."""
    read = command.precondition
    return chain(command.streams, read.objects, read.versions)


@dataclass(slots=True)
class _Guards:
    """What preconditions are checked against, read under the head lock."""

    results: dict[str, Done]
    epochs: dict[str, int]
    fences: dict[str, int]
    recent: list[Event]
    """Events appended since the oldest decision of the batch was made."""
    others: dict[str, "_Others"] = field(default_factory=dict)
    """Actor → the events of others: a batch of decisions would walk over its own events once for each."""

    @classmethod
    def load(cls, database: Database, connection: Connection, commands: Sequence[Command]) -> "_Guards":
        fetch = database.dialect.fetch
        read = [command.precondition for command in commands if command.precondition is not NO_PRECONDITION]
        keys = [it.key for it in read if it.key is not None]
        leases = {it.lease.name for it in read if it.lease is not None}
        effects = [it.effect.key for it in read if it.effect is not None]
        results = {
            row["key"]: Done(position=row["position"], events=0, result=from_json(row["result"]), repeated=True)
            for row in (fetch(connection, tables.commands, "key", keys) if keys else ())
        }
        epochs = {
            row["name"]: row["epoch"]
            for row in (fetch(connection, tables.leases, "name", leases) if leases else ())
        }
        scans = [it.scan.position for it in read if it.scan is not None]
        recent = events_after(database, connection, min(scans)) if scans else []
        return cls(results, epochs, lock_fences(database, connection, effects) if effects else {}, recent)

    def check(self, command: Command, batch: Batch) -> None:
        """Raises ConflictError or DeposedError where the precondition does not hold.

        Earlier commands of the batch count as done.
        """
        read = command.precondition
        lease, effect = read.lease, read.effect
        if lease is not None and self.epochs.get(lease.name) != lease.epoch:
            raise DeposedError(f'lease "{lease.name}" is no longer held in epoch {lease.epoch}')
        if effect is not None and self.fences.get(effect.key) != effect.fence:
            raise DeposedError(f'effect "{effect.key}" is no longer claimed with fence {effect.fence}')
        for stream, wanted in read.objects.items():
            if (have := version_of(batch.states.get(stream))) != wanted:
                message = f"{stream} was changed by somebody else: it is at version {have}, not at {wanted}"
                raise _conflict(message, stream, "resourceVersion", wanted, have)
        for stream, wanted in read.versions.items():
            if (have := batch.version(stream)) != wanted:
                raise _conflict(f"{stream} is at version {have}, not at {wanted}", stream, "version", wanted, have)
        if read.scan is not None:
            self._check_scan(read.scan, command.actor, batch.events)

    def _check_scan(self, scan: Scan, actor: str, events: Sequence[Event]) -> None:
        """Raises if another writer invalidated the decision, before this transaction or earlier in it."""
        if self.recent and self.recent[0].position > scan.position + 1:
            raise ConflictError(f"decided at {scan.position}, and what came next is archived already")
        for event in self._by_others(actor, events) if scan.knows_own else chain(self.recent, events):
            if event.position > scan.position:
                why = scan.outdated(event)
                if why is not None:
                    message = f"decided at {scan.position}, but at {event.position} {why}"
                    raise _conflict(message, event.stream, "position", scan.position, event.position)

    def _by_others(self, actor: str, events: Sequence[Event]) -> list[Event]:
        """What others than the actor have appended, of `recent` and of the batch so far."""
        known = self.others.get(actor)
        if known is None:
            known = self.others[actor] = _Others([it for it in self.recent if it.actor != actor])
        known.events += [it for it in events[known.seen :] if it.actor != actor]
        known.seen = len(events)
        return known.events


@dataclass(slots=True)
class _Others:
    events: list[Event]
    seen: int = 0
    """How many events of the batch were looked at."""


def _conflict(message: str, stream: str, field: str, wanted: int, have: int) -> ConflictError:
    return ConflictError(message, subject=stream, field=field, wanted=str(wanted), have=str(have))


def _attempt(batch: Batch, guards: _Guards, command: Command) -> Outcome:
    """Decide one command against the batch's present state; on any failure the batch is unchanged."""
    read = command.precondition
    if read.key is not None and read.key in guards.results:
        return guards.results[read.key]
    try:
        if read is not NO_PRECONDITION:
            guards.check(command, batch)
        if not command.actor.isprintable():
            raise CatalogueError(f"actor {command.actor!r} may not hold control characters")
        decision = command.decide(batch.states)
        # A command names few streams, but for one that takes over a whole cluster.
        named = command.streams if len(command.streams) < MANY else frozenset(command.streams)
        unnamed = next((new for new in decision.events if new.stream not in named), None)
        if unnamed is not None:
            raise CatalogueError(f"{unnamed.type} is about {unnamed.stream}, which the command did not name")
        events, states = stage(batch, command.actor, decision.events, command.cause)
    except Exception as error:
        # An exception of `decide` concerns its own command only; the others go on.
        return error
    batch.take(events, states, decision.effects)
    position = batch.head.position
    done = Done(position=position, events=len(events), result=decision.result)
    if read.effect is not None:
        batch.finished.append(read.effect)
        del guards.fences[read.effect.key]
    if read.key is not None:
        batch.results.append((read.key, position, batch.now, canonical(dict(decision.result))))
        guards.results[read.key] = Done(position=position, events=0, result=decision.result, repeated=True)
    return done
