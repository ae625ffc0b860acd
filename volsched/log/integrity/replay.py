"""Folding the whole log in memory and proving its chain on the way; redacted events must have their seal."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, select

from volsched.log import tables
from volsched.log.base import archived, load_base, read_base
from volsched.log.batch import Head
from volsched.log.dialects import dialect_of
from volsched.log.errors import BrokenLogError, Finding
from volsched.log.events.catalogue import CLOCK_CORRECTED
from volsched.log.events.envelope import GENESIS, REDACTIONS, link, seals_in
from volsched.log.events.fold import (
    AttemptState,
    BindingState,
    FoldError,
    LeaseState,
    ObjectState,
    State,
    TokenState,
    UnknownState,
)
from volsched.log.events.streams import ATTEMPT, BINDING, LEASE, TOKEN
from volsched.log.garbage_pause import collector_resting
from volsched.log.reads.tail import fold_event
from volsched.log.rows import VIEWS

# Seals of redacted events: where a hash is not that of the row, there must be a seal.

Seals = Mapping[int, bytes]
"""Position of a redacted event → its seal."""
NO_SEALS: Seals = {}


def read_seals(connection: Connection) -> dict[int, bytes]:
    """The seals of all redacted events in the store. An event that was redacted twice has its last seal."""
    events = tables.events
    said = select(events.c.data).where(events.c.stream == REDACTIONS).order_by(events.c.version)
    seals: dict[int, bytes] = {}
    for data in connection.execute(said).scalars():
        seals |= seals_in(data)
    return seals


# The loop in `fold_chunks` sees every event ever written, so it is optimised for speed: rows come from the driver
# as plain tuples in chunks, only the new state is built per event, and the garbage collector is paused.

Progress = Callable[[int], None]
"""Called now and then with the position reached."""

MISSING = "the event is missing"
SKIPS = "the event does not continue its stream"
BACKWARDS = "time runs backwards"
NOT_LINKED = "the event, or the one before, is not the one that was written"
_STATE_OF_NOUN: Mapping[str, type[State]] = {
    **dict.fromkeys(VIEWS, ObjectState),
    BINDING: BindingState,
    ATTEMPT: AttemptState,
    TOKEN: TokenState,
    LEASE: LeaseState,
}


@dataclass(slots=True)
class Folded:
    """The states of all streams at a position of the log."""

    head: Head = field(default_factory=lambda: Head(0, GENESIS, 0))
    states: dict[str, State] = field(default_factory=dict)
    redacted: list[int] = field(default_factory=list)
    """Positions of redacted events whose seal holds."""


def fold_log(
    connection: Connection,
    *,
    until: int | None = None,
    check: bool = True,
    progress: Progress | None = None,
    start: Folded | None = None,
) -> Folded:
    """Fold all events up to a position; BrokenLogError at the first that differs from the one written there.

    `check` covers the hash chain; the order of positions, versions and times is always checked. The fold starts at
    the store's base, or at `start` where the archives themselves prove that state.
    """
    folded = folded_base(connection) if start is None else start
    if until is not None and until < folded.head.position:
        raise archived(connection, f"position {until}", folded.head)
    # From the very first row, not from behind the base: a row before the base would be a forgery.
    scan = dialect_of(connection.engine).scan(connection, tables.events, order="position", until=until)
    seals = read_seals(connection) if check else NO_SEALS
    with collector_resting():
        fold_chunks(scan, folded, check=check, progress=progress, seals=seals)
        check_nouns(folded.states)
    return folded


def fold_tail(connection: Connection, folded: Folded) -> None:
    """Continue, in place, from the position of `folded` to the end of the log."""
    after = folded.head.position
    base = read_base(connection)
    if after < base.position:
        # The log was archived past it meanwhile; running the command again starts from there.
        raise archived(connection, f"position {after + 1}", base)
    fold_chunks(
        dialect_of(connection.engine).scan(connection, tables.events, order="position", after=after),
        folded,
        seals=read_seals(connection),
    )


def fold_chunks(
    chunks: Iterable[Sequence[tuple[Any, ...]]],
    folded: Folded,
    *,
    check: bool = True,
    progress: Progress | None = None,
    seals: Seals = NO_SEALS,
) -> None:
    """Fold rows of the log onto the states, in place. `seals` are those of redacted events."""
    states = folded.states
    expected, previous, last_at = folded.head.position, folded.head.hash, folded.head.at
    position = expected
    try:
        for chunk in chunks:
            for position, stream, version, type_, schema, at, actor, cause, binding, data, hash_ in chunk:
                expected += 1
                if position != expected:
                    raise _not_dense(expected, position)
                if check:
                    previous = link(
                        previous, position, stream, version, type_, schema, at, actor, cause, binding, data
                    )
                    if previous != hash_ and seals.get(position) == link(
                        hash_, position, stream, version, type_, schema, at, actor, cause, binding, data
                    ):
                        folded.redacted.append(position)
                        previous = hash_
                    elif previous != hash_:
                        raise _broken(position, NOT_LINKED, column="hash", expected=previous, got=hash_)
                state = states.get(stream)
                if version != (1 if state is None else state.version + 1):
                    wanted = 1 if state is None else state.version + 1
                    raise _broken(position, SKIPS, column="version", expected=wanted, got=version)
                if at < last_at and type_ != CLOCK_CORRECTED:
                    raise _broken(position, BACKWARDS, column="at", expected=last_at, got=at)
                last_at = at
                states[stream] = fold_event(state, position, version, type_, schema, at, data)
            folded.head = Head(position, hash_, last_at)
            if progress is not None:
                progress(position)
    except (FoldError, LookupError, TypeError, ValueError, AttributeError) as error:
        # A payload that violates the catalogue can raise anything; the position identifies it.
        raise _broken(position, f"the event cannot follow the ones before: {error}") from error


def folded_base(connection: Connection) -> Folded:
    """Where a fold of the events in the store begins."""
    base = load_base(connection)
    return Folded(base.head, base.states)


def check_nouns(states: Mapping[str, State]) -> None:
    """An object's events in, say, a binding's stream can be linked and folded, but have no row anywhere."""
    for stream, state in states.items():
        kind = type(state)
        if kind is not _STATE_OF_NOUN.get(stream.partition("/")[0]) and kind is not UnknownState:
            problem = "its events are not those of its kind"
            raise BrokenLogError(Finding(problem=problem, table=tables.events.name, key=stream))


def _not_dense(expected: int, got: int) -> BrokenLogError:
    if got < expected:
        return _broken(got, "there is an event before the first")
    return _broken(expected, MISSING)


def _broken(position: int, problem: str, **found: Any) -> BrokenLogError:
    return BrokenLogError(Finding(problem=problem, position=position, **found))
