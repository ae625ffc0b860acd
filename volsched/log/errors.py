"""What can be wrong with a store, each with the remedy in its message."""

from dataclasses import dataclass, field
from typing import Any


class StoreError(Exception):
    """The store cannot be used as asked. The message says what to do next."""

    remedy: str | None = None
    """The message without the place of the store, which is nobody's business who asks over a network."""


class NotMigratedError(StoreError):
    """The tables are missing or old."""


class NewerStoreError(StoreError):
    """A newer program wrote the store, and says that this one must not touch it."""


class FullError(StoreError):
    """There is no room on the store's disk. Nothing was lost, and nothing written."""


class ReplacedError(StoreError):
    """The store's file is another one than this process has opened, or is gone."""


class IntegrityBrokenError(StoreError):
    """What is stored contradicts itself. Names the position."""


class ArchivedError(StoreError):
    """What is asked for is no longer in the store. Names the files that hold it."""


@dataclass(frozen=True, slots=True)
class CommitMark:
    """The last event of a batch: in the log, at this place and with this hash, if the batch was committed."""

    position: int
    hash: bytes


@dataclass
class ConnectionLostError(StoreError):
    """The connection broke, perhaps after the commit; `mark` tells whether it happened."""

    message: str
    mark: CommitMark | None = None
    """None: the commit had not begun, or there was nothing to tell it by."""
    outcomes: list[Any] = field(default_factory=list)
    """What became of the commands if the commit did happen."""
    settled: list[Any] = field(default_factory=list)
    """Outcomes of commands before these that were committed for certain."""

    def __str__(self) -> str:
        return self.message
