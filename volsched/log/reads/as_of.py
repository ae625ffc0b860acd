"""Looking at a store: objects, bindings and attempts as they are now, or as they were at a position.

`Now` answers from the views. `AsOf` answers from the log: one stream by its newest snapshot, all streams of a kind
by folding them alone, so that the price follows what is asked for and not the whole history.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from sqlalchemy import ColumnElement, Connection, Select, select

from volsched.log import tables
from volsched.log.base import archived, load_base, read_base
from volsched.log.dialects import dialect_of
from volsched.log.events.envelope import Event
from volsched.log.events.fold import AttemptState, BindingState, ObjectState, State
from volsched.log.events.streams import ATTEMPT, BINDING, noun_and_key
from volsched.log.reads.tail import events_of_binding, fold_event, state_as_of
from volsched.log.rows import VIEWS, Row, attempt_state, binding_state, object_state

Found = tuple[str, State]
"""A key and what is there."""
Concerned = Literal["pod", "claim", "volume", "node"]


class Look(Protocol):
    """What there is at one position. Deleted objects are not there."""

    @property
    def position(self) -> int: ...

    def one(self, noun: str, key: str) -> State | None: ...

    def every(self, noun: str) -> Iterable[Found]:
        """In the order of keys; bindings and attempts in the order of time."""
        ...

    def bindings_of(self, what: Concerned, key: str) -> list[tuple[str, BindingState]]:
        """The bindings that concern it, the oldest first."""
        ...

    def attempts_of(self, pod: str) -> list[tuple[str, AttemptState]]:
        """The attempts to place a pod, the oldest first."""
        ...

    def notices_about(self, about: str) -> list[Mapping[str, object]]:
        """Manifests of the Kubernetes events about `Kind/namespace/name`."""
        ...

    def steps_of(self, binding: str) -> list[Event]:
        """Everything that was done for a binding, over all streams."""
        ...


@dataclass(frozen=True, slots=True)
class Now:
    connection: Connection
    position: int

    def one(self, noun: str, key: str) -> State | None:
        if noun == BINDING:
            return next((state for _, state in self._bindings(_bindings.c.id == key)), None)
        if noun == ATTEMPT:
            found = next(self._rows(select(_attempts).where(_attempts.c.id == key)), None)
            return None if found is None else attempt_state(found)
        table, _ = VIEWS[noun]
        rows = dialect_of(self.connection.engine).fetch(self.connection, table, "key", (key,))
        return object_state(rows[0]) if rows else None

    def every(self, noun: str) -> Iterator[Found]:
        if noun == BINDING:
            yield from self._bindings()
        elif noun == ATTEMPT:
            for row in self._rows(select(_attempts).order_by(_attempts.c.last_at, _attempts.c.id)):
                yield row["id"], attempt_state(row)
        else:
            table, _ = VIEWS[noun]
            for row in self._rows(select(table).order_by(table.c.key)):
                yield row["key"], object_state(row)

    def bindings_of(self, what: Concerned, key: str) -> list[tuple[str, BindingState]]:
        if what in ("pod", "node"):
            return list(self._bindings(_bindings.c[what] == key))
        return list(self._bindings(_bindings.c.id.in_(select(_legs.c.binding).where(_legs.c[what] == key))))

    def attempts_of(self, pod: str) -> list[tuple[str, AttemptState]]:
        asked = select(_attempts).where(_attempts.c.pod == pod).order_by(_attempts.c.last_at, _attempts.c.id)
        return [(row["id"], attempt_state(row)) for row in self._rows(asked)]

    def notices_about(self, about: str) -> list[Mapping[str, object]]:
        table = tables.notices
        asked = select(table).where(table.c.about == about).order_by(table.c.key)
        return [object_state(row).manifest or {} for row in self._rows(asked)]

    def steps_of(self, binding: str) -> list[Event]:
        return events_of_binding(self.connection, binding)

    def _bindings(self, *conditions: ColumnElement[bool]) -> Iterator[tuple[str, BindingState]]:
        chosen = select(_bindings).where(*conditions)
        legs: dict[str, list[Row]] = {}
        of_chosen = chosen.with_only_columns(_bindings.c.id)
        for leg in self._rows(select(_legs).where(_legs.c.binding.in_(of_chosen))):
            legs.setdefault(leg["binding"], []).append(leg)
        for row in self._rows(chosen.order_by(_bindings.c.planned_at, _bindings.c.id)):
            yield row["id"], binding_state(row, legs.get(row["id"], []))

    def _rows(self, asked: Select[tuple[object, ...]]) -> Iterator[Row]:
        return (dict(row) for row in self.connection.execute(asked).mappings())


@dataclass(frozen=True, slots=True)
class AsOf:
    connection: Connection
    position: int
    _folded: dict[str, dict[str, State]] = field(default_factory=dict)

    def one(self, noun: str, key: str) -> State | None:
        found = state_as_of(self.connection, f"{noun}/{key}", position=self.position)
        return found if found is not None and _is_there(found) else None

    def every(self, noun: str) -> Iterable[Found]:
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

    def steps_of(self, binding: str) -> list[Event]:
        return [it for it in events_of_binding(self.connection, binding) if it.position <= self.position]

    def _all(self, noun: str) -> dict[str, State]:
        if noun not in self._folded:
            self._folded[noun] = self._fold(noun)
        return self._folded[noun]

    def _fold(self, noun: str) -> dict[str, State]:
        base = read_base(self.connection)
        if self.position < base.position:
            raise archived(self.connection, f"position {self.position}", base)
        states = {
            stream: state
            for stream, state in load_base(self.connection).states.items()
            if noun_and_key(stream)[0] == noun
        }
        events = tables.events
        asked = (
            select(events)
            .where(events.c.stream.startswith(f"{noun}/"), events.c.position <= self.position)
            .order_by(events.c.position)
        )
        for it in self.connection.execute(asked):
            states[it.stream] = fold_event(
                states.get(it.stream), it.position, it.version, it.type, it.schema, it.at, it.data
            )
        return {noun_and_key(stream)[1]: state for stream, state in states.items() if _is_there(state)}


def _is_there(state: State) -> bool:
    if isinstance(state, ObjectState):
        return state.manifest is not None
    return isinstance(state, BindingState | AttemptState)


def _order(found: Found) -> tuple[int, str]:
    key, state = found
    if isinstance(state, BindingState):
        return state.planned_at, key
    return (state.last_at, key) if isinstance(state, AttemptState) else (0, key)


def _concerns(state: BindingState, what: Concerned, key: str) -> bool:
    if what in ("pod", "node"):
        return bool(state.plan[what] == key)
    return any(key == (leg.claim if what == "claim" else leg.volume) for leg in state.legs)


_bindings, _legs, _attempts = tables.bindings, tables.binding_legs, tables.attempts
