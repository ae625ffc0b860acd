"""Our own system for live scenarios: the API on a port, and time that passes only while it rests.

Resting for ten seconds takes as long as the work that is due in them, so a hundred scenarios take about a minute,
and their outcome does not depend on how busy the machine is.
"""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from volsched.api.listener import Server, address, listen, serve
from volsched.log.database import Database
from volsched.log.migrations import scratch_store
from volsched.runtime.clock import MILLISECOND, SECOND
from volsched.runtime.system import System, embedded

BEGINS = 1_790_000_000 * SECOND
"""Any time would do; it is fixed so that two runs are alike."""
ROUND = 10 * MILLISECOND
"""The duration of one round of the system on the scenario's clock."""
STEPS_MOST = 200_000
END_SECONDS = 20


class RestlessError(Exception):
    """The system does not come to rest: it repeatedly finds work at the same moment."""


@dataclass(slots=True)
class PlayedSystem:
    """A whole system without node agent, as the reference was played without kubelets."""

    url: str
    system: System
    now: int = BEGINS

    def rest(self, seconds: float) -> None:
        self.until(lambda: False, seconds)

    def until(self, reached: Callable[[], bool], seconds: float) -> bool:
        end = self.now + int(seconds * SECOND)
        for _ in range(STEPS_MOST):
            if reached():
                return True
            progress = self.system.step(self.now)
            if self.now >= end and not progress:
                return False
            self._pass(progress, end)
        raise RestlessError(f"still at work after {STEPS_MOST} rounds within {seconds} s of its own time")

    def _pass(self, progress: int, end: int) -> None:
        """Advance the clock: by a round if there was work, else to the next due time."""
        due = self.now if progress else self.system.next_due()
        ahead = end if due is None else max(due, self.now + ROUND)
        self.now = min(ahead, max(end, self.now))


@contextmanager
def played_system(database: Database | None = None) -> Iterator[PlayedSystem]:
    """A system on its own store in a temporary directory, or on a given empty one."""
    with ExitStack() as stack:
        store = database or stack.enter_context(scratch_store())
        listening = stack.enter_context(listen("127.0.0.1", 0))
        numbers = itertools.count(1)
        system = embedded(
            store,
            owner="live",
            other_agents=True,
            clock=lambda: played.now,
            new_id=lambda: f"{next(numbers):08x}-0000-4000-8000-000000000000",
            stepwise=False,
        )
        stack.callback(system.close)
        played = PlayedSystem(address(listening), system)
        started: list[Server] = []
        serving = threading.Thread(
            target=lambda: serve(
                store,
                listening,
                clock=lambda: played.now,
                actor="api/live",
                zonal_upgrade=True,
                started=started.append,
            ),
            name="live-server",
            daemon=True,
        )
        serving.start()
        try:
            yield played
        finally:
            for server in started:
                server.should_exit = True
            serving.join(END_SECONDS)
