"""How a figure grows with a size: the exponent between two measurements; 1 is in proportion, 0 not at all."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Grown = TypeVar("Grown", bound="DataclassInstance")


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeAxis(Generic[Grown]):
    """One of the sizes that rows of a benchmark differ in."""

    column: str
    """The field of a row that takes the exponent; None where no smaller row is like it."""
    size: Callable[[Grown], float]
    alike: Callable[[Grown], object]
    """What two rows must have in common to be compared: all that was measured, but for this size."""
    figure: Callable[[Grown], float]
    """Something that grows: a time, never a rate."""


def with_exponents(rows: Sequence[Grown], *axes: SizeAxis[Grown]) -> list[Grown]:
    """In any order; each row is compared with the next smaller one."""
    return [replace(row, **{axis.column: _exponent_of(row, rows, axis) for axis in axes}) for row in rows]


def exponent(small: tuple[float, float], large: tuple[float, float]) -> float | None:
    """Of two measurements, each a size and a figure; None where they tell nothing."""
    (size, figure), (larger, grown) = small, large
    if min(size, figure, grown) <= 0 or larger <= size:
        return None
    return math.log(grown / figure) / math.log(larger / size)


def _exponent_of(row: Grown, rows: Sequence[Grown], axis: SizeAxis[Grown]) -> float | None:
    kind, size = axis.alike(row), axis.size(row)
    smaller = [other for other in rows if axis.alike(other) == kind and axis.size(other) < size]
    if not smaller:
        return None
    before = max(smaller, key=axis.size)
    return exponent((axis.size(before), axis.figure(before)), (size, axis.figure(row)))
