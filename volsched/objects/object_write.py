"""The write of one object: its command, the part decided before the log's lock is taken, and the answer.

A write is decided on the object under the log's lock, so a small patch applies to the present object and needs
no retry. Slower decisions are made beforehand (`prepare`), on the objects as they were read, with their versions
as the command's precondition: no writer waits for another writer's large object.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

from volsched.kube.kinds import KINDS
from volsched.kube.manifest import metadata
from volsched.kube.patches import merged
from volsched.kube.problems import holds_more
from volsched.kube.server_side_apply import UPDATE, FieldOwner
from volsched.log.batch import load_states
from volsched.log.commands import Command, Done, Precondition, version_of
from volsched.log.database import Database
from volsched.log.events.fold import Decision, ObjectState, State, States, evolve, versioned
from volsched.log.events.streams import stream_of
from volsched.objects.rules.admission import (
    AdmittedWrite,
    Origin,
)
from volsched.objects.rules.object_events import (
    is_creation,
    is_deletion,
)

Manifest = Mapping[str, Any]
Decide = Callable[[States], AdmittedWrite]
MOST_VALUES = 2_000
"""Values that an object may hold to be processed under the log's lock: several times those of an ordinary pod."""


@dataclass(frozen=True, slots=True)
class Author:
    """The actor, the time (RFC 3339), the origin and the reason of a write."""

    actor: str
    now: str
    origin: Origin = Origin.CONTROLLER
    reason: str | None = None
    manager: str = ""
    """The owner of the written fields, where owners are recorded; empty: the actor, without its instance."""
    subresource: str = ""

    def owner(self, kind: str, operation: str = UPDATE) -> FieldOwner:
        manager = self.manager or self.actor.partition("/")[0]
        return FieldOwner(manager, operation, KINDS[kind].api_version, self.subresource, self.now)


class Applied(StrEnum):
    CREATED = "created"
    CONFIGURED = "configured"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class WrittenObject:
    manifest: dict[str, Any]
    """The object after the write; for a deleted one, its last state."""
    gone: bool = False


class HeavyError(Exception):
    """The object is too large to be processed under the log's lock; `prepare` the write first."""


class ObjectWrite:
    """A command about one object, and its result.

    The fields set while deciding show how the write was decided. The answer is built from the log's outcome, where
    positions are final.
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
        """`beside`: other streams that are read or written. `reworks`: the cost of deciding grows with the present
        object."""
        self.stream = stream_of(kind, key)
        self.admitted = AdmittedWrite(None)
        self.stored: State | None = None
        self.prepared = False
        self._decide, self._reason, self._reworks = decide, author.reason, reworks
        self.command = Command(actor=author.actor, streams=(self.stream, *beside), decide=self._decided)

    def prepare(self, database: Database) -> None:
        """Decide on the present state, outside the lock; raises the rules' errors.

        The command is refused with ConflictError if anything it read has changed by then.
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
        """The result that the write would have; nothing is written."""
        with database.read() as connection:
            states, _ = load_states(database, connection, self.command.streams)
        self.rehearse(states)
        return _answer(self._basis(), None)

    def rehearse(self, states: States) -> Decision:
        """The decision on these states; nothing is written."""
        return self._note(states, self._decide(states))

    def written(self, done: Done) -> WrittenObject:
        """The written object, after the commit. The object's event is the command's first."""
        return _answer(done.basis, done.position - done.events + 1)

    @property
    def state(self) -> State | None:
        """The object's state as the write leaves it, except for the version that the log will assign."""
        event = self.admitted.event
        if event is None:
            return self.stored
        return evolve(self.stored, event.type, version=0, position=0, at=0, data=event.data)

    def _decided(self, states: States) -> Decision:
        found = states.get(self.stream)
        if self._reworks and isinstance(found, ObjectState) and holds_more(found.manifest, MOST_VALUES):
            raise HeavyError(self.stream)
        return self._note(states, self._decide(states))

    def _note(self, states: States, admitted: AdmittedWrite) -> Decision:
        self.stored = states.get(self.stream)
        event = admitted.event
        if event is not None and self._reason is not None:
            event = replace(event, data={**event.data, "reason": self._reason})
        self.admitted = admitted._replace(event=event)
        basis = self._basis()
        if event is None:
            return Decision(result={"applied": Applied.UNCHANGED.value, "gone": False}, basis=basis)
        applied = Applied.CREATED if is_creation(event) else Applied.CONFIGURED
        result = {"applied": applied.value, "gone": basis.gone}
        return Decision(events=(event, *admitted.beside), result=result, basis=basis)

    def _basis(self) -> "_Basis":
        before = self.stored if isinstance(self.stored, ObjectState) else None
        event = self.admitted.event
        if event is None:
            return _Basis(before)
        return _Basis(before, event.data.get("patch", {}), is_deletion(event))


class _Basis(NamedTuple):
    """The data that the answer is built from."""

    before: ObjectState | None
    patch: Manifest | None = None
    """The change of the object; None: nothing changes."""
    gone: bool = False


def _answer(basis: _Basis, position: int | None) -> WrittenObject:
    """`position` is that of the object's event; None where nothing was written."""
    state, patch, gone = basis
    before = state.manifest if state is not None else None
    if patch is None:
        assert state is not None
        return WrittenObject(versioned(state))
    after = (before if gone else merged(before or {}, patch)) or {}
    rv = position if position is not None else state.rv if before is not None and state is not None else None
    names = {**metadata(after), **({} if rv is None else {"resourceVersion": str(rv)})}
    if gone:
        # This write may have removed the last finalizer.
        names.pop("finalizers", None)
    return WrittenObject({**after, "metadata": names}, gone)
