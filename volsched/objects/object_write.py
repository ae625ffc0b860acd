"""The write of one object: its command, what is decided before the log's lock is taken, and the answer to it.

A write is decided on the object as it is under the log's lock, so a small patch is applied to what is then there
and needs no second try. What takes longer is decided beforehand (`prepare`), on the objects as they were read,
with their versions as the precondition of the command: nobody waits for somebody else's large object.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from volsched.kube.limits import holds_more
from volsched.kube.manifest import metadata
from volsched.kube.merge_patch import merged
from volsched.log.batch import load_states
from volsched.log.commands import Command, Done, Precondition, version_of
from volsched.log.database import Database
from volsched.log.events.decision import Decision, States
from volsched.log.events.fold import ObjectState, State, evolve, versioned
from volsched.log.events.streams import stream_of
from volsched.objects.rules.admission_chain import AdmittedWrite, Origin
from volsched.objects.rules.object_events import is_creation, is_deletion

Decide = Callable[[States], AdmittedWrite]
MOST_VALUES = 2_000
"""That an object may hold to be worked on under the log's lock: several times those of an ordinary pod."""


@dataclass(frozen=True, slots=True)
class Author:
    """Who writes, when (RFC 3339), from where, and why."""

    actor: str
    now: str
    origin: Origin = Origin.CONTROLLER
    reason: str | None = None


class Applied(StrEnum):
    CREATED = "created"
    CONFIGURED = "configured"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class WrittenObject:
    manifest: dict[str, Any]
    """The object as the write left it; one that is gone, as it was last."""
    gone: bool = False


class HeavyError(Exception):
    """The object is too large to be worked on under the log's lock; `prepare` the write first."""


class ObjectWrite:
    """A command about one object, and what came of it.

    What the command found and did is noted when it is decided, for the answer; it counts once it is committed.
    """

    def __init__(
        self,
        kind: str,
        key: str,
        author: Author,
        decide: Decide,
        *,
        beside: tuple[str, ...] = (),
        reworks: bool = False,
    ) -> None:
        """`beside`: other streams that are read or written. `reworks`: what it costs to decide grows with the
        object that is there."""
        self.stream = stream_of(kind, key)
        self.admitted = AdmittedWrite(None)
        self.found: State | None = None
        self.prepared = False
        self._decide, self._reason, self._reworks = decide, author.reason, reworks
        self.command = Command(actor=author.actor, streams=(self.stream, *beside), decide=self._decided)

    def prepare(self, database: Database) -> None:
        """Decide on what is there now, outside the lock; raises what the rules have against it.

        The command is refused with ConflictError if anything that was read has changed by then.
        """
        with database.read() as connection:
            states, _ = load_states(database, connection, self.command.streams)
        admitted = self._decide(states)

        def decided(states: States) -> Decision:
            return self._note(states, admitted)

        self.prepared = True
        objects = {stream: version_of(states.get(stream)) for stream in self.command.streams}
        self.command = replace(self.command, decide=decided, precondition=Precondition(objects=objects))

    def try_out(self, database: Database) -> WrittenObject:
        """What it would come to; nothing is written."""
        with database.read() as connection:
            states, _ = load_states(database, connection, self.command.streams)
        self._note(states, self._decide(states))
        return self._answer(None)

    def written(self, done: Done) -> WrittenObject:
        """After the commit. The object's event is the command's first."""
        return self._answer(done.position - done.events + 1)

    @property
    def state(self) -> State | None:
        """The object's state as the write leaves it, but for the version that the log will give it."""
        event = self.admitted.event
        if event is None:
            return self.found
        return evolve(self.found, event.type, version=0, position=0, at=0, data=event.data)

    def _decided(self, states: States) -> Decision:
        found = states.get(self.stream)
        if self._reworks and isinstance(found, ObjectState) and holds_more(found.manifest, MOST_VALUES):
            raise HeavyError(self.stream)
        return self._note(states, self._decide(states))

    def _note(self, states: States, admitted: AdmittedWrite) -> Decision:
        self.found = states.get(self.stream)
        event = admitted.event
        if event is not None and self._reason is not None:
            event = replace(event, data={**event.data, "reason": self._reason})
        self.admitted = admitted._replace(event=event)
        if event is None:
            return _UNCHANGED
        applied = Applied.CREATED if is_creation(event) else Applied.CONFIGURED
        result = {"applied": applied.value, "gone": is_deletion(event)}
        return Decision(events=(event, *admitted.beside), result=result)

    def _answer(self, position: int | None) -> WrittenObject:
        found = self.found if isinstance(self.found, ObjectState) else None
        before = found.manifest if found is not None else None
        event = self.admitted.event
        if event is None:
            assert found is not None
            return WrittenObject(versioned(found))
        gone = is_deletion(event)
        after = (before if gone else merged(before or {}, event.data["patch"])) or {}
        rv = position if position is not None else found.rv if before is not None and found is not None else None
        names = {**metadata(after), **({} if rv is None else {"resourceVersion": str(rv)})}
        if gone:
            # It may be this very write that took the last of them off.
            names.pop("finalizers", None)
        return WrittenObject({**after, "metadata": names}, gone)


_UNCHANGED = Decision(result={"applied": Applied.UNCHANGED.value, "gone": False})
