"""Snapshots of long streams, so that what an object was at any position costs a bounded number of events.

A snapshot is a cache of the fold and nothing else: `verify` folds it again, `rebuild` drops one that is wrong.
Only those at or before the base of an archived log are more: they are where every fold begins (`store.base`).
"""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson
from sqlalchemy import Connection, select

from volsched.log import tables
from volsched.log.dialects import Dialect
from volsched.log.events.envelope import Event, canonical
from volsched.log.events.fold import (
    Assumed,
    AttemptState,
    BindingState,
    LeaseState,
    LegState,
    ObjectState,
    State,
    TokenState,
    UnknownState,
)
from volsched.log.events.streams import ATTEMPT, BINDING, LEASE, TOKEN, noun_and_key

EVERY = 200
"""Versions between two snapshots of a stream: what has to be folded at most costs about a millisecond."""


def write_snapshots(
    dialect: Dialect, connection: Connection, events: Iterable[Event], states: Mapping[str, State]
) -> None:
    """Keep the state of every object whose stream has reached or passed a multiple of EVERY with these events.

    One per transaction and stream, of the state after its last event: the states between are gone by then. Objects
    only: what a writer knows of bindings and attempts comes from their columns, which do not hold all of the fold.
    """
    due = {event.stream for event in events if event.version % EVERY == 0}
    if not due:
        return
    last = {event.stream: event.position for event in events if event.stream in due}
    rows = [
        (stream, state.version, position, dumped(state))
        for stream, position in last.items()
        if isinstance(state := states[stream], ObjectState)
    ]
    dialect.insert(connection, tables.snapshots, rows)


def newest_snapshot(connection: Connection, stream: str, *, position: int) -> State | None:
    kept = tables.snapshots
    asked = select(kept.c.state).where(kept.c.stream == stream, kept.c.position <= position)
    text = connection.execute(asked.order_by(kept.c.version.desc()).limit(1)).scalar()
    return None if text is None else loaded(stream, text)


def dumped(state: State) -> str:
    fields = state._asdict()
    if isinstance(state, ObjectState) and state.assumed is not None:
        fields["assumed"] = state.assumed._asdict()
    if isinstance(state, BindingState):
        fields["legs"] = [leg._asdict() for leg in state.legs]
    return canonical(fields)


def loaded(stream: str, text: str) -> State:
    fields: dict[str, Any] = orjson.loads(text)
    noun, _ = noun_and_key(stream)
    if fields.keys() == set(UnknownState._fields):
        return UnknownState(**fields)
    if noun == BINDING:
        return BindingState(**fields | {"legs": tuple(LegState(**leg) for leg in fields["legs"])})
    if noun == ATTEMPT:
        return AttemptState(**fields)
    if noun == TOKEN:
        within = fields["namespaces"]
        lists = {"roles": tuple(fields["roles"]), "namespaces": None if within is None else tuple(within)}
        return TokenState(**fields | lists)
    if noun == LEASE:
        return LeaseState(**fields)
    assumed = fields["assumed"]
    return ObjectState(**fields | {"assumed": None if assumed is None else Assumed(**assumed)})
