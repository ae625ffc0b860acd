"""Which part of the log is closed: nobody needs its events any more to go on, so they may leave or be redacted.

Not closed, however old, is

- everything from the first event of the oldest open binding on, for whoever rolls it back or explains it;
- what was written in the last minutes: a writer whose connection broke looks for its last event for a minute, and
  readers may be that far behind;
- the last event, which the head is checked against;
- events of types or schemas that this program does not know: it cannot say what they have led to.
"""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Select, func, literal, select

from volsched.log import tables
from volsched.log.batch import Head
from volsched.log.errors import StoreError
from volsched.log.events.catalogue import CATALOGUE
from volsched.log.events.streams import BINDING
from volsched.log.integrity.findings import BrokenLogError, Finding
from volsched.log.integrity.replay import MISSING
from volsched.log.reads.tail import event, last_until, position_at, read_head

SETTLED_AFTER_US = 120_000_000

_events, _bindings = tables.events, tables.bindings


def check_closed(connection: Connection, base: Head, until: int, *, now: int, done: str = "archived") -> None:
    """Nothing up to the position is needed by anybody any more; `done` is what they want to do with it."""
    head, last = read_head(connection), event(connection, until)
    if until >= head.position:
        raise StoreError(
            f"position {until} cannot be {done}: the log ends at {head.position} and its last event stays; "
            f"give {head.position - 1} or less"
        )
    if last is None:
        raise BrokenLogError(Finding(problem=MISSING, position=until))
    if last.at > now - SETTLED_AFTER_US:
        raise StoreError(
            f"position {until} was written within the last {SETTLED_AFTER_US // 1_000_000} seconds, and a writer "
            "or reader may still ask for it; give an earlier position, or wait"
        )
    check_bindings(connection, until, done)
    _check_known(connection, base, until, done)


def closed_until(connection: Connection, base: Head, until: int, *, now: int) -> int:
    """The last position up to the given one that is closed; the base's where none is."""
    settled = now - SETTLED_AFTER_US
    last = min(
        until, read_head(connection).position - 1, position_at(connection, settled) if settled > base.at else 0
    )
    opened = _opened().subquery()
    oldest = connection.execute(select(func.min(opened.c.first))).scalar()
    unknown = next(_unknown(connection, base, last), None)
    limits = [at - 1 for at in (oldest, None if unknown is None else unknown[2]) if at is not None]
    # Not one that a clock that was ahead has stamped: the log would seem to begin in the future.
    closed = last_until(connection, settled, within=min([last, *limits]))
    return max(closed or 0, base.position)


def check_bindings(connection: Connection, until: int, done: str = "archived") -> None:
    """No binding whose history begins in the range is open."""
    opened = _opened().subquery()
    oldest = connection.execute(select(opened).where(opened.c.first <= until).order_by(opened.c.first)).first()
    if oldest is not None:
        raise StoreError(
            f'position {until} cannot be {done}: binding "{oldest.id}" is open and its history begins at '
            f"{oldest.first}; give {oldest.first - 1} or less, or wait until the binding has ended"
        )


def _opened() -> Select[Any]:
    stream = literal(f"{BINDING}/") + _bindings.c.id
    # Its plan, or the first event after it where the plan is archived and the binding was opened again.
    first = select(func.min(_events.c.position)).where(_events.c.stream == stream).scalar_subquery()
    return select(_bindings.c.id, first.label("first")).where(_bindings.c.open)


def _check_known(connection: Connection, base: Head, until: int, done: str) -> None:
    for type_, schema, first in _unknown(connection, base, until):
        raise StoreError(
            f"position {first} holds {type_} of schema {schema}, which this program does not know, so it "
            f"cannot tell what it led to; have it {done} by the newer volsched"
        )


def _unknown(connection: Connection, base: Head, until: int) -> Iterator[tuple[str, int, int]]:
    """Type, schema and first position of what we do not know, the oldest first."""
    first = func.min(_events.c.position).label("first")
    kinds = select(_events.c.type, _events.c.schema, first)
    kinds = kinds.where(_events.c.position > base.position, _events.c.position <= until)
    for type_, schema, position in connection.execute(
        kinds.group_by(_events.c.type, _events.c.schema).order_by(first)
    ):
        entry = CATALOGUE.get(type_)
        if entry is None or entry.schema < schema:
            yield type_, schema, position
