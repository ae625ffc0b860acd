"""Reading a store: objects, bindings and attempts as they are now, or as they were at a position.

`Now` (`views`) reads the views. `AsOf` reads the log: one stream from its newest snapshot, all streams of a kind
by folding only those, so that the cost follows the question and not the whole history.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sqlalchemy import ColumnElement, Connection, select

from volsched.log import tables
from volsched.log.base import archived, load_base, read_base
from volsched.log.dialects import dialect_of
from volsched.log.events.envelope import Event
from volsched.log.events.fold import AttemptState, BindingState, ObjectState, State
from volsched.log.events.streams import ATTEMPT, BINDING, noun_and_key
from volsched.log.reads.tail import events_of_binding, fold_event, read_head, state_as_of
from volsched.log.reads.views import Concerned, KeyedState, Now, deletion_of
from volsched.log.row_states import Row
from volsched.log.rows import VIEWS

FEW = 200
"""The most objects that are read one by one; more are folded in one pass over the log."""


@dataclass(frozen=True, slots=True)
class _StoreRows:
    connection: Connection

    def rows(self, table: str, rest: str = "", **values: str) -> Iterator[Row]:
        return dialect_of(self.connection.engine).rows(self.connection, table, rest, values)

    def state_as_of(self, stream: str, position: int) -> State | None:
        return state_as_of(self.connection, stream, position=position)


def view_at_head(connection: Connection) -> Now:
    """The store as it is now; refuses one that requires newer readers."""
    return view_at(connection, read_head(connection).position)


def view_at(connection: Connection, head: int) -> Now:
    """`view_at_head` for a caller that has read the head already."""
    return Now(_StoreRows(connection), head)


@dataclass(frozen=True, slots=True)
class AsOf:
    connection: Connection
    position: int
    _folded: dict[str, dict[str, State]] = field(default_factory=dict)

    def one(self, noun: str, key: str) -> State | None:
        found = state_as_of(self.connection, f"{noun}/{key}", position=self.position)
        return found if found is not None and _is_there(found) else None

    def every(self, noun: str) -> Iterable[KeyedState]:
        return sorted(self._all(noun).items(), key=_order)

    def bindings_of(self, what: Concerned, key: str) -> list[tuple[str, BindingState]]:
        return [
            (id_, state)
            for id_, state in self.every(BINDING)
            if isinstance(state, BindingState) and _concerns(state, what, key)
        ]

    def attempts_of(self, pod: str) -> list[tuple[str, AttemptState]]:
        return [
            (id_, state)
            for id_, state in self.every(ATTEMPT)
            if isinstance(state, AttemptState) and state.made["pod"] == pod
        ]

    def notices_about(self, about: str) -> list[Mapping[str, object]]:
        _, typed = VIEWS["notice"]
        manifests = [state.manifest for _, state in self.every("notice") if isinstance(state, ObjectState)]
        return [it for it in manifests if it is not None and typed(it)["about"] == about]

    def deleted_at(self, noun: str, key: str) -> int | None:
        return deletion_of(state_as_of(self.connection, f"{noun}/{key}", position=self.position))

    def steps_of(self, binding: str) -> list[Event]:
        return [it for it in events_of_binding(self.connection, binding) if it.position <= self.position]

    def changed_since(self, noun: str) -> dict[str, State | None]:
        """Object changed after the position → its state at the position; None: it was absent."""
        self._refuse_archived()
        events = tables.events
        of_noun = events.c.stream.startswith(f"{noun}/")
        query = select(events.c.stream).where(of_noun, events.c.position > self.position).distinct()
        changed = [noun_and_key(stream)[1] for (stream,) in self.connection.execute(query)]
        if len(changed) <= FEW:
            return {key: self.one(noun, key) for key in changed}
        then = self._fold(noun, events.c.stream.in_(query))
        return {key: then.get(key) for key in changed}

    def _all(self, noun: str) -> dict[str, State]:
        if noun not in self._folded:
            self._folded[noun] = self._fold(noun)
        return self._folded[noun]

    def _fold(self, noun: str, *which: ColumnElement[bool]) -> dict[str, State]:
        self._refuse_archived()
        states = {
            stream: state
            for stream, state in load_base(self.connection).states.items()
            if noun_and_key(stream)[0] == noun
        }
        events = tables.events
        query = (
            select(events)
            .where(events.c.stream.startswith(f"{noun}/"), events.c.position <= self.position, *which)
            .order_by(events.c.position)
        )
        for event in self.connection.execute(query):
            states[event.stream] = fold_event(
                states.get(event.stream),
                event.position,
                event.version,
                event.type,
                event.schema,
                event.at,
                event.data,
            )
        return {noun_and_key(stream)[1]: state for stream, state in states.items() if _is_there(state)}

    def _refuse_archived(self) -> None:
        base = read_base(self.connection)
        if self.position < base.position:
            raise archived(self.connection, f"position {self.position}", base)


def _is_there(state: State) -> bool:
    if isinstance(state, ObjectState):
        return state.manifest is not None
    return isinstance(state, BindingState | AttemptState)


def _order(entry: KeyedState) -> tuple[int, str]:
    key, state = entry
    if isinstance(state, BindingState):
        return state.planned_at, key
    return (state.last_at, key) if isinstance(state, AttemptState) else (0, key)


def _concerns(state: BindingState, what: Concerned, key: str) -> bool:
    if what in ("pod", "node"):
        return bool(state.plan[what] == key)
    return any(key == (leg.claim if what == "claim" else leg.volume) for leg in state.legs)
