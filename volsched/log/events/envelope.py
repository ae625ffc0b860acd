"""The envelope of an event, its canonical bytes, and the hash that links it to the one before.

The hash covers every column of the row, so an edited, inserted, deleted or reordered row breaks the chain at its
position. Canonical bytes make it independent of who wrote the JSON.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

GENESIS = bytes(32)
"""What stands for the hash before the first event."""


class Event(NamedTuple):
    """One row of the log, in the order of its columns. `data` is canonical JSON text."""

    position: int
    stream: str
    version: int
    type: str
    schema: int
    at: int
    """Microseconds since 1970, never less than that of the event before."""
    actor: str
    cause: int | None
    """Position of the event that led to this one."""
    binding: str | None
    data: str
    hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event that has no place in the log yet."""

    stream: str
    type: str
    data: Mapping[str, Any] = field(default_factory=dict)
    cause: int | None = None
    binding: str | None = None


def canonical(data: Any) -> str:
    """The one spelling of a JSON value: sorted keys, no blanks, no escapes that are not needed.

    Raises TypeError for what could not be read back as it was, such as an integer beyond 64 bits.
    """
    return orjson.dumps(data, option=orjson.OPT_SORT_KEYS).decode()


def is_finite(data: Any) -> bool:
    """Whether every number is one that JSON has; `canonical` makes null of others, which would remove a field."""
    if isinstance(data, Mapping):
        return all(map(is_finite, data.values()))
    if isinstance(data, list | tuple):
        return all(map(is_finite, data))
    return not isinstance(data, float) or math.isfinite(data)


def link(
    previous: bytes,
    position: int,
    stream: str,
    version: int,
    type_: str,
    schema: int,
    at: int,
    actor: str,
    cause: int | None,
    binding: str | None,
    data: str,
) -> bytes:
    """The hash of an event whose predecessor has hash `previous`.

    Fields are set apart by a control character that none of them may hold, and None is told from any text.
    """
    text = (
        f"{position}\x1f{stream}\x1f{version}\x1f{type_}\x1f{schema}\x1f{at}\x1f{actor}\x1f"
        f"{'' if cause is None else cause}\x1f{'' if binding is None else '=' + binding}\x1f{data}"
    )
    return hashlib.sha256(previous + text.encode()).digest()


def links_to(event: Event, previous: bytes) -> bool:
    return event.hash == link(previous, *event[:-1])
