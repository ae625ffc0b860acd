"""Audit queries about events: pages of a stream, causes, interventions by people, an object's former lives."""

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, Select, func, or_, select, text

from volsched.kube.manifest import uid
from volsched.log import tables
from volsched.log.base import newest_snapshot, read_base
from volsched.log.dialects import dialect_of
from volsched.log.events.envelope import Event
from volsched.log.events.fold import ObjectState, State
from volsched.log.events.streams import AUDIT_READS, LOG_CLOCK, ObjectLife, noun_and_key
from volsched.log.phrases import PACKED
from volsched.log.reads.tail import corrections, fold_event, position_at, read_head, read_stream, state_as_of
from volsched.log.row_states import object_state
from volsched.log.rows import VIEWS

# Every page is found by an index and continues after a key: the last page of a long history costs as much as the
# first.

LOOKED_AT = 10_000
"""The most events read for one page of a search: some ten milliseconds."""
CHUNK = 50

_events = tables.events
# As text, exactly as in the partial index: SQLite uses one only if the conditions are identical.
_BY_HAND = text(tables.BY_HAND)


class Window(NamedTuple):
    """A part of the history: its first and last position, and its first and last time."""

    first: int
    last: int
    since: int
    until: int


EVERYTHING = Window(0, 2**62, 0, 2**62)


def window(connection: Connection, *, first: int | None = None, last: int | None = None) -> Window:
    """The window of these positions, both included, clipped to the events in the store."""
    head, base = read_head(connection), read_base(connection)
    first = max(base.position + 1, 0 if first is None else first)
    last = head.position if last is None else min(last, head.position)
    began = 0 if first == base.position + 1 else _time_of(connection, first, head.at + 1)
    ended = head.at if last == head.position else _time_of(connection, last, 0)
    # After a clock correction, timestamps are not in order; the window spans all of them.
    steps = [it for it in corrections(connection) if first <= it.position <= last]
    return Window(
        first, last, min([began, *(it.after for it in steps)]), max([ended, *(it.before for it in steps)])
    )


def _time_of(connection: Connection, position: int, otherwise: int) -> int:
    found = connection.execute(select(_events.c.at).where(_events.c.position == position)).scalar()
    return otherwise if found is None else int(found)


def position_since(connection: Connection, time: int) -> int:
    """The first position written at or after a time; behind the end where there is none."""
    base = read_base(connection)
    return base.position + 1 if time <= base.at else position_at(connection, time - 1) + 1


def stream_page(
    connection: Connection, stream: str, within: Window, *, after: int = 0, limit: int | None = None
) -> list[Event]:
    """The events of a stream in a window, after a version."""
    start = after or _last_version(connection, stream, within.first - 1)
    query = select(_events).where(_events.c.stream == stream, _events.c.version > start)
    query = query.where(_events.c.position <= within.last)
    return _read(connection, query.order_by(_events.c.version).limit(limit))


def streams_together(connection: Connection, streams: Collection[str]) -> dict[str, list[Event]]:
    """The events of each of these streams, which should be short."""
    by_stream: dict[str, list[Event]] = {it: [] for it in streams}
    if streams:
        query = select(_events).where(dialect_of(connection.engine).among(_events.c.stream, streams))
        for it in _read(connection, query.order_by(_events.c.position)):
            by_stream[it.stream].append(it)
    return by_stream


def stream_forwards(connection: Connection, stream: str, within: Window, *, after: int = 0) -> Iterator[Event]:
    """The events of a stream in a window, after a version, read lazily."""
    while chunk := stream_page(connection, stream, within, after=after, limit=CHUNK):
        yield from chunk
        after = chunk[-1].version


def stream_backwards(connection: Connection, stream: str, *, version: int) -> Iterator[Event]:
    """The events of a stream from a version back to the first in the store, read lazily."""
    while True:
        query = select(_events).where(_events.c.stream == stream, _events.c.version <= version)
        chunk = _read(connection, query.order_by(_events.c.version.desc()).limit(CHUNK))
        yield from chunk
        if len(chunk) < CHUNK:
            return
        version = chunk[-1].version - 1


def _last_version(connection: Connection, stream: str, position: int) -> int:
    """The last version of a stream up to a position, by binary search: both only grow."""
    if position <= read_base(connection).position:
        return 0
    ends = select(func.min(_events.c.version), func.max(_events.c.version)).where(_events.c.stream == stream)
    low, high = connection.execute(ends).one()
    if low is None:
        return 0
    low -= 1
    while low < high:
        middle = (low + high + 1) // 2
        query = select(_events.c.position).where(_events.c.stream == stream, _events.c.version == middle)
        if connection.execute(query).scalar_one() <= position:
            low = middle
        else:
            high = middle - 1
    return int(low)


def states_as_of(connection: Connection, streams: Collection[str], *, position: int) -> dict[str, State | None]:
    """The state of each stream at a position: `state_as_of` for many at once.

    Short streams are read together; the few that are long enough for snapshots one by one.
    """
    kept, among = tables.snapshots, dialect_of(connection.engine).among
    if not streams:
        return {}
    snapshots = select(kept.c.stream).where(among(kept.c.stream, streams)).distinct()
    long = set(connection.execute(snapshots).scalars())
    states: dict[str, State | None] = {it: state_as_of(connection, it, position=position) for it in sorted(long)}
    states |= dict.fromkeys(it for it in streams if it not in long)
    short = among(_events.c.stream, [it for it in streams if it not in long])
    query = select(_events).where(short, _events.c.position <= position).order_by(_events.c.position)
    for event in _read(connection, query):
        before = states[event.stream]
        states[event.stream] = fold_event(
            before, event.position, event.version, event.type, event.schema, event.at, event.data
        )
    return states


def objects_now(connection: Connection, streams: Collection[str]) -> dict[str, State]:
    """The states of objects at the end of the log, from the views; deleted objects are missing."""
    by_noun: dict[str, list[str]] = {}
    for stream in streams:
        noun, key = noun_and_key(stream)
        by_noun.setdefault(noun, []).append(key)
    fetch = dialect_of(connection.engine).fetch
    return {
        f"{noun}/{row['key']}": object_state(row)
        for noun, keys in by_noun.items()
        for row in fetch(connection, VIEWS[noun][0], "key", keys)
    }


def events_at(connection: Connection, positions: Collection[int]) -> dict[int, Event]:
    """The events among these that are still in the store."""
    if not positions:
        return {}
    query = select(_events).where(_events.c.position.in_(sorted(positions)))
    return {it.position: it for it in _read(connection, query)}


def consequences(connection: Connection, positions: Collection[int], *, limit: int) -> list[Event]:
    """The direct consequences of these events."""
    if not positions:
        return []
    query = select(_events).where(_events.c.cause.in_(sorted(positions)))
    return _read(connection, query.order_by(_events.c.position).limit(limit))


def binding_page(
    connection: Connection, binding: str, within: Window, *, after: int = 0, limit: int
) -> list[Event]:
    """All events of a binding, over all streams, in a window and after a position."""
    start = max(after, within.first - 1)
    query = select(_events).where(
        _events.c.binding == binding, _events.c.position > start, _events.c.position <= within.last
    )
    return _read(connection, query.order_by(_events.c.position).limit(limit))


def by_hand(connection: Connection, within: Window, *, before: int | None = None, limit: int) -> list[Event]:
    """Actions of people by command line and over HTTP, latest first.

    Excludes the notices about an action, recorded questions, and clock corrections written with it. Components of
    Kubernetes, identified by their certificates, are not people.
    """
    query = select(_events).where(
        _BY_HAND,
        _events.c.stream.not_like("notice/%"),
        _events.c.stream.not_in((LOG_CLOCK, AUDIT_READS)),
        _events.c.actor.not_like("cert/system:%"),
        _events.c.position >= within.first,
        _events.c.position <= within.last,
    )
    if before is not None:
        query = query.where(_events.c.position < before)
    return _read(connection, query.order_by(_events.c.position.desc()).limit(limit))


def search_events(
    connection: Connection,
    within: Window,
    *,
    before: int | None = None,
    nouns: Collection[str] = (),
    actor: str = "",
    type_: str = "",
    words: str = "",
    limit: int,
) -> tuple[list[Event], int | None]:
    """The events of a window that match a filter, latest first, and the position where the search continues. One
    page reads at most LOOKED_AT events, so a search without matches costs no more than one with many."""
    end = within.last if before is None else min(before - 1, within.last)
    start = max(within.first, end - LOOKED_AT + 1)
    query = select(_events).where(_events.c.position.between(start, end))
    if nouns:
        query = query.where(or_(*(_events.c.stream.startswith(f"{noun}/") for noun in sorted(nouns))))
    if actor:
        query = query.where(_events.c.actor.icontains(actor, autoescape=True))
    if type_:
        query = query.where(_events.c.type == type_)
    query = query.order_by(_events.c.position.desc())
    if words:
        # The database cannot search packed data, so it is searched here.
        texts, packed = (_events.c.stream, _events.c.data), _events.c.data.startswith(PACKED)
        query = query.where(or_(packed, *(it.icontains(words, autoescape=True) for it in texts)))
        read = (Event._make(row) for row in connection.execute(query))
        matches = list(islice((it for it in read if words.lower() in f"{it.stream}\n{it.data}".lower()), limit))
    else:
        matches = _read(connection, query.limit(limit))
    looked = matches[-1].position if len(matches) == limit else start
    return matches, looked if looked > within.first else None


def first_changes(
    connection: Connection, within: Window, *, nouns: Collection[str], after: int = 0, limit: int
) -> tuple[list[Event], int]:
    """The first event of every stream of these nouns in the window, and the last position read: at most LOOKED_AT
    events, so that a page costs the same anywhere in the history.
    """
    before = _events.alias("before")
    start = max(after, within.first - 1)
    stop = min(start + LOOKED_AT, within.last)
    is_first = before.c.position.is_(None) | (before.c.position < within.first)
    mate = (before.c.stream == _events.c.stream) & (before.c.version == _events.c.version - 1)
    query = (
        select(_events)
        .join(before, mate, isouter=True)
        .where(_events.c.position > start, _events.c.position <= stop, is_first)
        .where(or_(*(_events.c.stream.startswith(f"{noun}/") for noun in sorted(nouns))))
    )
    found = _read(connection, query.order_by(_events.c.position).limit(limit))
    return found, found[-1].position if len(found) == limit else stop


def _read(connection: Connection, query: Select[tuple[object, ...]]) -> list[Event]:
    return [Event._make(row) for row in connection.execute(query)]


# An object's history beyond its present state: earlier objects of the name, and when a field was written.
#
# Rarely read, for single objects. Of archived history only the state at the base is known.


class WrittenField(NamedTuple):
    position: int
    at: int
    value: Any


def lives(connection: Connection, stream: str) -> list[ObjectLife]:
    """All objects that ever had the name, oldest first."""
    ended: list[ObjectLife] = []
    base = newest_snapshot(connection, stream, position=read_base(connection).position)
    if isinstance(base, ObjectState) and base.manifest is not None:
        ended.append(ObjectLife(uid(base.manifest), base.rv))
    for event in read_stream(connection, stream):
        if event.type.endswith("Created"):
            ended.append(ObjectLife(uid(orjson.loads(event.data)["patch"]), event.position))
        elif event.type.endswith("Deleted") and ended:
            ended[-1] = ended[-1]._replace(ended_at=event.at)
    return ended


def last_written(connection: Connection, stream: str, *path: str) -> WrittenField | None:
    """The last event that set or removed the field; None where none did, or only an archived one."""
    for event in reversed(read_stream(connection, stream)):
        value = orjson.loads(event.data).get("patch")
        for step in path:
            if not isinstance(value, Mapping) or step not in value:
                break
            value = value[step]
        else:
            if not event.type.endswith("Assumed"):
                return WrittenField(event.position, event.at, value)
    return None


# The log as a curve over time: the number of events up to each time.
#
# Positions are dense, so the times of a few hundred of them give the number of events between any two. The cost
# depends on the number of points, not on the length of the history.


_events = tables.events
OF_NAMESPACES = ("pod", "claim", "notice", "statefulset")
"""Nouns of streams whose keys begin with a namespace."""


class LogPoint(NamedTuple):
    position: int
    at: int


def log_curve(connection: Connection, within: Window, *, most: int) -> list[LogPoint]:
    """Evenly spaced positions of the window with their times, both ends among them."""
    if within.last < within.first:
        return []
    step = max(1, -(-(within.last - within.first + 1) // most))
    wanted = sorted({*range(within.first, within.last + 1, step), within.last})
    query = select(_events.c.position, _events.c.at).where(_events.c.position.in_(wanted))
    return [LogPoint(*row) for row in connection.execute(query.order_by(_events.c.position))]


def namespace_curve(
    connection: Connection, within: Window, namespace: str, *, most: int
) -> tuple[list[LogPoint], int]:
    """`log_curve` for the events about objects of a namespace, and their number."""
    about = (_events.c.stream.startswith(f"{noun}/{namespace}/", autoescape=True) for noun in OF_NAMESPACES)
    query = (
        select(_events.c.position, _events.c.at)
        .where(or_(*about), _events.c.position.between(within.first, within.last))
        .order_by(_events.c.position)
    )
    points = [LogPoint(*row) for row in connection.execute(query)]
    step = max(1, -(-len(points) // most))
    ends = points[-1:] if points and (len(points) - 1) % step else []
    return points[::step] + ends, len(points)
