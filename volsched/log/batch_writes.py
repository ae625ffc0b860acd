"""Writing down what a transaction has decided: events, views, effects, results, the head."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Delete, Insert, Table, bindparam, delete, insert, select

from volsched.log import tables
from volsched.log.batch import Batch
from volsched.log.commands import ConflictError, EffectDone
from volsched.log.database import Database
from volsched.log.dialects import Dialect
from volsched.log.effects import EffectState
from volsched.log.events.catalogue import CATALOGUE, StateChange
from volsched.log.events.decision import NewEffect
from volsched.log.events.envelope import canonical
from volsched.log.events.fold import ObjectState, State, UnknownState
from volsched.log.events.streams import noun_and_key
from volsched.log.rows import ASSUMED, VIEWS, assumed_values, rows_of, values_of
from volsched.log.snapshots import write_snapshots

_ASSUMPTIONS = frozenset(
    entry.name for entry in CATALOGUE.values() if entry.change in (StateChange.ASSUME, StateChange.FREE)
)


def write(database: Database, connection: Connection, batch: Batch) -> None:
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


def _write_assumptions(database: Database, connection: Connection, batch: Batch, streams: Iterable[str]) -> None:
    """Objects that were only assumed or freed: the most frequent change, and the manifest stays as it is."""
    rows: dict[Table, list[tuple[Any, ...]]] = {}
    for stream in streams:
        noun, key = noun_and_key(stream)
        state = batch.states[stream]
        if isinstance(state, ObjectState):
            rows.setdefault(VIEWS[noun][0], []).append(assumed_values(key, state))
    for table, values in rows.items():
        database.dialect.update(connection, table, ASSUMED, values)


def _enqueue(database: Database, connection: Connection, batch: Batch) -> None:
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
        seq, max(effect.due, 0), EffectState.READY, None, None, 0, 0, None, None, None,
    )  # fmt: skip


def _finish(database: Database, connection: Connection, finished: Sequence[EffectDone], now: int) -> None:
    """Move effects whose outcome is recorded out of the queue, so that the queue stays as small as the work."""
    by_outcome: dict[str, list[str]] = {}
    for effect in finished:
        by_outcome.setdefault(effect.outcome, []).append(effect.key)
    copied, removed = _moving(database.dialect)
    for outcome, keys in by_outcome.items():
        these = database.dialect.named(keys)
        connection.execute(copied, {"outcome": outcome, "now": now, "these": these})
        connection.execute(removed, {"these": these})


@cache
def _moving(dialect: Dialect) -> tuple[Insert, Delete]:
    """Made once: it takes longer to put together than to carry out."""
    queue, done = tables.effects, tables.effects_done
    these = dialect.among_named(queue.c.key, "these")
    kept = (queue.c.key, queue.c.lane, queue.c.queue, queue.c.kind, queue.c.binding, queue.c.data)
    outcome, now = bindparam("outcome", type_=done.c.outcome.type), bindparam("now", type_=done.c.done_at.type)
    moved = select(*kept, outcome, queue.c.attempts, now).where(these)
    return insert(done).from_select(list(done.columns), moved), delete(queue).where(these)
