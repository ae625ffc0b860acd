"""Counts the statements and transactions of a piece of work on an SQLite store, as SQLite reports them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import event

from volsched.log.database import Database
from volsched.log.kept_connections import give_back

BEGIN, BEGIN_WRITE = "BEGIN", "BEGIN IMMEDIATE"


@dataclass(slots=True)
class StatementCount:
    statements: int = 0
    """BEGIN and COMMIT included."""
    transactions: int = 0
    """Begun as such; a read of one statement needs none."""
    writes: int = 0
    """Transactions that write: each waits for the disk once, where it has changed something."""

    def note(self, text: str) -> None:
        self.statements += 1
        self.transactions += text.startswith(BEGIN)
        self.writes += text == BEGIN_WRITE


@contextmanager
def counted(database: Database) -> Iterator[StatementCount | None]:
    """Counts what all connections of this handle execute meanwhile; None for a server, which reports nothing."""
    if database.engine.dialect.name != "sqlite":
        yield None
        return
    count = StatementCount()
    with traced(database, count.note):
        yield count


@contextmanager
def traced(database: Database, note: Callable[[str], None]) -> Iterator[None]:
    """Passes on every statement that a connection of this handle to an SQLite file executes meanwhile."""

    def on_checkout(raw: Any, *_: object) -> None:
        raw.set_trace_callback(note)

    def on_checkin(raw: Any, *_: object) -> None:
        raw.set_trace_callback(None)

    hooks = (("checkout", on_checkout), ("checkin", on_checkin))
    give_back(database.engine)
    for name, hook in hooks:
        event.listen(database.engine, name, hook)
    try:
        yield
    finally:
        give_back(database.engine)
        for name, hook in hooks:
            event.remove(database.engine, name, hook)
