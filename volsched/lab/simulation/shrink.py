"""Cutting a failing list down: leave parts out, ever smaller ones, as long as what is left still fails (ddmin)."""

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def shrunk(items: Sequence[Item], fails: Callable[[Sequence[Item]], bool], *, most: int = 400) -> tuple[Item, ...]:
    """A part of the items that still fails, and of which (but for `most` tries) no single one can be left out."""
    kept, size, tries = tuple(items), max(len(items) // 2, 1), 0
    while kept and tries < most:
        start, smaller = 0, False
        while start < len(kept) and tries < most:
            tries += 1
            left = kept[:start] + kept[start + size :]
            if fails(left):
                kept, smaller = left, True
            else:
                start += size
        if size == 1 and not smaller:
            break
        # After a whole round of single ones that helped, another: what was needed for them may have become idle.
        size = max(size // 2, 1)
    return kept
