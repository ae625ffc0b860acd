"""Decides the commands of a transaction in memory: checks preconditions, stages events, runs follow-ups.

Commands of a batch see each other's results. Nothing is written here, so the head may be locked
(`log.transaction`) or not yet (`log.drafts`).
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from pydantic_core import from_json
from sqlalchemy import Connection

from volsched.log import tables
from volsched.log.batch import Batch, load, stage
from volsched.log.commands import (
    NO_PRECONDITION,
    Command,
    ConflictError,
    Continuation,
    DeposedError,
    Done,
    Outcome,
    Progress,
    Scan,
    version_of,
)
from volsched.log.database import Database
from volsched.log.effects import fences_of
from volsched.log.events.catalogue import CatalogueError
from volsched.log.events.envelope import Event, canonical
from volsched.log.events.fold import BindingState, State, pod_stream
from volsched.log.events.streams import noun_and_key
from volsched.log.reactions import Reaction, events_after, react_to, touching_bindings

MANY = 32
"""The number of streams from which a set is faster than a tuple."""


@dataclass(slots=True)
class PreconditionGuards:
    """The data that preconditions are checked against, besides the states of streams."""

    results: dict[str, Done]
    epochs: dict[str, int]
    fences: dict[str, int]
    recent: Sequence[Event] = ()
    """Events appended since the oldest decision of the batch was made."""
    passed: dict[Hashable, "_Passed"] = field(default_factory=dict)
    """The events of `recent` and of the batch that scans of one kind and actor look at. Without it, a batch of
    decisions would walk all events once for each decision."""

    @classmethod
    def load(
        cls, database: Database, connection: Connection, commands: Sequence[Command], *, locked: bool
    ) -> "PreconditionGuards":
        """`locked`: no other process claims the effects until this transaction ends."""
        fetch = database.dialect.fetch
        read = [command.precondition for command in commands if command.precondition is not NO_PRECONDITION]
        keys = [precondition.key for precondition in read if precondition.key is not None]
        leases = {precondition.lease.name for precondition in read if precondition.lease is not None}
        effects = [precondition.effect.key for precondition in read if precondition.effect is not None]
        results = {
            row["key"]: Done(position=row["position"], events=0, result=from_json(row["result"]), repeated=True)
            for row in (fetch(connection, tables.commands, "key", keys) if keys else ())
        }
        epochs = {
            row["name"]: row["epoch"]
            for row in (fetch(connection, tables.leases, "name", leases) if leases else ())
        }
        fences = fences_of(database, connection, effects, locked=locked) if effects else {}
        return cls(results, epochs, fences)

    def load_recent(self, database: Database, connection: Connection, commands: Sequence[Command]) -> None:
        scans = [command.precondition.scan for command in commands if command.precondition.scan is not None]
        if scans:
            self.recent = events_after(database, connection, min(scan.position for scan in scans))

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
            raise ConflictError(f"decided at {scan.position}, and the events after it are archived already")
        for event in self._passed(scan, actor, events):
            if event.position > scan.position:
                why = scan.outdated(event)
                if why is not None:
                    message = f"decided at {scan.position}, but at {event.position} {why}"
                    raise _conflict(message, event.stream, "position", scan.position, event.position)

    def _passed(self, scan: Scan, actor: str, events: Sequence[Event]) -> list[Event]:
        """The events that the scan looks at, among the recent ones and those of the batch so far."""
        kind = actor if scan.knows_own else None, scan.concerns
        known = self.passed.get(kind)
        if known is None:
            known = self.passed[kind] = _Passed(passed_to(scan, actor, self.recent))
        known.events += passed_to(scan, actor, events[known.examined :])
        known.examined = len(events)
        return known.events


def passed_to(scan: Scan, actor: str, events: Sequence[Event]) -> list[Event]:
    """The events that a scan of this actor has to look at."""
    own = actor if scan.knows_own else None
    if scan.concerns is None:
        return [event for event in events if event.actor != own]
    return [event for event in events if event.actor != own and scan.concerns(event)]


@dataclass(slots=True)
class _Passed:
    events: list[Event]
    examined: int = 0
    """How many events of the batch were examined."""


def _conflict(message: str, stream: str, field: str, wanted: int, have: int) -> ConflictError:
    return ConflictError(message, subject=stream, field=field, wanted=str(wanted), have=str(have))


def decide(
    database: Database,
    connection: Connection,
    batch: Batch,
    guards: PreconditionGuards,
    commands: Sequence[Command],
    *,
    react: Reaction,
    go_on: Continuation | None,
) -> list[Outcome]:
    """One outcome per command; the batch collects the events and states of all of them.

    Reactions to these events, and reactions to the reactions, are decided too, until there are none left. The
    events are the same as in one transaction after the other, with one commit.
    """
    load(database, connection, batch, (stream for command in commands for stream in _streams(command)))
    guards.load_recent(database, connection, commands)
    outcomes = [_attempt(batch, guards, command) for command in commands]
    react_to(database, connection, batch, react)
    if go_on is not None:
        _carry_on(database, connection, batch, guards, commands, react, go_on)
    return outcomes


def _attempt(batch: Batch, guards: PreconditionGuards, command: Command) -> Outcome:
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
        # A command names few streams, except one that imports a whole cluster.
        named = command.streams if len(command.streams) < MANY else frozenset(command.streams)
        unnamed = next((new for new in decision.events if new.stream not in named), None)
        if unnamed is not None:
            raise CatalogueError(f"{unnamed.type} is about {unnamed.stream}, which the command did not name")
        events, states = stage(batch, command.actor, decision.events, command.cause)
    except Exception as error:
        # An exception of `decide` concerns its own command only; the others continue.
        return error
    batch.take(events, states, decision.effects)
    position = batch.head.position
    done = Done(position=position, events=len(events), result=decision.result, basis=decision.basis)
    if read.effect is not None:
        batch.finished.append(read.effect)
        del guards.fences[read.effect.key]
    if read.key is not None:
        batch.results.append((read.key, position, batch.now, canonical(dict(decision.result))))
        guards.results[read.key] = Done(position=position, events=0, result=decision.result, repeated=True)
    return done


def _carry_on(
    database: Database,
    connection: Connection,
    batch: Batch,
    guards: "PreconditionGuards",
    commands: Sequence[Command],
    react: Reaction,
    go_on: Continuation,
) -> None:
    bindings = _planned_alone(database, connection, batch) | _written_for(batch, commands)
    tried: set[str] = set()
    shown = 0
    while bindings:
        reached = len(batch.events)
        queued = [it for it in batch.effects if it[0].binding in bindings and it[0].key not in tried]
        progress = Progress(bindings=bindings, effects=queued, events=batch.events[shown:], states=batch.states)
        following = go_on(progress)
        if not following:
            return
        load(database, connection, batch, (stream for step in following for stream in step.command.streams))
        done: set[str] = set()
        for step in following:
            outcome = _attempt(batch, guards, step.command)
            if step.effect is not None:
                tried.add(step.effect)
                if isinstance(outcome, Done):
                    done.add(step.effect)
        batch.carried_out += [effect for effect, _ in batch.effects if effect.key in done]
        batch.effects = [it for it in batch.effects if it[0].key not in done]
        react_to(database, connection, batch, react, since=reached)
        shown = reached


def _planned_alone(database: Database, connection: Connection, batch: Batch) -> set[str]:
    """The bindings planned here whose pod, claims and volumes are in no other open binding.

    A unique index ensures that a volume, claim or pod is in one open binding at a time, but a binding that ends in
    the transaction in which it began never enters that index. So these are checked here; all others are written
    and checked by the index.
    """
    planned = {
        noun_and_key(event.stream)[1]: tuple(_taken_by(batch.states[event.stream]))
        for event in batch.events
        if event.type == "BindingPlanned"
    }
    if not planned:
        return set()
    uses = Counter(chain.from_iterable(planned.values()))
    batch.looked_at.update(uses)
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
