"""Pods that a fault has delayed, with or without a binding in flight: what their owners notice.

A binding counts only once it is planned. A stalled scheduler plans none, so that a stall of many pods looks like
the recovery of a few bindings.
"""

from collections.abc import Sequence
from math import ceil

from volsched.lab.drills.process_work import is_slow
from volsched.lab.drills.timeline import Bar

DELAYED_MS = 1_000.0
"""A pod is delayed if it waited for its node longer than usual by more than that."""
USUAL_SHARE = 0.9


def pod_delays(bars: Sequence[Bar], fault: float) -> list[float]:
    """By how much each pod without a node at the fault, or created later, waited longer than usual (milliseconds).

    Usual is the wait of nine of ten pods that had their node before the fault; without any, the shortest wait of
    all. Pods whose storage is slow on purpose are left out.
    """
    waits = {it.pod: (it.ended, it.ended - it.created) for it in bars if _counts(it) and it.ended is not None}
    before = sorted(wait for ended, wait in waits.values() if ended <= fault)
    after = [wait for ended, wait in waits.values() if ended > fault]
    if not after:
        return []
    usual = before[ceil(USUAL_SHARE * len(before)) - 1] if before else min(after)
    return sorted(wait - usual for wait in after if wait - usual > DELAYED_MS)


def _counts(bar: Bar) -> bool:
    return bar.committed and not is_slow(bar.pod)
