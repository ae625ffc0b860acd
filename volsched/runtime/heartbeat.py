"""The sign of life of a process: a file that is touched when a step has ended without an error.

For the health check beside it. A thread that merely lives, or a loop whose every step fails, touches nothing. Not
a row in the store: hundreds of processes would write there for ever to say that nothing has happened.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from volsched.runtime.clock import SECOND

EVERY = 1 * SECOND


@dataclass(slots=True)
class Heartbeat:
    file: Path | None
    """None: nobody wants to know."""
    _next: int = 0

    def beat(self, now: int) -> None:
        """At most once a second, however short the steps are."""
        if self.file is not None and now >= self._next:
            self._next = now + EVERY
            # A disk that is full is the health check's to tell; the process itself does what it is for.
            with suppress(OSError):
                self.file.touch()

    def around(self, step: Callable[[int], int]) -> Callable[[int], int]:
        """The step, followed by a beat where it has raised nothing. What an earlier process left says nothing."""
        if self.file is not None:
            self.file.unlink(missing_ok=True)

        def beating(now: int) -> int:
            progress = step(now)
            self.beat(now)
            return progress

        return beating
