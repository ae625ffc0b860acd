"""Reading a log in tests."""

from sqlalchemy import Table, select

from volsched.log import tables
from volsched.log.database import Database
from volsched.log.events.envelope import Event


def log(database: Database) -> list[Event]:
    with database.read() as connection:
        rows = connection.execute(select(tables.events).order_by(tables.events.c.position))
        return [Event(*row[:-1], hash=bytes(row[-1])) for row in rows]  # type: ignore[misc]


def rows(database: Database, table: Table) -> list[dict[str, object]]:
    with database.read() as connection:
        return [dict(row._mapping) for row in connection.execute(select(table))]
