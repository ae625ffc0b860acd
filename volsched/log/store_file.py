"""The file of an SQLite store: readable by its owner alone, and the same one for as long as a process has it open.

SQLite goes on with a file that was removed or replaced under it: what is written then is gone with the process,
and what is read is of the past. A look at the name before every transaction costs a microsecond.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import URL

from volsched.log.errors import ReplacedError

OWN = 0o600


@dataclass(slots=True)
class StoreFile:
    path: Path | None = None
    """None: there is no file, or SQLite alone knows which."""
    _known: tuple[int, int] | None = field(default=None)
    """Device and inode, from the first time that it was there."""

    def check(self) -> None:
        """ReplacedError where the name leads to another file than before."""
        if self.path is None:
            return
        try:
            found = os.stat(self.path)
        except OSError:
            if self._known is None:
                # It is about to be made, or cannot be opened, which SQLite says better.
                return
            raise self._replaced("was removed") from None
        if self._known is None:
            self._known = found.st_dev, found.st_ino
        elif self._known != (found.st_dev, found.st_ino):
            raise self._replaced("was replaced by another")

    def _replaced(self, what: str) -> ReplacedError:
        remedy = f"the store's file {what} while this process had it open; nothing is written to it, restart"
        error = ReplacedError(f"{self.path}: {remedy}")
        error.remedy = remedy
        return error

    def free_bytes(self) -> int | None:
        """Room on its disk; None where nobody can say."""
        if self.path is None:
            return None
        try:
            disk = os.statvfs(self.path.parent)
        except OSError:
            return None
        return disk.f_bavail * disk.f_frsize

    def make(self) -> None:
        """An empty file that only its owner can read; SQLite makes those beside it in its likeness."""
        if self.path is not None:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, OWN))


def sqlite_file(url: URL) -> Path | None:
    """The file of an SQLite store; None for a server, memory, or a URI that SQLite reads itself."""
    named = url.get_backend_name() == "sqlite" and url.database and not url.database.startswith((":", "file:"))
    return Path(url.database) if named and url.database else None
