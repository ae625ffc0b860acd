"""The log's head, read in a few microseconds: every answer from memory checks it first."""

import sqlite3
from dataclasses import dataclass, field
from urllib.parse import quote

from volsched.log.database import Database, Place
from volsched.log.reads.tail import read_head
from volsched.log.revisions import FORMAT


def current_head(database: Database) -> Place:
    """The last event; refuses a store that requires newer readers."""
    with database.glance() as connection:
        head = read_head(connection)
    return head.position, head.hash


@dataclass(slots=True)
class FileHead:
    """The head of an SQLite file, for an event loop: one row in memory, on a connection that never waits.

    Handing the query to a thread and back would take ten times as long.
    """

    database: Database
    _connection: sqlite3.Connection | None = field(default=None)

    def read(self) -> Place | None:
        """None: it cannot be read without waiting, or the full store must report the error."""
        file = self.database.file
        if file.path is None:
            return None
        file.check()
        try:
            if self._connection is None:
                self._connection = sqlite3.connect(
                    f"file:{quote(str(file.path))}?mode=ro", uri=True, timeout=0, isolation_level=None
                )
            rows = self._connection.execute("SELECT position, hash, min_reader FROM log_head").fetchall()
        except sqlite3.Error:
            self.close()
            return None
        return (rows[0][0], bytes(rows[0][1])) if len(rows) == 1 and rows[0][2] <= FORMAT else None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
