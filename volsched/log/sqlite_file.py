"""Reads the present state of an SQLite store with the driver alone, without loading SQLAlchemy.

SQLAlchemy takes longer to load than `volsched get` takes to answer, so commands that only read objects read the
file here. Anything that this reader does not support raises BeyondFileError: the caller then opens the full store,
which answers or reports the error.
"""

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

from volsched.log.reads.views import Now
from volsched.log.revisions import FORMAT, is_older
from volsched.log.row_states import Row

BUSY_TIMEOUT_MS = 30_000
PRAGMAS = (
    # First, because the next pragma may have to wait.
    f"busy_timeout = {BUSY_TIMEOUT_MS}",
    "journal_mode = WAL",
    "synchronous = FULL",
    "temp_store = MEMORY",
    "cache_size = -65536",
    "mmap_size = 268435456",
)
READ_ONLY_PRAGMAS = tuple(it for it in PRAGMAS if not it.startswith(("journal_mode", "synchronous")))
"""Without the pragmas about writing: setting them writes to the file."""


class BeyondFileError(Exception):
    """Only the full store can answer this."""


def is_read_only(file: Path) -> bool:
    return file.is_file() and not os.access(file, os.W_OK)


def opened_for_reading(file: Path) -> sqlite3.Connection:
    # Without a write-ahead log beside it no process is writing, and SQLite need not create files beside it either.
    mode = "mode=ro" if Path(f"{file}-wal").exists() else "immutable=1"
    return _opened(file, mode)


def _opened(file: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(file))}?{mode}", uri=True, check_same_thread=False)


def set_pragmas(raw: Any, pragmas: tuple[str, ...]) -> None:
    for pragma in pragmas:
        raw.execute(f"PRAGMA {pragma}")


def used_bytes(raw: Any) -> int:
    """Bytes of the pages in use, including those still in the write-ahead log; that file itself is reused."""
    pages, free, size = (
        raw.execute(f"PRAGMA {it}").fetchone()[0] for it in ("page_count", "freelist_count", "page_size")
    )
    return int(pages - free) * int(size)


def select_rows(raw: Any, table: str, rest: str, values: Mapping[str, Any]) -> Iterator[Row]:
    """Columns of a newer program are read too; values are accessed by name."""
    cursor = raw.execute(f"SELECT * FROM {table} {rest}", values)
    names = [entry[0] for entry in cursor.description]
    return (dict(zip(names, row, strict=True)) for row in cursor)


@dataclass(frozen=True, slots=True)
class _FileRows:
    raw: sqlite3.Connection

    def rows(self, table: str, rest: str = "", **values: str) -> Iterator[Row]:
        return select_rows(self.raw, table, rest, values)

    def state_as_of(self, stream: str, position: int) -> NoReturn:
        raise BeyondFileError(f"{stream} at {position} is read from the log")


@contextmanager
def present_state(file: Path) -> Iterator[Now]:
    """One consistent view of the store in a file; BeyondFileError where it does not have this program's tables."""
    if not file.is_file():
        raise BeyondFileError(f"{file} is no file")
    try:
        raw = opened_for_reading(file) if is_read_only(file) else _opened(file, "mode=rw")
        try:
            raw.isolation_level = None
            set_pragmas(raw, READ_ONLY_PRAGMAS)
            raw.execute("BEGIN")
            yield Now(_FileRows(raw), _checked_position(raw))
        finally:
            raw.close()
    except sqlite3.Error as error:
        raise BeyondFileError(str(error)) from error


def _checked_position(raw: sqlite3.Connection) -> int:
    revisions = list(raw.execute("SELECT version_num FROM alembic_version"))
    heads = list(raw.execute("SELECT position, min_reader FROM log_head")) if revisions else []
    if len(heads) != 1 or heads[0][1] > FORMAT or is_older(revisions[0][0]):
        raise BeyondFileError("the tables are not of this program")
    return int(heads[0][0])
