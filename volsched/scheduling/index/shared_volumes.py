"""The free volumes that the nodes of one domain share, and which of them are worth trying for a pod's claims."""

from bisect import bisect_left, insort
from dataclasses import dataclass, field

Row = tuple[int, str, int]
"""Size in 10^-9 bytes, name, pool: the order in which volumes are tried."""
Sizes = tuple[tuple[int, int], ...]
"""(size, pool) in serving order; the names of volumes are no part of it."""
Shape = tuple[tuple[int, frozenset[int]], ...]
"""Size and fitting pools of each claim, in serving order: all that counts when volumes are looked for."""
SHAPES_KEPT = 256


@dataclass(frozen=True, slots=True)
class Few:
    """Enough volumes of a domain: whatever a claim gets is among them."""

    rows: tuple[Row, ...]
    names: tuple[str, ...]
    """In name order."""
    sizes: Sizes


@dataclass(slots=True, eq=False)
class Shared:
    _pools: dict[int, list[Row]] = field(default_factory=dict)
    _few: dict[Shape, Few] = field(default_factory=dict)
    """By shape, until a volume comes or goes: of many domains a decision takes from one."""

    def __bool__(self) -> bool:
        return bool(self._pools)

    def put(self, row: Row) -> None:
        insort(self._pools.setdefault(row[2], []), row)
        self._few.clear()

    def take(self, row: Row) -> None:
        rows = self._pools[row[2]]
        remove(rows, row)
        if not rows:
            del self._pools[row[2]]
        self._few.clear()

    def near(self, size: int, most: int) -> list[Row]:
        """Of every pool those closest to a size, on either side."""
        found: list[Row] = []
        for rows in self._pools.values():
            place = bisect_left(rows, (size,))
            found += rows[max(place - most, 0) : place + most]
        return found

    def few(self, shape: Shape) -> Few:
        """Of a domain's volumes no claim needs to look past as many as there are claims: the others take fewer."""
        known = self._few.get(shape)
        if known is None:
            if len(self._few) >= SHAPES_KEPT:
                self._few.clear()
            known = self._few[shape] = self._found(shape)
        return known

    def _found(self, shape: Shape) -> Few:
        found: list[Row] = []
        for pool, rows in self._pools.items():
            end = 0
            # From the smallest size to the largest, each adds what lies beyond the last one's share.
            for wanted in sorted([size for size, fitting in shape if pool in fitting]):
                start = bisect_left(rows, (wanted,))
                found += rows[max(start, end) : start + len(shape)]
                end = start + len(shape)
        found.sort()
        return Few(
            rows=tuple(found),
            names=tuple(sorted([name for _, name, _ in found])),
            sizes=tuple([(size, pool) for size, _, pool in found]),
        )


def remove(rows: list[Row], row: Row) -> None:
    """Out of rows in order."""
    del rows[bisect_left(rows, row)]
