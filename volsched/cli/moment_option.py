"""Moments as people write and read them: `--as-of`, and times in the local zone."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from volsched.cli.console import Exit, fail

if TYPE_CHECKING:
    from volsched.questions.parameters import Parameters


def absolute(text: str) -> str:
    """The moment in a form that does not depend on our zone; the command ends if it is invalid."""
    from volsched.questions.history.moments import is_position, read_duration, spoken_time
    from volsched.questions.refusals import MomentError
    from volsched.runtime.clock import system_clock

    # An age stays one: the store or server counts it from its own clock.
    if is_position(text) or read_duration(text.removesuffix(" ago")) is not None:
        return text
    try:
        moment = spoken_time(text, now=system_clock(), zone=None)
    except MomentError as error:
        fail(Exit.USAGE, str(error))
    return datetime.fromtimestamp(moment / 1_000_000, UTC).isoformat().replace("+00:00", "Z")


def with_absolute_times(model: "type[Parameters]", words: dict[str, Any]) -> dict[str, Any]:
    """The words of a question with their times made `absolute`."""
    times = [name for name, (_, it) in model.spellings().items() if it.metavar == "TIME"]
    given = {name: absolute(words[name]) for name in times if words.get(name) is not None}
    return {**words, **given} if given else words


def check_as_of(as_of: str | None) -> str | None:
    """The moment in `absolute` form; the command ends if it is invalid or in the future."""
    if as_of is None:
        return None
    from volsched.questions.history.moments import is_position, time_of
    from volsched.runtime.clock import system_clock

    moment, now = absolute(as_of), system_clock()
    if not is_position(moment) and time_of(moment, now=now) > now:
        fail(Exit.USAGE, f"{as_of} is still to come; give a time that has passed, or leave --as-of out")
    return moment


def local_time(text: str) -> str:
    """A time of an answer in the local zone, with its offset; to the millisecond."""
    try:
        moment = datetime.fromisoformat(text).astimezone()
    except ValueError:
        return text
    digits = moment.isoformat(timespec="milliseconds" if "." in text else "seconds")
    return digits.replace("+00:00", "Z")
