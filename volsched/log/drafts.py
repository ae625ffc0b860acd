"""Drafts: transactions that are decided before they lock the log's head, so that they hold the lock briefly.

Deciding takes three quarters of the time from the lock to the commit, and other processes cannot write meanwhile.
So with several writers, a batch is decided on a snapshot. Under the lock, its reads are checked for changes since
the snapshot; if there are none, its events get their positions and hashes and are written. Otherwise the whole
batch is decided again, under the lock.

Events name positions of their own batch: the resourceVersion of an object is the position of its last write. A
draft counts its positions from a number that no log reaches and no user knows, so that they can be found and
replaced in everything that the rules derived from them. Each draft starts from another number, so a provisional
position that leaks out is meaningless to the next draft.
"""

import re
import secrets
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
from sqlalchemy import Connection

from volsched.log.batch import CARRIED_US, Batch, Head
from volsched.log.commands import Command, ConflictError, Continuation, Done, Outcome
from volsched.log.database import Database
from volsched.log.decisions import PreconditionGuards, decide, passed_to
from volsched.log.events.envelope import Event, link, links_to
from volsched.log.events.fold import NewEffect, evolve
from volsched.log.reactions import Reaction, events_after
from volsched.log.reads.tail import read_head

_DIGITS = 9
"""Digits of a position within a draft."""
_MOST = 10**_DIGITS
_STARTS = range(4_611_686_018 * _MOST, 9_223_372_036 * _MOST, _MOST)
"""The start positions of drafts. Positions remain 64-bit integers, and all have the same number of digits."""
_LONG = re.compile(r"(?<!\d)\d{19}(?!\d)")
_NOUNS = {"pod": "pod", "node": "node", "claim": "claim", "volume": "volume", "joins": "binding"}
"""A field of a binding's events, and the noun of the stream that it names."""


def make_draft(
    database: Database,
    commands: Sequence[Command],
    *,
    now: int,
    react: Reaction,
    go_on: Continuation | None,
) -> "Draft | None":
    """Decide on a snapshot; None where the log's time has to be corrected first."""
    with database.read() as connection:
        head = read_head(connection)
        if head.at > now + CARRIED_US:
            return None
        recent = database.recent.copy()
        recent.catch_up(database.dialect, connection, (head.position, head.hash))
        start = secrets.choice(_STARTS)
        batch = Batch(Head(start, b"", head.at), max(now, head.at), recent, is_draft=True)
        guards = PreconditionGuards.load(database, connection, commands, locked=False)
        checked = replace(guards, results=dict(guards.results), fences=dict(guards.fences))
        outcomes = decide(database, connection, batch, guards, commands, react=react, go_on=go_on)
    return Draft(head, start, commands, batch, checked, outcomes)


@dataclass(frozen=True, slots=True)
class Draft:
    head: Head
    """The head that the snapshot was read at."""
    start: int
    """The draft's own events follow this position."""
    commands: Sequence[Command]
    batch: Batch
    guards: PreconditionGuards
    """The guards as read with the snapshot."""
    outcomes: Sequence[Outcome]

    def settled(
        self, database: Database, connection: Connection, head: Head
    ) -> tuple[Batch, Callable[[], list[Outcome]]] | None:
        """The batch after this locked head, and a function that computes its outcomes once the lock is released.

        None: the commands must be decided again.
        """
        if head.at > self.batch.now + CARRIED_US:
            return None
        tail = events_after(database, connection, self.head.position) if head.position > self.head.position else []
        if not self._is_followed_by(tail, head) or self._is_outdated(tail):
            return None
        guards = PreconditionGuards.load(database, connection, self.commands, locked=True)
        if (guards.results, guards.epochs, guards.fences) != (
            self.guards.results,
            self.guards.epochs,
            self.guards.fences,
        ):
            return None
        places = _Places(self.start, head.position, str(self.start)[:-_DIGITS])
        return _placed(self.batch, places, head), lambda: [places.outcome(it) for it in self.outcomes]

    def _is_followed_by(self, tail: Sequence[Event], head: Head) -> bool:
        """Whether the log continues from the snapshot; it does not after a restore or an archive."""
        if not tail:
            return (head.position, head.hash) == (self.head.position, self.head.hash)
        return len(tail) == head.position - self.head.position and links_to(tail[0], self.head.hash)

    def _is_outdated(self, tail: Sequence[Event]) -> bool:
        """Whether one of these events could have changed a decision."""
        fails = any(event.type == "BindingMoved" and '"stage"' in event.data for event in self.batch.events)
        for event in tail:
            if event.stream in self.batch.loaded or (fails and event.stream.startswith("notice/")):
                return True
            if event.stream.startswith("binding/") and self._touches(event):
                return True
        passed: dict[Hashable, list[Event]] = {}
        for command in self.commands:
            scan = command.precondition.scan
            if scan is not None:
                kind = command.actor if scan.knows_own else None, scan.concerns
                if kind not in passed:
                    passed[kind] = passed_to(scan, command.actor, tail)
                if any(scan.outdated(event) is not None for event in passed[kind]):
                    return True
        return False

    def _touches(self, event: Event) -> bool:
        """Whether the event concerns a binding that the draft would have loaded, had it been there already."""
        return any(stream in self.batch.looked_at for stream in _objects_of(event))


def _objects_of(event: Event) -> Iterator[str]:
    """The streams that an event of a binding names: its pod, node, claims, volumes, and bindings it has joined."""
    data = orjson.loads(event.data)
    for named in (data, *data.get("legs", ())):
        for name, noun in _NOUNS.items():
            if named.get(name) is not None:
                yield f"{noun}/{named[name]}"


def _placed(draft: Batch, places: "_Places", head: Head) -> Batch:
    """The batch moved behind this head: the same events, folded again."""
    now = max(draft.now, head.at)
    states = draft.states | {stream: state for stream, state in draft.changed.items() if state is not None}
    for stream, state in draft.changed.items():
        if state is None:
            del states[stream]
    events, previous = [], head.hash
    for position, event in enumerate(draft.events, start=head.position + 1):
        _, stream, version, type_, schema, _, actor, cause, binding, text, _ = event
        data = places.text(text)
        cause = None if cause is None else places.number(cause)
        previous = link(previous, position, stream, version, type_, schema, now, actor, cause, binding, data)
        placed = (position, stream, version, type_, schema, now, actor, cause, binding, data, previous)
        events.append(tuple.__new__(Event, placed))
        states[stream] = evolve(
            states.get(stream), type_=type_, version=version, position=position, at=now, data=orjson.loads(data)
        )
    return Batch(
        head=Head(events[-1].position, previous, now) if events else head,
        now=now,
        recent=draft.recent,
        states=states,
        versions=draft.versions,
        loaded=draft.loaded,
        events=events,
        effects=[(places.effect(effect), places.number(position)) for effect, position in draft.effects],
        results=[(key, places.number(at), now, places.text(text)) for key, at, _, text in draft.results],
        finished=draft.finished,
        carried_out=[places.effect(effect) for effect in draft.carried_out],
        changed=draft.changed,
    )


@dataclass(frozen=True, slots=True)
class _Places:
    """Replaces a draft's positions by those behind a head."""

    start: int
    head: int
    prefix: str
    """The common first digits of the draft's positions."""

    def number(self, value: int) -> int:
        behind = value - self.start
        return self.head + behind if 0 <= behind < _MOST else value

    def text(self, text: str) -> str:
        return _LONG.sub(lambda found: str(self.number(int(found[0]))), text) if self.prefix in text else text

    def effect(self, effect: NewEffect) -> NewEffect:
        return replace(
            effect, key=self.text(effect.key), lane=self.text(effect.lane), data=self.value(effect.data)
        )

    def outcome(self, outcome: Outcome) -> Outcome:
        if isinstance(outcome, Done):
            return replace(
                outcome,
                position=self.number(outcome.position),
                result=self.value(outcome.result),
                basis=self.value(outcome.basis),
            )
        if self.prefix in str(outcome):
            outcome.args = tuple(self.text(part) if isinstance(part, str) else part for part in outcome.args)
        if isinstance(outcome, ConflictError):
            outcome.wanted, outcome.have = self.text(outcome.wanted), self.text(outcome.have)
        return outcome

    def value(self, value: Any) -> Any:
        """Positions, and texts made of them, may be anywhere: a result may hold whole states."""
        match value:
            case str():
                return self.text(value)
            case int():
                return self.number(value)
            case Mapping():
                return {name: self.value(held) for name, held in value.items()}
            case list():
                return [self.value(held) for held in value]
            case tuple():
                parts = map(self.value, value)
                return value._make(parts) if hasattr(value, "_make") else tuple(parts)
        return value
