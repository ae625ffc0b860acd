"""What a computation costs, counted instead of timed: the same on every machine, however busy it is."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls_of(work: Callable[[], object]) -> int:
    """How many Python functions are called, and generators resumed, until it is done."""
    calls = 0

    def count(_: FrameType, event: str, __: Any) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


class ComparedText(str):
    """A text that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        ComparedText.compared += 1
        return super().__eq__(other)

    def __hash__(self) -> int:
        return super().__hash__()
