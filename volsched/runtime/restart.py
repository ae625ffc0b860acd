"""A system that stands up again: made anew when what it remembers may no longer be so.

That is after the store has failed it, and after the machine's clock was set back: whatever it has put off, a pod,
a sweep, a lease to be renewed, it would else leave until that time comes again.
"""

from collections.abc import Callable
from dataclasses import dataclass

from volsched.log.errors import StoreError
from volsched.runtime.clock import SECOND
from volsched.runtime.system import System

STEP_BACK = 10 * SECOND
"""Less than that is only late, by as much."""


@dataclass(slots=True)
class RestartingSystem:
    """What is stepped in place of the system itself."""

    make: Callable[[], System]
    system: System | None = None
    failed: bool = False
    _last: int = 0
    """The time of the step before."""

    def step(self, now: int) -> int:
        went_back, self._last = now < self._last - STEP_BACK, now
        if self.failed or went_back:
            # What it holds, its leases above all, would keep the next one waiting until it runs out.
            self.close()
        if self.system is None:
            self.system, self.failed = self.make(), False
        try:
            return self.system.step(now)
        except StoreError:
            self.failed = True
            raise

    def close(self) -> None:
        if self.system is not None:
            self.system.close()
            self.system = None
