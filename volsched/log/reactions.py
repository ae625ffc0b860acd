"""What follows from events, in the transaction of the events themselves: open bindings that they touch move on."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from sqlalchemy import CompoundSelect, Connection, select, text, union

from volsched.binding.rules.saga import context_of, fail, goes_on
from volsched.kube.manifest import claim_of
from volsched.log import tables
from volsched.log.batch import Batch, load, stage
from volsched.log.database import Database
from volsched.log.dialects import Dialect
from volsched.log.events.catalogue import CATALOGUE, StateChange
from volsched.log.events.decision import Decision, States
from volsched.log.events.envelope import Event
from volsched.log.events.fold import BindingState
from volsched.log.events.object_states import manifest_of
from volsched.log.events.streams import BINDING
from volsched.log.failure_notices import tell_failures

REACTION = "volsched"
"""The actor of events that follow from others; their cause says from which."""
Reaction = Callable[[str, States], Decision]
_FACTS = frozenset(
    entry.name
    for entry in CATALOGUE.values()
    if entry.change
    in (StateChange.CREATE, StateChange.PATCH, StateChange.DELETE, StateChange.MOVE_BINDING, StateChange.MOVE_LEG)
)
"""Events that something may follow from. That a thing is planned or assumed changes nothing beside its plan."""


# As text, word for word as in the partial indexes: SQLite uses one only if the condition is the index's own.
_OWNED, _JOINED, _OPEN = text("open AND owner"), text("open AND NOT owner"), text("open")
_STATIC = text("open AND owner AND NOT dynamic")
_legs, _bindings = tables.binding_legs.c, tables.bindings.c
_TOUCHED_BY = (
    ("claim", _legs.claim, _OWNED),
    ("claim", _legs.claim, _JOINED),
    ("volume", _legs.volume, _STATIC),
    ("binding", _legs.joins, _JOINED),
    ("pod", _bindings.pod, _OPEN),
    ("node", _bindings.node, _OPEN),
)
"""What a change of a noun's streams touches: the column in which bindings or legs name it, and which of them."""


def react_to(database: Database, connection: Connection, batch: Batch, react: Reaction) -> None:
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
        load(database, connection, batch, (f"{BINDING}/{binding}" for binding in bindings))
        for _ in range(2):
            # Twice: only a claim that is loaded tells which volume was provisioned for it.
            states = (batch.states.get(f"{BINDING}/{binding}") for binding in bindings)
            open_ = [state for state in states if isinstance(state, BindingState) and state.open]
            load(database, connection, batch, (it for state in open_ for it in context_of(state, batch.states)))
        following: dict[str, int] = {}
        for binding in sorted(bindings):
            last = _advance(batch, binding, fresh, react)
            if last is not None:
                following[f"{BINDING}/{binding}"] = last
        # What became of a binding matters to those that joined it, and to nobody else.
        fresh = following
    tell_failures(database, connection, batch, actor=REACTION)


def _is_fact(batch: Batch, event: Event) -> bool:
    """Something may follow from it. A plan is a fact only where it has nothing to write, and can go on at once."""
    state = batch.states[event.stream]
    if event.type in _FACTS or not isinstance(state, BindingState):
        return event.type in _FACTS
    return not any(leg.owner for leg in state.legs)


def _advance(batch: Batch, binding: str, fresh: Mapping[str, int], react: Reaction) -> int | None:
    """Move a binding as far as it goes; the position of its last event, if it moved at all."""
    last = None
    while (decision := _reaction(batch, binding, react)).events:
        cause = last
        if cause is None:
            state = batch.states[f"{BINDING}/{binding}"]
            assert isinstance(state, BindingState)
            known = (f"{BINDING}/{binding}", *context_of(state, batch.states))
            cause = max((fresh[stream] for stream in known if stream in fresh), default=None)
        events, states = stage(batch, REACTION, decision.events, cause)
        batch.take(events, states, decision.effects)
        last = events[-1].position
        if not goes_on(batch.states.get(f"{BINDING}/{binding}")):
            break
    return last


def _reaction(batch: Batch, binding: str, react: Reaction) -> Decision:
    try:
        return react(binding, batch.states)
    except Exception as error:
        # What has happened must be recorded whatever it does to a binding that cannot make sense of it.
        return fail(binding, f"it cannot be judged: {type(error).__name__}: {error}", batch.states)


def _reserved_for(batch: Batch, streams: Iterable[str]) -> Iterator[str]:
    """The claims that these volumes name: that a volume was made for a claim, only the volume says at first."""
    for stream in streams:
        manifest = manifest_of(batch.states, stream) if stream.startswith("volume/") else None
        claim = None if manifest is None else claim_of(manifest)
        if claim is not None:
            yield f"claim/{claim.get('namespace')}/{claim.get('name')}"


def touching_bindings(database: Database, connection: Connection, streams: Iterable[str]) -> set[str]:
    """The ids of open bindings for which a change of one of these streams may matter."""
    keys: dict[str, list[str]] = {}
    for stream in streams:
        noun, _, key = stream.partition("/")
        keys.setdefault(noun, []).append(key)
    nouns = frozenset(keys.keys() & {noun for noun, _, _ in _TOUCHED_BY})
    if not nouns:
        return set()
    given = {noun: database.dialect.named(keys[noun]) for noun in nouns}
    return {row[0] for row in connection.execute(_touching(database.dialect, nouns), given)}


@cache
def _touching(dialect: Dialect, nouns: frozenset[str]) -> CompoundSelect[Any]:
    """Made once for each of the few mixtures of nouns: every transaction asks it."""
    return union(
        *(
            select(of.table.c.id if of.table is tables.bindings else of.table.c.binding).where(
                which, dialect.among_named(of, noun)
            )
            for noun, of, which in _TOUCHED_BY
            if noun in nouns
        )
    )


def events_after(connection: Connection, position: int) -> list[Event]:
    events = tables.events
    rows = connection.execute(select(events).where(events.c.position > position).order_by(events.c.position))
    return [Event._make(row) for row in rows]
