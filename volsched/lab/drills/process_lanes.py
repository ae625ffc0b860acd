"""Records the states of the processes of a drill: a lane for each process, a span for each state."""

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

    def observe(self, now: float) -> None:
        if now - self._looked < EVERY_MS:
            return
        self._looked = now
        seen = self.stack.published()
        for it in seen.instances if seen is not None else ():
            if it.condition is not Condition.DONE:
                self._note(it, now)

    def lanes(self, end: float) -> list[Lane]:
        lanes = []
        for name, changes in self._changes.items():
            ends = [at for at, _ in changes[1:]] + [end]
            spans = [LaneSpan(begin=at, end=to, state=it) for (at, it), to in zip(changes, ends, strict=True)]
            lanes.append(Lane(name=name, spans=spans))
        return lanes

    def _note(self, service: ServiceState, now: float) -> None:
        pid = service.process.pid if service.process is not None else None
        state = _state(service)
        before = self._pids.get(service.name)
        if state == UP and before is not None and before != pid:
            # Another process: it was down between two polls, however soon it was healthy.
            self._change(service.name, now, STARTS)
        self._pids[service.name] = pid
        self._change(service.name, now, state)

    def _change(self, name: str, now: float, state: str) -> None:
        changes = self._changes.setdefault(name, [])
        if not changes or changes[-1][1] != state:
            changes.append((now, state))


def _state(service: ServiceState) -> str:
    if service.process is None or service.condition is Condition.STOPPED:
        return DOWN
    return UP if service.condition is Condition.HEALTHY else STARTS
