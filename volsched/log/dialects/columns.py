"""Columns by name, never `*`: while an upgrade is under way, tables have columns that this program does not know.

A statement that PostgreSQL has prepared fails for good once its `*` would mean something else.
"""

from functools import cache

from sqlalchemy import Table

HEAD = "id, position, hash, at, min_reader, min_writer"


@cache
def all_columns(table: Table) -> str:
    return ", ".join(f'"{column.name}"' for column in table.columns)
