"""A schedule: every choice of a simulated run, one line each, so that a run can be repeated, shrunk and read.

Nothing is drawn at random during a run. A choice that cannot be carried out (its process sleeps, its object is
gone) does nothing, so any part of a schedule is a schedule: shrinking leaves choices out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import yaml

Where = Literal["local", "foreign"]
PLACES: tuple[Where, ...] = ("local", "foreign")


class ScheduleError(ValueError):
    """A schedule, or a line of one, that cannot be parsed; the message says where and what is valid."""


@dataclass(frozen=True, slots=True)
class ScheduleChoice:
    """`VERB [WHO] [KEY=VALUE]...`, as in `step worker-1 crash=executor.claimed`."""

    verb: str
    who: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join(filter(None, (self.verb, self.who, *(f"{k}={v}" for k, v in self.options.items()))))

    def number(self, name: str, default: int = 0) -> int:
        """A numeric option; anything else counts as the default."""
        text = self.options.get(name, "")
        return int(text) if text.lstrip("-").isdecimal() else default


def read_choice(line: str) -> ScheduleChoice:
    words = line.split()
    if not words:
        raise ScheduleError("an empty line is no choice; write VERB [WHO] [KEY=VALUE]...")
    who = words[1] if len(words) > 1 and "=" not in words[1] else ""
    rest = words[2 if who else 1 :]
    wrong = next((word for word in rest if "=" not in word), None)
    if wrong is not None:
        raise ScheduleError(f'"{line}": "{wrong}" is no KEY=VALUE')
    return ScheduleChoice(words[0], who, dict(word.split("=", 1) for word in rest))


@dataclass(frozen=True, slots=True)
class Schedule:
    where: Where
    choices: tuple[ScheduleChoice, ...]
    seed: int | None = None
    """The seed that it was generated from; a shrunk schedule no longer matches it."""
    stepwise: bool = True
    """Whether workers commit each step of a binding by itself."""
    drafts: bool = False
    """Whether every transaction is decided before it locks the log's head; others may write in between."""

    def of(self, choices: Iterable[ScheduleChoice]) -> "Schedule":
        return replace(self, choices=tuple(choices))


def dump_schedule(schedule: Schedule, *, violations: Sequence[str] = (), guards_off: Sequence[str] = ()) -> str:
    """The text of a file for `--schedule` and the regression tests; `violations`: found when it was saved."""
    head: dict[str, Any] = {"drill": "sim", "where": schedule.where}
    head |= {} if schedule.seed is None else {"seed": schedule.seed}
    head |= {} if schedule.stepwise else {"stepwise": False}
    head |= {"drafts": True} if schedule.drafts else {}
    head |= {"guards-off": list(guards_off)} if guards_off else {}
    head |= {"found": list(violations)} if violations else {}
    head["schedule"] = [str(choice) for choice in schedule.choices]
    return yaml.safe_dump(head, sort_keys=False, width=110)


def read_schedule(path: Path) -> Schedule:
    try:
        given = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ScheduleError(f"{path}: it cannot be read: {error}") from None
    if (
        not isinstance(given, dict)
        or given.get("where") not in PLACES
        or not isinstance(given.get("schedule"), list)
    ):
        raise ScheduleError(
            f"{path}: a schedule says `where: local` or `where: foreign`, and has a list `schedule`"
        )
    try:
        choices = tuple(read_choice(str(line)) for line in given["schedule"])
    except ScheduleError as error:
        raise ScheduleError(f"{path}: {error}") from None
    ways = given.get("stepwise", True), given.get("drafts", False)
    return Schedule(given["where"], choices, given.get("seed"), *ways)
