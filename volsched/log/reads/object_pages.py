"""Objects of one kind, a page at a time: as they are, or as they were a moment ago, when the first page was read.

The moment ago costs what has happened since, never the whole history: the views are right for every object that
was not touched, and the others are folded for themselves.
"""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Select, select

from volsched.log import tables
from volsched.log.base import archived, read_base
from volsched.log.errors import ArchivedError
from volsched.log.events.envelope import Event
from volsched.log.events.fold import ObjectState
from volsched.log.events.streams import noun_and_key
from volsched.log.reads.tail import read_head, state_as_of
from volsched.log.rows import VIEWS, object_state

MOST_BEHIND = 20_000
"""Events after which a moment is too long ago to be shown page by page, or followed from."""
AFTER_SLASH = chr(ord("/") + 1)
Found = list[tuple[str, ObjectState]]
_events = tables.events


def namespace_names(connection: Connection) -> list[str]:
    return list(connection.execute(select(tables.namespaces.c.key)).scalars())


def page(
    connection: Connection, noun: str, *, namespace: str | None = None, after: str = "", limit: int | None = None
) -> Found:
    """The objects behind a key, in the order of keys, byte by byte on every engine."""
    table, _ = VIEWS[noun]
    key = _bytewise(connection, table.c.key)
    asked = select(table).where(key > after).order_by(key).limit(limit)
    if namespace is not None:
        asked = asked.where(key > f"{namespace}/", key < f"{namespace}{AFTER_SLASH}")
    return [(row["key"], object_state(dict(row))) for row in connection.execute(asked).mappings()]


def page_as_of(
    connection: Connection,
    noun: str,
    *,
    position: int,
    namespace: str | None = None,
    after: str = "",
    limit: int | None = None,
) -> Found:
    """The same at a position; ArchivedError where that is too long ago."""
    check_recent(connection, position)
    touched = _touched(connection, noun, position)
    if namespace is not None:
        touched = {key for key in touched if key.startswith(f"{namespace}/")}
    touched = {key for key in touched if key > after}
    # Enough of the others for a whole page, whichever of these keys lie among them.
    enough = None if limit is None else limit + len(touched)
    found = [
        it for it in page(connection, noun, namespace=namespace, after=after, limit=enough) if it[0] not in touched
    ]
    for key in touched:
        state = state_as_of(connection, f"{noun}/{key}", position=position)
        if isinstance(state, ObjectState) and state.manifest is not None:
            found.append((key, state))
    found.sort(key=lambda it: it[0])
    return found[:limit]


def events_of_kind(connection: Connection, noun: str, *, after: int, until: int) -> Iterator[Event]:
    """What happened to the objects of a kind, in order; ArchivedError where `after` is too long ago."""
    check_recent(connection, after)
    asked = _of_noun(select(_events), noun).where(_events.c.position > after, _events.c.position <= until)
    return (Event._make(row) for row in connection.execute(asked.order_by(_events.c.position)))


def check_recent(connection: Connection, position: int) -> None:
    base, head = read_base(connection), read_head(connection)
    if position < base.position:
        raise archived(connection, f"position {position}", base)
    if head.position - position > MOST_BEHIND:
        raise ArchivedError(
            f"position {position} is {head.position - position} events ago, more than the {MOST_BEHIND} that are "
            "followed up; list again"
        )


def _touched(connection: Connection, noun: str, position: int) -> set[str]:
    asked = _of_noun(select(_events.c.stream), noun).where(_events.c.position > position).distinct()
    return {noun_and_key(stream)[1] for stream in connection.execute(asked).scalars()}


def _of_noun(asked: Select[Any], noun: str) -> Select[Any]:
    return asked.where(_events.c.stream.startswith(f"{noun}/"))


def _bytewise(connection: Connection, column: Column[str]) -> ColumnElement[str]:
    """PostgreSQL would order by the language of the database, and a page must end where the next begins."""
    return column.collate("C") if connection.dialect.name == "postgresql" else column
