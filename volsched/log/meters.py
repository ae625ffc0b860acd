"""Measurements of a process about itself, kept with the store's handle to survive recreating the system."""

import threading
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

DECISION_BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
LOCK_BOUNDS = (0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
WAIT_BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)


class TimeHistogram:
    """Seconds, counted in buckets. A reader may be one observation behind."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self.sum = 0.0
        self._lock = threading.Lock()

    def observe(self, seconds: float) -> None:
        with self._lock:
            self._counts[bisect_left(self._bounds, seconds)] += 1
            self.sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bound → observations up to it, in Prometheus' form."""
        total, counts = 0, list[tuple[str, float]]()
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            counts.append((bound, total))
        return counts


@dataclass(frozen=True, slots=True)
class Meters:
    decisions: TimeHistogram = field(default_factory=lambda: TimeHistogram(DECISION_BOUNDS))
    """The time to decide one pod, whether it found a node or not."""
    head_lock: TimeHistogram = field(default_factory=lambda: TimeHistogram(LOCK_BOUNDS))
    """The time of one transaction from the lock on the log's head to the commit."""
