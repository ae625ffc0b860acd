"""What people mean by a time or a position of the log: `1234`, `2025-11-16T22:00:00Z`, `2h` for two hours ago."""

import re
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection

from volsched.log.reads.event_audit import Window, position_since, window
from volsched.log.reads.tail import position_at, read_head
from volsched.questions.audit.answers import UnknownError
from volsched.runtime.clock import SECOND

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST_NUMBER = 18
"""Digits of a position; no log is longer."""


class MomentError(ValueError):
    """It is no time, or several of them contradict each other; the message says what to give instead."""


def read_duration(text: str) -> int | None:
    """Microseconds of `90s`, `15m`, `2h`, `7d`, `4w`; None where it is none."""
    match = re.fullmatch(r"([0-9]{1,9})([smhdw])", text)
    return None if match is None else int(match[1]) * UNITS[match[2]] * SECOND


def duration_of(text: str) -> int:
    """The same; MomentError where it is none."""
    found = read_duration(text)
    if found is None:
        raise MomentError(f'"{text[:80]}" is no length of time; write a number and s, m, h, d or w, such as 7d')
    return found


def time_of(text: str, *, now: int) -> int:
    """Microseconds since 1970; without a zone it is UTC."""
    ago = read_duration(text.removesuffix(" ago"))
    if ago is not None:
        return now - ago
    try:
        given = datetime.fromisoformat(text)
        moment = given if given.tzinfo else given.replace(tzinfo=UTC)
        return (moment - EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        raise MomentError(
            f'"{text[:80]}" is neither a position nor a time; give 1234, 2025-11-16T22:00:00Z, or 2h for ago'
        ) from None


def is_position(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= LONGEST_NUMBER


def position_of(connection: Connection, text: str | None, *, now: int) -> int:
    """A number, the last position at a time, or that of the log's end; UnknownError where it is not there yet."""
    end = read_head(connection).position
    if text is None:
        return end
    if not is_position(text):
        return position_at(connection, time_of(text, now=now))
    if int(text) > end:
        raise UnknownError(f"position {text} is not there yet; the log ends at {end}")
    return int(text)


def window_of(
    connection: Connection, *, since: str | None, until: str | None, as_of: str | None = None, now: int
) -> Window:
    """The part of the history between two moments; `as_of` is another word for its end."""
    if until is not None and as_of is not None:
        raise MomentError("--until and --as-of mean the same end of the history; give one of them")
    first = None
    if since is not None:
        first = int(since) if is_position(since) else position_since(connection, time_of(since, now=now))
    end = until if as_of is None else as_of
    last = None if end is None else position_of(connection, end, now=now)
    if first is not None and last is not None and first > last:
        raise MomentError(f"nothing was written between {since} and {end}; give a beginning before the end")
    return window(connection, first=first, last=last)
