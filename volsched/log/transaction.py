"""One SQL transaction for many commands: lock the head, decide each in memory, write everything, commit.

Commands of a batch see each other's results. A command that is refused, or that breaks, fails alone: all is
checked in memory before the first row is written, and if the database itself refuses a batch it is halved until
the culprit stands alone.

Lock order: the head row first, always. It is held to commit, which makes positions dense and commit-ordered.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from pydantic_core import from_json
from sqlalchemy import Connection, select

from volsched.binding.rules.saga import advance
from volsched.log import tables
from volsched.log.batch import Batch, begin_batch, load, lock_head, stage
from volsched.log.batch_writes import write
from volsched.log.commands import (
    NO_PRECONDITION,
    Command,
    ConflictError,
    DeposedError,
    Done,
    Outcome,
    Scan,
    version_of,
)
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
            load(database, connection, batch, (stream for command in commands for stream in _streams(command)))
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


def _streams(command: Command) -> Iterator[str]:
    """All that the command names: what it may read or write, and what it has read before."""
    read = command.precondition
    return chain(command.streams, read.objects, read.versions)


@dataclass(slots=True)
class _Guards:
    """What preconditions are checked against, read under the head lock."""

    results: dict[str, Done]
    epochs: dict[str, int]
    fences: dict[str, int]
    recent: list[Event]
    """What was appended since the oldest decision of the batch was made."""

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
        recent = events_after(connection, min(scans)) if scans else []
        return cls(results, epochs, lock_fences(database, connection, effects) if effects else {}, recent)

    def check(self, command: Command, batch: Batch) -> None:
        """Raises ConflictError or DeposedError where something is not as the precondition says.

        What earlier commands of the batch have done counts as done.
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
        """No other writer made the decision worthless, before this transaction or earlier in it."""
        if self.recent and self.recent[0].position > scan.position + 1:
            raise ConflictError(f"decided at {scan.position}, and what came next is archived already")
        for event in chain(self.recent, events):
            known = scan.knows_own and event.actor == actor
            if event.position > scan.position and not known:
                why = scan.outdated(event)
                if why is not None:
                    message = f"decided at {scan.position}, but at {event.position} {why}"
                    raise _conflict(message, event.stream, "position", scan.position, event.position)


def _conflict(message: str, stream: str, field: str, wanted: int, have: int) -> ConflictError:
    return ConflictError(message, subject=stream, field=field, wanted=str(wanted), have=str(have))


def _attempt(batch: Batch, guards: _Guards, command: Command) -> Outcome:
    """Decide one command against what the batch has become; on any failure the batch is as it was."""
    read = command.precondition
    if read.key is not None and read.key in guards.results:
        return guards.results[read.key]
    try:
        if read is not NO_PRECONDITION:
            guards.check(command, batch)
        if not command.actor.isprintable():
            raise CatalogueError(f"actor {command.actor!r} may not hold control characters")
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
    if read.effect is not None:
        batch.finished.append(read.effect)
        del guards.fences[read.effect.key]
    if read.key is not None:
        batch.results.append((read.key, position, batch.now, canonical(dict(decision.result))))
        guards.results[read.key] = Done(position=position, events=0, result=decision.result, repeated=True)
    return done
