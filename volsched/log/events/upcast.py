"""Reading old events with today's eyes: pure functions from one schema number of a type to the next.

Stored events are never rewritten; what a reader gets is always of the catalogue's current schema.
"""

from collections.abc import Callable, Mapping
from typing import Any

Data = dict[str, Any]
Upcasters = Mapping[tuple[str, int], Callable[[Data], Data]]

UPCASTERS: Upcasters = {}
"""(type, schema) → data of the next schema. Empty while every type is still at its first."""


def upcast(type_: str, schema: int, data: Data, *, upcasters: Upcasters = UPCASTERS) -> Data:
    """The data brought forward step by step; a type or schema we do not know is passed through as it is."""
    step = upcasters.get((type_, schema))
    while step is not None:
        schema += 1
        data = step(data)
        step = upcasters.get((type_, schema))
    return data
