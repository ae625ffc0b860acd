"""Which volumes an explanation has to read: of volumes that differ only in their names, a few are enough.

Rules, scores and remedies look at a volume's size, its name (to break ties) and the rest of its manifest. Of
volumes that are alike in size and rest, no more are needed than a decision may take, or an explanation may name.
"""

from collections.abc import Iterable, Iterator, Sequence

from volsched.log.reads.volume_outlines import VolumeOutline
from volsched.questions.explain.survey import NEAR_ON_NODE

Stack = list[VolumeOutline]
"""Volumes of one size and one rest."""


def for_remedies(outlines: Iterable[VolumeOutline], *, sizes: Sequence[int]) -> Iterator[str]:
    """The names of enough volumes to say why a pod with claims of these sizes fits nowhere, and what would help.

    An explanation names volumes that fail few rules, the closest in size first. Volumes of one rest fail the same
    rules, apart from that on size, so that of these only the next smaller and the next larger ones are named. A
    remedy may give a claim the size of any volume; then it takes the first volumes of that size.
    """
    claims, most = len(sizes), NEAR_ON_NODE + len(sizes)
    for stacks in _stacks(outlines).values():
        close = {id(it) for size in sizes for it in _closest(stacks, size, most)}
        for stack in stacks:
            yield from _first(stack, most if id(stack) in close else claims)


def for_decision(outlines: Iterable[VolumeOutline], *, sizes: Sequence[int]) -> Iterator[str]:
    """The names of enough volumes to decide about claims of these sizes, given those of their classes.

    A claim takes the smallest volume that fits. Of volumes that differ only in size and name, each claim therefore
    takes one of the first few from its own size on: of as many as there are claims.
    """
    claims = len(sizes)
    for stacks in _stacks(outlines).values():
        kept = {id(it): it for size in sizes for it in _at_least(stacks, size, claims)}
        for stack in kept.values():
            yield from _first(stack, claims)


def _closest(stacks: Sequence[Stack], size: int, most: int) -> Iterator[Stack]:
    """Those that hold the next smaller and the next larger volumes, so many of each."""
    yield from _at_least(stacks, size, most)
    known = sorted((it for it in stacks if it[0].size is not None and it[0].size <= size), key=_size, reverse=True)
    yield from _until(most, known, size)


def _at_least(stacks: Sequence[Stack], size: int, most: int) -> Iterator[Stack]:
    """Those that hold the smallest volumes of at least this size, so many; an unreadable size is for the rules to
    judge."""
    yield from (it for it in stacks if it[0].size is None)
    known = sorted((it for it in stacks if it[0].size is not None and it[0].size >= size), key=_size)
    yield from _until(most, known, size)


def _until(most: int, stacks: Iterable[Stack], size: int) -> Iterator[Stack]:
    """As many as hold so many volumes for certain, and all others of the size of the last."""
    certain, last = 0, None
    for stack in stacks:
        if certain >= most and stack[0].size != last:
            return
        yield stack
        last = stack[0].size
        # Sizes here are rounded up: what just equals the claim may be smaller by part of a byte.
        certain += len(stack) if last != size else 0


def _size(stack: Stack) -> int:
    return stack[0].size or 0


def _stacks(outlines: Iterable[VolumeOutline]) -> dict[str, list[Stack]]:
    """By the rest of their volumes."""
    alike: dict[tuple[str, str | None], Stack] = {}
    for outline in outlines:
        alike.setdefault((outline.rest, outline.capacity), []).append(outline)
    stacks: dict[str, list[Stack]] = {}
    for (rest, _), stack in alike.items():
        stacks.setdefault(rest, []).append(stack)
    return stacks


def _first(stack: Stack, most: int) -> list[str]:
    return sorted(it.key for it in stack)[:most]
