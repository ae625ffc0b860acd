"""Moments as people write and read them: `--as-of`, times in the zone of whoever asks."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from volsched.cli.console import Exit, fail

if TYPE_CHECKING:
    from volsched.questions.parameters import Parameters


def absolute(text: str) -> str:
    """The same moment for a server in any zone; the end of the command where it is none."""
    from volsched.questions.history.moments import is_position, read_duration, spoken_time
    from volsched.questions.refusals import MomentError
    from volsched.runtime.clock import system_clock

    # How long ago something is, whoever is asked counts from its own clock.
    if is_position(text) or read_duration(text.removesuffix(" ago")) is not None:
        return text
    try:
        moment = spoken_time(text, now=system_clock(), zone=None)
    except MomentError as error:
        fail(Exit.USAGE, str(error))
    return datetime.fromtimestamp(moment / 1_000_000, UTC).isoformat().replace("+00:00", "Z")


def with_absolute_times(model: "type[Parameters]", words: dict[str, Any]) -> dict[str, Any]:
    """Parameters of a question, whose times are of no zone that only we know."""
    times = [name for name, (_, it) in model.spellings().items() if it.metavar == "TIME"]
    given = {name: absolute(words[name]) for name in times if words.get(name) is not None}
    return {**words, **given} if given else words


def check_as_of(as_of: str | None) -> str | None:
    """As a store takes it; the end of the command for a time that is none, or still to come."""
    if as_of is None:
        return None
    from volsched.questions.history.moments import is_position, time_of
    from volsched.runtime.clock import system_clock

    moment, now = absolute(as_of), system_clock()
    if not is_position(moment) and time_of(moment, now=now) > now:
        fail(Exit.USAGE, f"{as_of} is still to come; give a time that has passed, or leave --as-of out")
    return moment


def local_time(text: str) -> str:
    """A time of an answer in the zone of whoever reads it, which it names; to the millisecond."""
    try:
        moment = datetime.fromisoformat(text).astimezone()
    except ValueError:
        return text
    digits = moment.isoformat(timespec="milliseconds" if "." in text else "seconds")
    return digits.replace("+00:00", "Z")
