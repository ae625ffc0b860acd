"""Violations in words: as they are told, and as kinds that are the same for other objects."""

import re
from collections.abc import Sequence

from volsched.questions.invariants import Violation

_NAMES = re.compile(r"\S*[/0-9]\S*")


def told(violations: Sequence[Violation]) -> list[str]:
    return [f"{it.invariant}: {it.what}" for it in violations]


def shape(violation: Violation) -> str:
    """What kind of violation it is, so that a schedule is not cut down to one that shows another."""
    return f"{violation.invariant}: {_NAMES.sub('…', violation.what)}"
