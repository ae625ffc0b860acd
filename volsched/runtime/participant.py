"""What takes part in a running system: it is told what has changed, and does a batch of work at a time."""

from collections.abc import Iterable
from typing import Protocol


class Part(Protocol):
    """A loop without a thread of its own (`engine.system` steps it)."""

    def update(self, streams: Iterable[str], now: int) -> None:
        """Take note of what has changed in the world; at first, of everything there is."""
        ...

    def step(self, now: int) -> int:
        """Do a batch of work; answers how much was done, 0 where there was nothing to do."""
        ...

    def next_due(self) -> int | None:
        """When there is something to do again although nothing has changed; None: not before something changes."""
        ...
