"""What streams became in this process's own last transactions, so that the next one need not read them again.

It is believed only under the head lock and only as far as the log agrees: it says at which event, position and
hash, it was right, and what others have appended since is forgotten. A transaction that was rolled back, or a log
that is another one, has no such event, and then everything is forgotten.
"""

from dataclasses import dataclass, field

from sqlalchemy import Connection, bindparam, select

from volsched.log import tables
from volsched.log.events.fold import BindingState, ObjectState, State

MOST = 10_000
"""Streams; a state takes a few kilobytes."""
MOST_BEHIND = 500
"""Events of others after which beginning anew is quicker than finding out which streams they touched."""

_events = tables.events
_SINCE = (
    select(_events.c.position, _events.c.hash, _events.c.stream)
    .where(_events.c.position >= bindparam("position"))
    .order_by(_events.c.position)
    .limit(MOST_BEHIND + 1)
)


Place = tuple[int, bytes]
"""An event of the log: its position and its hash."""


@dataclass(slots=True)
class Recent:
    _at: Place = (0, b"")
    _states: dict[str, State] = field(default_factory=dict)

    def catch_up(self, connection: Connection, head: Place) -> None:
        """Agree with the log, whose last event is this one."""
        if self._at == head:
            return
        if self._states:
            since = connection.execute(_SINCE, {"position": self._at[0]}).all()
            known = bool(since) and (since[0].position, bytes(since[0].hash)) == self._at
            if known and len(since) <= MOST_BEHIND:
                for event in since[1:]:
                    self._states.pop(event.stream, None)
            else:
                self._states.clear()
        self._at = head

    def get(self, stream: str) -> State | None:
        return self._states.get(stream)

    def keep(self, began: Place, ended: Place, states: dict[str, State]) -> None:
        """What a transaction has read and written; from which event to which it leads, if it is committed."""
        if self._at != began:
            # Its lock was taken from it, and another one is at work.
            return
        self._at = ended
        for stream, state in states.items():
            # Taken out first, so that what was used last is dropped last.
            self._states.pop(stream, None)
            # Of bindings that have ended nobody asks again, and there is no end to them.
            opened = isinstance(state, BindingState) and state.open
            if opened or (isinstance(state, ObjectState) and state.manifest is not None):
                self._states[stream] = state
        while len(self._states) > MOST:
            del self._states[next(iter(self._states))]
