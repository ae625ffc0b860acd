"""One SQL transaction for many commands: lock the head, decide each in memory, write everything, commit.

Where other processes write too, commands are decided before the head is locked (`log.drafts`). A command that is
refused, or that raises, fails alone: everything is checked in memory before the first row is written, and if the
database itself refuses a batch, the batch is halved until the culprit is alone.

Lock order: the head row first, always. It is held to commit, which makes positions dense and commit-ordered.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Any

from sqlalchemy import Connection, Delete, Insert, Table, bindparam, delete, insert, select

from volsched.binding.rules.saga import advance
from volsched.log import tables
from volsched.log.base import write_snapshots
from volsched.log.batch import Batch, begin_batch, lock_head
from volsched.log.commands import Command, ConflictError, Continuation, EffectDone, Outcome
from volsched.log.commit_listeners import Commit
from volsched.log.database import Database
from volsched.log.decisions import PreconditionGuards, decide
from volsched.log.dialects import Dialect
from volsched.log.drafts import make_draft
from volsched.log.effects import EffectState
from volsched.log.errors import CommitMark, ConnectionLostError
from volsched.log.events.catalogue import CATALOGUE, StateChange
from volsched.log.events.envelope import canonical
from volsched.log.events.fold import NewEffect, ObjectState, State, UnknownState
from volsched.log.events.streams import noun_and_key
from volsched.log.phrases import packed
from volsched.log.reactions import Reaction
from volsched.log.rows import ASSUMED, VIEWS, assumed_values, rows_of, values_of
from volsched.runtime.fault_points import reach

# Writing a transaction's decisions: events, views, effects, results, the head.

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
    """Write the batch. Nothing is read here, so all statements may be sent at once."""
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
    """The rows of the effects, behind all others of their lanes: (position, seq) grows with each one."""
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
    the same transaction, effects that the commands queued for bindings that they plan or write for. With `packs`,
    the events' data is stored packed, which takes longer; it is for observed clusters, whose changes are frequent.
    The store must have declared the format before (`declare_format`).
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
    answers: Callable[[], list[Outcome]] = list
    try:
        draft = None
        if database.others.wait_for(len(commands)):
            draft = make_draft(database, commands, now=now, react=react, go_on=go_on)
            reach("commit.drafted")
        with database.write() as connection:
            head = lock_head(database, connection)
            locked = time.monotonic()
            began = head.position, head.hash
            database.recent.catch_up(database.dialect, connection, began)
            settled = None if draft is None else draft.settled(database, connection, head)
            if settled is None:
                batch = begin_batch(database, connection, head, now=now, actor=commands[0].actor)
                guards = PreconditionGuards.load(database, connection, commands, locked=True)
                outcomes = decide(database, connection, batch, guards, commands, react=react, go_on=go_on)
                answers = partial(list, outcomes)
            else:
                batch, answers = settled
            write(database, connection, batch, packs=packs)
            ended = batch.head.position, batch.head.hash
            database.recent.keep(began, ended, batch.states)
            database.others.note(began, ended)
            if batch.events:
                mark = CommitMark(*ended)
            reach("commit.before")
    except ConnectionLostError as lost:
        lost.mark, lost.outcomes = mark, answers()
        raise
    seconds = time.monotonic() - locked
    database.meters.head_lock.observe(seconds)
    report(database, batch, seconds)
    return answers()


def report(database: Database, batch: Batch, seconds: float = 0) -> None:
    """Notify listeners and followers in this process of a batch that is committed."""
    reach("commit.after")
    if batch.events:
        database.report(Commit(events=batch.events, states=batch.states, seconds=seconds))
