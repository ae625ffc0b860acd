"""The volumes that an explanation has to read: of volumes that differ only in their names, a few are enough.

Rules, scores and remedies read a volume's size, its name (to break ties) and the rest of its manifest. Of volumes
with equal size and rest, only as many are needed as a decision may take, or an explanation may name.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from volsched.log.reads.volume_outlines import VolumeOutline
from volsched.questions.explain.survey import NEAR_ANYWHERE, NEAR_ON_NODE

Affinity = str | None
"""Of a volume, as its manifest has it: equal ones are reached from the same nodes."""
Stack = list[VolumeOutline]
"""Volumes with equal size and rest."""


def nearest_anywhere(outlines: Iterable[VolumeOutline], *, sizes: Sequence[int]) -> Iterator[str]:
    """The names of enough volumes to say which of all come nearest to claims of these sizes, wherever they are.

    An explanation names volumes that fail few rules, the closest in size first. Volumes of one rest fail the same
    rules, apart from those on size and place.
    """
    for stacks in _stacks(outlines, by_place=False).values():
        for stack in {id(it): it for size in sizes for it in _closest(stacks, size, NEAR_ANYWHERE)}.values():
            yield from _first(stack, NEAR_ANYWHERE)


def for_remedies(
    outlines: Iterable[VolumeOutline],
    *,
    sizes: Sequence[int],
    judged: Callable[[Affinity], bool],
    others: int = 0,
) -> Iterator[str]:
    """The names of enough volumes to say why a pod with claims of these sizes fits nowhere, and what would help.

    `judged`: whether a node that is judged with all its reasons reaches volumes of this affinity. Of these, the
    next smaller and the next larger ones are named. A remedy may give a claim the size of any volume; then it
    takes the first volumes of that size, on whatever node: `others` is how many of each size it may take.
    """
    most = NEAR_ON_NODE + len(sizes)
    for (_, affinity), stacks in _stacks(outlines, by_place=True).items():
        near = judged(affinity)
        close = {id(it) for size in sizes for it in _closest(stacks, size, most)} if near else set()
        # What can be named on a judged node must be there even where no claim may take it.
        few = max(others, len(sizes)) if near else others
        for stack in stacks if near or others else ():
            yield from _first(stack, most if id(stack) in close else few)


def for_decision(outlines: Iterable[VolumeOutline], *, sizes: Sequence[int]) -> Iterator[str]:
    """The names of enough volumes to decide about claims of these sizes, given those of their classes.

    A claim takes the smallest volume that fits. So, of volumes that differ only in size and name, each claim takes
    one of the first few from its own size on: of as many as there are claims.
    """
    claims = len(sizes)
    for stacks in _stacks(outlines, by_place=True).values():
        kept = {id(it): it for size in sizes for it in _at_least(stacks, size, claims)}
        for stack in kept.values():
            yield from _first(stack, claims)


def _closest(stacks: Sequence[Stack], size: int, most: int) -> Iterator[Stack]:
    """The stacks with the next smaller and the next larger volumes, at least `most` of each."""
    yield from _at_least(stacks, size, most)
    known = sorted((it for it in stacks if it[0].size is not None and it[0].size <= size), key=_size, reverse=True)
    yield from _until(most, known, size)


def _at_least(stacks: Sequence[Stack], size: int, most: int) -> Iterator[Stack]:
    """The stacks with the smallest volumes of at least this size, `most` of them; and unreadable sizes, which the
    rules judge."""
    yield from (it for it in stacks if it[0].size is None)
    known = sorted((it for it in stacks if it[0].size is not None and it[0].size >= size), key=_size)
    yield from _until(most, known, size)


def _until(most: int, stacks: Iterable[Stack], size: int) -> Iterator[Stack]:
    """The first stacks that certainly have `most` volumes, and all others of the last one's size."""
    certain, last = 0, None
    for stack in stacks:
        if certain >= most and stack[0].size != last:
            return
        yield stack
        last = stack[0].size
        # Sizes here are rounded up: a volume of equal size may be smaller than the claim by a fraction of a byte.
        certain += len(stack) if last != size else 0


def _size(stack: Stack) -> int:
    return stack[0].size or 0


def _stacks(outlines: Iterable[VolumeOutline], *, by_place: bool) -> Mapping[tuple[str, Affinity], list[Stack]]:
    """By the rest of their volumes, and by their affinity where places are told apart."""
    alike: dict[tuple[str, Affinity, str | None], Stack] = {}
    for outline in outlines:
        key = outline.rest, outline.affinity if by_place else None, outline.capacity
        alike.setdefault(key, []).append(outline)
    stacks: dict[tuple[str, Affinity], list[Stack]] = {}
    for (rest, affinity, _), stack in alike.items():
        stacks.setdefault((rest, affinity), []).append(stack)
    return stacks


def _first(stack: Stack, most: int) -> list[str]:
    return sorted(it.key for it in stack)[:most]
