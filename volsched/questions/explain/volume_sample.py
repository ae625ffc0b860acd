"""Which free volumes an explanation has to read: volumes that differ in their names only can stand for each other.

Rules, scores and remedies look at a volume's size, its name (to break ties) and the rest of its manifest. So of
volumes with one size and one rest, no more are ever told apart than a decision may take, or an explanation name.
"""

from collections.abc import Iterable, Iterator, Sequence

from volsched.log.reads.free_volumes import VolumeOutline
from volsched.questions.explain.survey import NEAR_ON_NODE

Alike = dict[tuple[str | None, str], list[VolumeOutline]]
"""By capacity and rest."""


def for_remedies(outlines: Iterable[VolumeOutline], *, claims: int) -> Iterator[str]:
    """The names of enough volumes to say why a pod with so many claims fits nowhere, and what would help.

    Whatever a remedy asks for, and however close other volumes come, nothing else would be named.
    """
    for alike in _alike(outlines).values():
        yield from _first(alike, NEAR_ON_NODE + claims)


def for_decision(outlines: Iterable[VolumeOutline], *, sizes: Sequence[int]) -> Iterator[str]:
    """The names of enough volumes to decide about claims of these sizes, given those of their classes.

    A claim takes the smallest volume that fits, so that of volumes that differ in size and name the claims take
    none beyond the first few: as many as there are claims, each counted from its own size.
    """
    by_rest: dict[str, list[list[VolumeOutline]]] = {}
    for (_, rest), alike in _alike(outlines).items():
        by_rest.setdefault(rest, []).append(alike)
    most = len(sizes)
    for stacks in by_rest.values():
        # An unreadable size is for the rules to judge.
        kept = {id(it): it for it in stacks if it[0].size is None}
        of_size: dict[int, list[list[VolumeOutline]]] = {}
        for it in stacks:
            if it[0].size is not None:
                of_size.setdefault(it[0].size, []).append(it)
        for wanted in sizes:
            certain = 0
            for size in sorted(size for size in of_size if size >= wanted):
                kept |= {id(it): it for it in of_size[size]}
                # Sizes here are rounded up: what just equals the claim may be smaller by part of a byte.
                certain += sum(map(len, of_size[size])) if size > wanted else 0
                if certain >= most:
                    break
        for alike in kept.values():
            yield from _first(alike, most)


def _alike(outlines: Iterable[VolumeOutline]) -> Alike:
    found: Alike = {}
    for outline in outlines:
        found.setdefault((outline.capacity, outline.rest), []).append(outline)
    return found


def _first(alike: list[VolumeOutline], most: int) -> list[str]:
    return sorted([it.key for it in alike])[:most]
