"""What a check has found wrong: where it is, what was expected there, and what there is instead."""

from dataclasses import asdict, dataclass
from typing import Any

from volsched.log.errors import IntegrityBrokenError


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
            compared = f" (expected {_shown(self.expected)}, got {_shown(self.got)})"
        return f"{place}: {self.problem}{compared}"

    def as_json(self) -> dict[str, Any]:
        """Only what is known of it; hashes as hexadecimal digits."""
        return {name: _plain(value) for name, value in asdict(self).items() if value is not None}


class BrokenLogError(IntegrityBrokenError):
    """The log itself contradicts what it says it is; nothing can be derived from it beyond that position."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def _shown(value: Any) -> str:
    return "nothing" if value is None else str(_plain(value))
