"""Figures of benchmarks: their history file, their growth with a size, and changes since earlier runs."""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from volsched.lab.bench.plot import label_of

FACTOR = 1.5
"""A change is reported from this factor on: figures vary by a third between runs on a shared machine."""
OF_THE_RUN = ("at", "load")
"""The fields of a line besides the row and the name of its benchmark."""


class FigureHistoryError(Exception):
    """The file is not one of ours; the message says where."""


def append_history(file: Path, bench: str, rows: Sequence[Mapping[str, Any]], *, at: str, load: float) -> None:
    """Append a line for each row: the row, the time, and the load of the machine."""
    with file.open("a", encoding="utf-8") as written:
        for row in rows:
            written.write(json.dumps({"bench": bench, "at": at, "load": load, **row}) + "\n")


def changes(file: Path, bench: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Figures that are far from the median of earlier runs, for better or worse."""
    earlier = _figures_in(file, bench)
    for row in rows:
        for name, value in _figures_of(row):
            known = earlier.get((label_of(row), name))
            if known is None or value <= 0 or (usual := median(known)) <= 0:
                continue
            if not 1 / FACTOR < value / usual < FACTOR:
                runs = f"{len(known)} earlier run" + ("s" if len(known) > 1 else "")
                what = f"{label_of(row)}: {name.replace('_', ' ')}"
                yield f"{what} is {value:.4g}, {value / usual:.2f} times the median of {runs}"


def _figures_in(file: Path, bench: str) -> Mapping[tuple[str, str], list[float]]:
    figures: dict[tuple[str, str], list[float]] = defaultdict(list)
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            is_same = row.pop("bench") == bench
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise FigureHistoryError(f"line {number} of {file} is no row of a benchmark") from error
        if is_same:
            row = {name: value for name, value in row.items() if name not in OF_THE_RUN}
            for name, value in _figures_of(row):
                figures[label_of(row), name].append(value)
    return figures


def _figures_of(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The figures of a row without exponents, which vary by chance where they are near 0."""
    for name, value in row.items():
        if isinstance(value, float) and "over_" not in name and name != "growth":
            yield name, value


# How a figure grows with a size: the exponent between two measurements; 1 is in proportion, 0 not at all.


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
    """The fields that two compared rows must have in common: all settings except this size."""
    figure: Callable[[Grown], float]
    """Something that grows: a time, never a rate."""


def with_exponents(rows: Sequence[Grown], *axes: SizeAxis[Grown]) -> list[Grown]:
    """The rows with their exponents; each row is compared with the next smaller one."""
    return [replace(row, **{axis.column: _exponent_of(row, rows, axis) for axis in axes}) for row in rows]


def exponent(small: tuple[float, float], large: tuple[float, float]) -> float | None:
    """The exponent of two measurements, each a size and a figure; None where they determine none."""
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
