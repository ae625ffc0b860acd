"""Errors of a store, each with the remedy in its message, and the findings of a check."""

from dataclasses import asdict, dataclass, field
from typing import Any


class StoreError(Exception):
    """The store cannot be used this way. The message says what to do next."""

    remedy: str | None = None
    """The message without the location of the store, which callers over a network must not see."""


class NotMigratedError(StoreError):
    """The tables are missing or old."""


class NoStoreError(NotMigratedError):
    """There is no file, or it is empty: a store that is created there replaces nothing."""


class NewerStoreError(StoreError):
    """A newer program wrote the store, and declares that this one must not touch it."""


class FullError(StoreError):
    """The store's disk is full. Nothing was lost, and nothing was written."""


class ReplacedError(StoreError):
    """The store's file is not the one this process has opened, or is gone."""


class WrongModeError(StoreError):
    """The store decides for its cluster in another mode."""


class MirroredStoreError(StoreError):
    """The store's objects are those of a real cluster, and are changed there."""


class IntegrityBrokenError(StoreError):
    """Stored data contradicts itself. Names the position."""


class ArchivedError(StoreError):
    """The requested events are no longer in the store. Names the files that hold them."""


@dataclass(frozen=True, slots=True)
class CommitMark:
    """The last event of a batch: if the batch was committed, the log has it at this position with this hash."""

    position: int
    hash: bytes


@dataclass
class ConnectionLostError(StoreError):
    """The connection broke, perhaps after the commit; `mark` identifies the commit in the log."""

    message: str
    mark: CommitMark | None = None
    """None: the commit had not begun, or has no event to identify it."""
    outcomes: list[Any] = field(default_factory=list)
    """The commands' outcomes if the commit did happen."""
    settled: list[Any] = field(default_factory=list)
    """Outcomes of earlier commands that were certainly committed."""

    def __str__(self) -> str:
        return self.message


# A finding of a check: its place, the expected value, and the value found.


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    problem: str
    position: int | None = None
    table: str | None = None
    key: str | None = None
    column: str | None = None
    expected: Any = None
    got: Any = None

    def __str__(self) -> str:
        """`position 17: …` or `volumes "a", column phase: …`, with both values where there are any."""
        place = f"position {self.position}" if self.position is not None else f'{self.table} "{self.key}"'
        if self.table is None and self.position is None:
            place = "log"
        if self.column is not None:
            place += f", column {self.column}"
        compared = ""
        if self.expected is not None or self.got is not None:
            compared = f" (expected {_value_text(self.expected)}, got {_value_text(self.got)})"
        return f"{place}: {self.problem}{compared}"

    def as_json(self) -> dict[str, Any]:
        """Only the known parts; hashes as hexadecimal digits."""
        return {name: _plain(value) for name, value in asdict(self).items() if value is not None}


class BrokenLogError(IntegrityBrokenError):
    """The log contradicts itself; nothing can be derived from it beyond that position."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def _value_text(value: Any) -> str:
    return "nothing" if value is None else str(_plain(value))
