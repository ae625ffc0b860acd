"""The state of the processes of a drill: a lane for each of them, from one change to the next."""

from dataclasses import dataclass, field

from volsched.lab.drills.timeline import Lane, LaneSpan
from volsched.lab.stack.handle import Stack
from volsched.lab.stack.states import Condition, ServiceState

EVERY_MS = 100.0
"""Between two polls: each reads a file of the supervisor's."""
UP, STARTS, DOWN = "up", "starts", "down"


@dataclass(slots=True)
class LaneWatch:
    stack: Stack
    _looked: float = -EVERY_MS
    _changes: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    _pids: dict[str, int | None] = field(default_factory=dict)

    def look(self, now: float) -> None:
        if now - self._looked < EVERY_MS:
            return
        self._looked = now
        seen = self.stack.seen()
        for it in seen.instances if seen is not None else ():
            if it.condition is not Condition.DONE:
                self._note(it, now)

    def lanes(self, end: float) -> list[Lane]:
        found = []
        for name, changes in self._changes.items():
            ends = [at for at, _ in changes[1:]] + [end]
            spans = [LaneSpan(begin=at, end=to, state=it) for (at, it), to in zip(changes, ends, strict=True)]
            found.append(Lane(name=name, spans=spans))
        return found

    def _note(self, seen: ServiceState, now: float) -> None:
        pid = seen.process.pid if seen.process is not None else None
        state = _state(seen)
        before = self._pids.get(seen.name)
        if state == UP and before is not None and before != pid:
            # Another process: it was down between two polls, however soon it was healthy.
            self._change(seen.name, now, STARTS)
        self._pids[seen.name] = pid
        self._change(seen.name, now, state)

    def _change(self, name: str, now: float, state: str) -> None:
        changes = self._changes.setdefault(name, [])
        if not changes or changes[-1][1] != state:
            changes.append((now, state))


def _state(seen: ServiceState) -> str:
    if seen.process is None or seen.condition is Condition.STOPPED:
        return DOWN
    return UP if seen.condition is Condition.HEALTHY else STARTS
