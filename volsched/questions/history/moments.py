"""Parser of times and positions of the log: `1234`, `2025-11-16T22:00:00Z`, `1h30m` (ago), `2 hours ago`,
`yesterday 14:00`, `last tuesday`."""

import re
from datetime import UTC, datetime, time, timedelta, tzinfo

from sqlalchemy import Connection

from volsched.log.base import archives_text, read_base
from volsched.log.reads.as_of import AsOf, view_at_head
from volsched.log.reads.event_audit import Window, position_since, window
from volsched.log.reads.tail import event, position_at, read_head
from volsched.log.reads.views import StoreView
from volsched.questions.refusals import MomentError, UnknownError
from volsched.runtime.clock import SECOND

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_UNIT_WORDS = {"sec": "s", "second": "s", "min": "m", "minute": "m", "hour": "h", "day": "d", "week": "w"}
_DURATION = re.compile(r"(?:[0-9]{1,9}[smhdw])+")
_PART = re.compile(r"([0-9]+)([smhdw])")
_WORDY = re.compile(
    rf"([0-9]{{1,9}}|an?)\s+({'|'.join(sorted(_UNIT_WORDS, reverse=True))})s?(?:\s*,?\s*(?:and\s+)?|$)"
)
_DAY = re.compile(
    r"(?:(?P<day>today|yesterday|(?:last\s+)?(?P<weekday>[a-z]{3,9}))\s*)?(?:at\s+)?(?P<clock>\d{1,2}:\d{2}(?::\d{2})?)?"
)
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST_NUMBER = 18
"""Maximum number of digits of a position."""


def read_duration(text: str) -> int | None:
    """Microseconds of `90s`, `15m`, `2h`, `1h30m`, `7d`, `4w`; None if the text is not a duration."""
    if _DURATION.fullmatch(text) is None:
        return None
    return sum(int(count) * UNITS[unit] for count, unit in _PART.findall(text)) * SECOND


def duration_of(text: str) -> int:
    """The same as `read_duration`; MomentError if the text is not a duration."""
    length = read_duration(text)
    if length is None:
        raise MomentError(
            f'"{text[:80]}" is not a duration; write a number and s, m, h, d or w, such as 7d or 1h30m'
        )
    return length


def time_of(text: str, *, now: int, zone: tzinfo | None = UTC) -> int:
    """Microseconds since 1970; a time without a zone is in `zone`, or, if that is None, in the machine's."""
    ago = read_duration(text.removesuffix(" ago"))
    if ago is not None:
        return now - ago
    try:
        return _microseconds(datetime.fromisoformat(text), zone)
    except (ValueError, OverflowError):
        raise MomentError(
            f'"{text[:80]}" is neither a position nor a time; give 1234, 2025-11-16T22:00:00Z, 2h or 1h30m for '
            "ago, yesterday 14:00 or last tuesday"
        ) from None


def spoken_time(text: str, *, now: int, zone: tzinfo | None) -> int:
    """The same as `time_of`, and also for words: `2 hours ago`, `yesterday 14:00`."""
    words = " ".join(text.lower().split())
    ago = _ago(words)
    if ago is not None:
        return now - ago
    day = _day(words, datetime.fromtimestamp(now / SECOND, zone))
    return time_of(text, now=now, zone=zone) if day is None else _microseconds(day, zone)


def _microseconds(moment: datetime, zone: tzinfo | None) -> int:
    return (_with_zone(moment, zone) - EPOCH) // timedelta(microseconds=1)


def _with_zone(moment: datetime, zone: tzinfo | None) -> datetime:
    if moment.tzinfo is not None:
        return moment
    # Without a zone, Python uses the machine's, with the daylight saving time of that day.
    return moment.astimezone() if zone is None else moment.replace(tzinfo=zone)


def _ago(words: str) -> int | None:
    """Parse `2h`, `2h ago`, `2 hours ago`, `1 hour 30 minutes ago`, `an hour ago`, `now`."""
    if words == "now":
        return 0
    bare = words.removesuffix(" ago")
    length = read_duration(bare)
    if length is not None or bare == words:
        return length
    parts = list(_WORDY.finditer(bare))
    if not parts or "".join(it[0] for it in parts) != bare:
        return None
    counted = ((1 if it[1] in ("a", "an") else int(it[1]), UNITS[_UNIT_WORDS[it[2]]]) for it in parts)
    return sum(count * unit for count, unit in counted) * SECOND


def _day(words: str, now: datetime) -> datetime | None:
    """Parse `today 09:00`, `yesterday`, `last tuesday 14:00`, `tuesday`, `14:00`; a day alone is its beginning."""
    match = _DAY.fullmatch(words)
    if not words or match is None:
        return None
    try:
        clock = time.fromisoformat((match["clock"] or "00:00").rjust(5, "0"))
    except ValueError:
        return None
    back = _days_back(match["day"] or "today", match["weekday"], clock, now)
    return None if back is None else datetime.combine(now.date() - timedelta(days=back), clock)


def _days_back(day: str, weekday: str | None, clock: time, now: datetime) -> int | None:
    if day in ("today", "yesterday"):
        return int(day == "yesterday")
    numbers = [number for number, name in enumerate(_WEEKDAYS) if name.startswith(weekday or "?")]
    if len(numbers) != 1:
        return None
    back = (now.weekday() - numbers[0]) % 7
    # Today is meant if the time has passed and the text does not say "last".
    return 7 if back == 0 and (day.startswith("last ") or clock > now.time()) else back


def is_position(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= LONGEST_NUMBER


def position_of(connection: Connection, text: str | None, *, now: int) -> int:
    """The position of a number or a time, or the log's end; UnknownError for a number beyond the end."""
    end = read_head(connection).position
    if text is None:
        return end
    if not is_position(text):
        return position_at(connection, time_of(text, now=now))
    if int(text) > end:
        raise UnknownError(f"position {text} does not exist yet; the log ends at {end}")
    return int(text)


def view_in(connection: Connection, as_of: str | None, *, now: int) -> tuple[StoreView, int]:
    """The store at a moment, and the time that ages are counted to: a past time itself, or for a position the time
    of its event."""
    if as_of is None:
        return view_at_head(connection), now
    position = position_of(connection, as_of, now=now)
    if not is_position(as_of):
        return AsOf(connection, position), time_of(as_of, now=now)
    last = event(connection, position)
    return AsOf(connection, position), now if last is None else last.at


def archived_part(connection: Connection, *, since: str | None, now: int) -> str | None:
    """The note about the archived part of a window; None: no part is archived."""
    base = read_base(connection)
    if base.position == 0:
        return None
    if since is not None:
        is_in_log = int(since) > base.position if is_position(since) else time_of(since, now=now) > base.at
        if is_in_log:
            return None
    return f"what was before position {base.position + 1} is archived: {archives_text(connection)}"


def window_of(
    connection: Connection, *, since: str | None, until: str | None, as_of: str | None = None, now: int
) -> Window:
    """The part of the history between two moments; `as_of` is another name for `until`."""
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
