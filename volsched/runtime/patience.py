"""Patience with other processes: it ends when nothing has moved for long, and not because the machine is busy.

How long something takes depends on what else the machine does, so no limit of seconds from the start is right.
Every change of what the waiting process calls progress begins the patience anew. What the machine takes from the
waiting process itself does not count either: between two looks at most `MOST_SECONDS` pass.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

MOST_SECONDS = 0.25


@dataclass(slots=True)
class Patience:
    seconds: float
    """Without any progress."""
    clock: Callable[[], float] = time.monotonic
    _spent: float = 0.0
    _progress: Any = None
    _looked: float = field(init=False)

    def __post_init__(self) -> None:
        self._looked = self.clock()

    def is_over(self, progress: object = None) -> bool:
        """To be asked with every look; `progress` must not change for ever where nothing comes of it."""
        now = self.clock()
        self._spent, self._looked = self._spent + min(now - self._looked, MOST_SECONDS), now
        if progress != self._progress:
            self._spent, self._progress = 0.0, progress
        return self._spent >= self.seconds
