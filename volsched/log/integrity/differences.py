"""Views against the fold, row by row: what is missing, what is too much, which column differs."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, Table

from volsched.log import tables
from volsched.log.dialects import dialect_of
from volsched.log.events.fold import State
from volsched.log.events.streams import ATTEMPT, BINDING, noun_and_key
from volsched.log.integrity.findings import Finding
from volsched.log.rows import FOLDED, VIEWS, rows_of

Key = tuple[Any, ...]
Values = tuple[Any, ...]
NOUN_OF_TABLE: Mapping[str, str] = {
    **{table.name: noun for noun, (table, _) in VIEWS.items()},
    tables.bindings.name: BINDING,
    tables.binding_legs.name: BINDING,
    tables.attempts.name: ATTEMPT,
}
MISSING = "the log has the row and the view has not"
EXTRA = "the view has a row that the log does not know"
DIFFERS = "the view is not what the log says"


def compare_views(
    connection: Connection, states: Mapping[str, State]
) -> Iterator[tuple[Table, Key, list[Finding]]]:
    """Every row of a folded table that is not what these states make of it. Holds one table's rows at a time."""
    by_noun: dict[str, list[tuple[str, State]]] = {}
    for stream, state in states.items():
        noun, name = noun_and_key(stream)
        by_noun.setdefault(noun, []).append((name, state))
    scan = dialect_of(connection.engine).scan
    for table in FOLDED:
        expected = rows_expected(table, by_noun.get(NOUN_OF_TABLE[table.name], ()))
        first = table.primary_key.columns[0].name
        for chunk in scan(connection, table, order=first):
            for row in chunk:
                key = key_of(table, row)
                findings = list(findings_of(table, key, expected.pop(key, None), row))
                if findings:
                    yield table, key, findings
        for key, values in expected.items():
            yield table, key, list(findings_of(table, key, values, None))


def rows_expected(table: Table, states: Iterable[tuple[str, State]]) -> dict[Key, Values]:
    """The rows of a table that stand for these keys and states, values in the order of its columns."""
    noun = NOUN_OF_TABLE[table.name]
    rows: dict[Key, Values] = {}
    for name, state in states:
        for place, row in rows_of(noun, name, state):
            if place is table:
                values = tuple(row[column.name] for column in table.columns)
                rows[key_of(table, values)] = values
    return rows


def findings_of(table: Table, key: Key, expected: Values | None, got: Values | None) -> Iterator[Finding]:
    name = "/".join(map(str, key))
    if expected is None:
        yield Finding(problem=EXTRA, table=table.name, key=name)
    elif got is None:
        yield Finding(problem=MISSING, table=table.name, key=name)
    elif expected != got:
        for column, wanted, found in zip(table.columns, expected, got, strict=True):
            if wanted != found:
                yield Finding(
                    problem=DIFFERS, table=table.name, key=name, column=column.name, expected=wanted, got=found
                )


def key_of(table: Table, values: Values) -> Key:
    """Primary keys stand first in every folded table, in order."""
    return values[: len(table.primary_key.columns)]
