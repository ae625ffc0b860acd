"""The answer of every audit question: items for people and programs, and the token of the next page."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from volsched.questions.refusals import TokenError

if TYPE_CHECKING:
    from volsched.log.reads.decision_audit import After

Item = dict[str, Any]
MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    items: list[Item] = field(default_factory=list)
    after: str | None = None
    """The token of the next page; None: this is the last page."""
    cut: bool = False
    """Whether items are left out; a higher limit shows them."""
    archived: str | None = None
    """The note that the beginning is archived, and so missing from the answer; None: it is complete."""


def time_text(time: int | None) -> str | None:
    """A time of the store, exact, in RFC 3339."""
    if time is None:
        return None
    seconds, micros = divmod(time, MICROSECONDS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{micros:06}Z"


def seconds_between(start: int, end: int | None) -> float | None:
    return None if end is None else (end - start) / MICROSECONDS


def number_in(token: str | None) -> int:
    """The position or version that a page ended with; 0 without a token."""
    if token is None:
        return 0
    if not token.isdecimal():
        raise TokenError(token)
    return int(token)


def place_in(token: str | None) -> "After | None":
    """The time and id of the binding or attempt that a page ended with."""
    if token is None:
        return None
    # A client of a server prints answers too, without the database modules.
    from volsched.log.reads.decision_audit import After

    at, _, id_ = token.partition("~")
    if not at.isdecimal() or not id_:
        raise TokenError(token)
    return After(int(at), id_)


def place_token(at: int, id_: str) -> str:
    return f"{at}~{id_}"
