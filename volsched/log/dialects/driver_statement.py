"""Statements of SQLAlchemy Core, compiled once per engine and executed by the driver.

Core takes 100 to 150 µs to execute a statement that SQLite answers in 10. The text is the same, so hot statements
are still written once, in Core, for both engines. Values and rows pass as the driver has them: a statement belongs
here only if its columns are text, numbers or bytes.
"""

from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Dialect as Compiler
from sqlalchemy import Executable, SelectBase
from sqlalchemy.sql.compiler import SQLCompiler

NO_VALUES: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class DriverStatement:
    text: str
    places: tuple[str, ...]
    """The names of the values in order, for a driver that takes them by place."""
    fixed: Mapping[str, Any]
    """Values that are part of the statement."""
    row: Callable[[Any], Any]

    def placed(self, values: Mapping[str, Any]) -> list[Any]:
        given = {**self.fixed, **values}
        return [given[name] for name in self.places]

    def named(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {**self.fixed, **values}


@cache
def driver_statement(statement: Executable, compiler: Compiler) -> DriverStatement:
    """For statements that are built once: each is kept."""
    compiled = statement.compile(dialect=compiler, compile_kwargs={"render_postcompile": True})  # type: ignore[attr-defined]
    assert isinstance(compiled, SQLCompiler)
    names = statement.exported_columns.keys() if isinstance(statement, SelectBase) else []
    fields: Any = namedtuple("DriverRow", names, rename=True)  # type: ignore[misc]
    return DriverStatement(compiled.string, tuple(compiled.positiontup or ()), dict(compiled.params), fields._make)
