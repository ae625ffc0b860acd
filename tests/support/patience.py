"""How tests wait for other processes and threads: for a condition, never for an amount of time.

Nothing here can be woken by another process, so it looks again and again, with a patience that ends when nothing
moves any more (volsched.runtime.clock).
"""

import threading
from collections.abc import Callable

from volsched.runtime.clock import Patience

PATIENCE_SECONDS = 120.0
"""Without any progress. Far more than anything takes that does not hang."""
HANG_SECONDS = 600
"""For a call that blocks and can only be given a limit: when to call it hung, not how fast it has to be."""
LOOK_SECONDS = 0.02


def wait_until(
    condition: Callable[[], object],
    *,
    progress: Callable[[], object] = lambda: None,
    told: Callable[[], object] | None = None,
    look: float = LOOK_SECONDS,
) -> None:
    """Wait for a condition of others; the error says how far it came, or what `told` has to say."""
    never, patience = threading.Event(), Patience(PATIENCE_SECONDS)
    while not condition():
        assert not patience.is_over(progress()), f"it does not come true: {(told or progress)()}"
        never.wait(look)
