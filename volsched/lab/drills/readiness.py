"""How promptly bindings go on after a kill: from the first process that is ready to their next step.

A process is ready when it says so in its log, not when somebody who asks now and then has found it healthy: that
would be seconds later, and flatter the figure. Where another process of its service lives on, it is ready at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path

from volsched.lab.drills.process_work import is_slow
from volsched.lab.drills.timeline import Bar
from volsched.lab.stack.handle import Stack

HANDS = ("scheduler", "controller", "worker")
"""Who takes a binding's next step; the API never does."""
READY = b"at work until"
"""What each of them says."""


@dataclass(slots=True)
class Readiness:
    stack: Stack
    position: int | None = None
    """Of the log, when all had been killed."""
    killed_at: float = 0
    at: float | None = None
    """When the first process was ready."""
    _logs: dict[Path, int] = field(default_factory=dict)
    """The logs of those that were killed, and how long they were."""

    def note_kill(self, names: Iterable[str], *, position: int, now: float) -> None:
        """Call it before these instances or services are killed."""
        seen, wanted = self.stack.seen(), set(names)
        hands = [it for it in seen.instances if it.service in HANDS] if seen else []
        victims = [it for it in hands if wanted & {it.name, it.service}]
        if not victims:
            return
        if self.position is None:
            self.killed_at = now
        if self.at is None:
            self.position = position
        services = {it.service for it in victims}
        if any(it.service in services and it not in victims for it in hands):
            self.at = now
        for it in victims:
            log = self.stack.directory / "logs" / f"{it.name}.log"
            self._logs[log] = log.stat().st_size if log.exists() else 0

    def note_killed(self, position: int) -> None:
        """Call it afterwards, where the store answers: until then they may have taken a step."""
        if self._logs and self.at is None:
            self.position = position

    def look(self, now: float) -> None:
        if self.at is None and any(_says_ready(log, begin) for log, begin in self._logs.items()):
            self.at = now

    def facts(self, bars: Sequence[Bar], stolen: frozenset[str]) -> Mapping[str, str]:
        """Without bindings that wait for slow storage: they stand still however well everybody is."""
        if self.at is None:
            return {}
        moved = [it for it in bars if it.moved is not None and not is_slow(it.pod)]
        after = f"ready {self.at - self.killed_at:,.0f} ms after the kill"
        told = {
            "next step after a process was ready, p50 / p99": [it for it in moved if it.binding not in stolen],
            "the same where a volume was stolen, p50 / p99": [it for it in moved if it.binding in stolen],
        }
        return {what: f"{self._shown(them)}; {after}" for what, them in told.items() if them}

    def _shown(self, bars: Sequence[Bar]) -> str:
        ready = self.at or 0.0
        waits = sorted(max((it.moved or 0.0) - ready, 0.0) for it in bars)
        p50, p99 = (waits[max(ceil(share * len(waits)) - 1, 0)] for share in (0.5, 0.99))
        return f"{p50:,.0f} ms / {p99:,.0f} ms of {len(waits)} bindings"


def _says_ready(log: Path, begin: int) -> bool:
    try:
        with log.open("rb") as file:
            file.seek(begin)
            return READY in file.read()
    except OSError:
        return False
