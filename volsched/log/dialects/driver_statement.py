"""Statements of SQLAlchemy Core, compiled once per engine and executed by the driver.

Core takes 100 to 150 µs to execute a statement that SQLite answers in 10. The text is the same, so hot statements
are still written once, in Core, for both engines. Values and rows pass in the driver's own types, except packed
event data: a statement belongs here only if its columns are text, numbers or bytes.
"""

from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Dialect as Compiler
from sqlalchemy import Executable, SelectBase, Table
from sqlalchemy.sql.compiler import SQLCompiler

from volsched.log.phrases import PACKED, unpacked
from volsched.log.tables import EventData

NO_VALUES: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class DriverStatement:
    text: str
    places: tuple[str, ...]
    """The names of the values in order, for a driver that takes positional parameters."""
    fixed: Mapping[str, Any]
    """Values that are part of the statement."""
    row: Callable[[Any], Any]
    has_rows: bool
    """Whether it returns rows; asking the driver is slow."""

    def placed(self, values: Mapping[str, Any]) -> list[Any]:
        given = {**self.fixed, **values}
        return [given[name] for name in self.places]

    def named(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {**self.fixed, **values}


@cache
def driver_statement(statement: Executable, compiler: Compiler) -> DriverStatement:
    """Compile a statement; for statements that are built once, since the result is cached for good."""
    compiled = statement.compile(dialect=compiler, compile_kwargs={"render_postcompile": True})  # type: ignore[attr-defined]
    assert isinstance(compiled, SQLCompiler)
    columns = statement.exported_columns if isinstance(statement, SelectBase) else None
    fields: Any = namedtuple("DriverRow", [] if columns is None else columns.keys(), rename=True)  # type: ignore[misc]
    places = [] if columns is None else [at for at, it in enumerate(columns) if isinstance(it.type, EventData)]
    row = fields._make if not places else lambda given: fields._make(_whole(given, places[0]))
    places_of_values = tuple(compiled.positiontup or ())
    return DriverStatement(compiled.string, places_of_values, dict(compiled.params), row, columns is not None)


def whole_rows(table: Table, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows of the table with event data unpacked."""
    place = _data_place(table)
    return rows if place is None else [_whole(row, place) for row in rows]


@cache
def _data_place(table: Table) -> int | None:
    return next((at for at, it in enumerate(table.columns) if isinstance(it.type, EventData)), None)


def _whole(row: Any, place: int) -> Any:
    text = row[place]
    # A damaged store may have anything here, and a check reports it.
    if not isinstance(text, str) or not text.startswith(PACKED):
        return row
    return (*row[:place], unpacked(text), *row[place + 1 :])
