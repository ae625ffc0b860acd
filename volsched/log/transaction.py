"""One SQL transaction for many commands: lock the head, decide each in memory, write everything, commit.

Commands of a batch see each other's results. A command that is refused, or that breaks, fails alone: all is
checked in memory before the first row is written, and if the database itself refuses a batch it is halved until
the culprit stands alone.

Lock order: the head row first, always. It is held to commit, which makes positions dense and commit-ordered.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from pydantic_core import from_json
from sqlalchemy import Connection, select

from volsched.binding.rules.saga import advance
from volsched.log import tables
from volsched.log.batch import Batch, begin_batch, load, lock_head, stage
from volsched.log.batch_writes import write
from volsched.log.commands import Command, ConflictError, DeposedError, Done, Outcome
from volsched.log.database import Database
from volsched.log.effects import lock_fences
from volsched.log.errors import CommitMark, ConnectionLostError
from volsched.log.events.catalogue import CatalogueError
from volsched.log.events.envelope import Event, canonical
from volsched.log.reactions import Reaction, events_after, react_to
from volsched.runtime.fault_points import reach


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


def is_committed(database: Database, mark: CommitMark | None) -> bool:
    """Whether a batch whose connection was lost is in the log; raises ConnectionLostError while it cannot tell."""
    events = tables.events
    with database.read() as connection:
        asked = select(events.c.hash).where(events.c.position == (mark.position if mark else 0))
        found = connection.execute(asked).scalar()
    return mark is not None and found is not None and bytes(found) == mark.hash


def _execute(database: Database, commands: Sequence[Command], now: int, react: Reaction) -> list[Outcome]:
    mark: CommitMark | None = None
    outcomes: list[Outcome] = []
    try:
        with database.write() as connection:
            head = lock_head(database, connection)
            began = head.position, head.hash
            database.recent.catch_up(connection, began)
            batch = begin_batch(database, connection, head, now=now, actor=commands[0].actor)
            load(database, connection, batch, (stream for command in commands for stream in command.streams))
            guards = _Guards.load(database, connection, commands)
            outcomes = [_attempt(batch, guards, command) for command in commands]
            react_to(database, connection, batch, react)
            write(database, connection, batch)
            database.recent.keep(began, (batch.head.position, batch.head.hash), batch.states)
            if batch.events:
                mark = CommitMark(batch.head.position, batch.head.hash)
            reach("commit.before")
    except ConnectionLostError as lost:
        lost.mark, lost.outcomes = mark, outcomes
        raise
    reach("commit.after")
    return outcomes


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
            known = command.seen.knows_own and event.actor == command.actor
            if event.position > command.seen.position and not known:
                why = command.seen.outdated(event)
                if why is not None:
                    raise ConflictError(f"decided at {command.seen.position}, but at {event.position} {why}")


def _attempt(batch: Batch, guards: _Guards, command: Command) -> Outcome:
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
        events, states = stage(batch, command.actor, decision.events, command.cause)
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
