"""The lives of a name: objects that bore it one after the other, each with a uid of its own."""

from typing import NamedTuple


class ObjectLife(NamedTuple):
    """An object from its creation to its deletion."""

    uid: str
    born: int
    """Position of its creation; where that is archived, of its last write before."""
    ended_at: int | None = None
    """When it was deleted, in microseconds; None: it lives."""
