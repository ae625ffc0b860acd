"""Objects, bindings and attempts as they are now, read from the views.

Statements are text that every driver takes, and rows are dicts: SQLite's own driver reads them without SQLAlchemy
(`sqlite_file`), and the dialects read them inside their own transaction.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal, Protocol

from volsched.log.events.envelope import Event
from volsched.log.events.fold import AttemptState, BindingState, ObjectState, State
from volsched.log.events.streams import ATTEMPT, BINDING
from volsched.log.phrases import unpacked
from volsched.log.row_states import VIEW_TABLES, Row, attempt_state, binding_state, object_state, observed_state

KeyedState = tuple[str, State]
"""A key and its state."""
Concerned = Literal["pod", "claim", "volume", "node"]


class StoreView(Protocol):
    """The state at one position. Deleted objects are absent."""

    @property
    def position(self) -> int: ...

    def one(self, noun: str, key: str) -> State | None: ...

    def every(self, noun: str) -> Iterable[KeyedState]:
        """All states of a noun in key order; bindings and attempts in time order."""
        ...

    def bindings_of(self, what: Concerned, key: str) -> list[tuple[str, BindingState]]:
        """The bindings that concern the object, oldest first."""
        ...

    def attempts_of(self, pod: str) -> list[tuple[str, AttemptState]]:
        """The attempts to place a pod, oldest first."""
        ...

    def notices_about(self, about: str) -> list[Mapping[str, object]]:
        """Manifests of the Kubernetes events about `Kind/namespace/name`."""
        ...

    def deleted_at(self, noun: str, key: str) -> int | None:
        """The position at which an absent object was deleted; None if it never existed."""
        ...

    def steps_of(self, binding: str) -> list[Event]:
        """All events of a binding, over all streams."""
        ...


class RowSource(Protocol):
    """One consistent view of a store's tables."""

    def rows(self, table: str, rest: str = "", **values: str) -> Iterator[Row]:
        """`rest` is the statement from WHERE or ORDER BY on, with values as `:name`."""
        ...

    def state_as_of(self, stream: str, position: int) -> State | None: ...


IN_TIME = "ORDER BY planned_at, id"


@dataclass(frozen=True, slots=True)
class Now:
    source: RowSource
    position: int

    def one(self, noun: str, key: str) -> State | None:
        if noun == BINDING:
            return next((state for _, state in self._bindings("WHERE id = :key", key)), None)
        if noun == ATTEMPT:
            return next(map(attempt_state, self.source.rows("attempts", "WHERE id = :key", key=key)), None)
        state = next(map(object_state, self.source.rows(VIEW_TABLES[noun], "WHERE key = :key", key=key)), None)
        if noun == "pod":
            for row in self.source.rows("observed_pods", "WHERE key = :key", key=key):
                return observed_state(row, state)
        return state

    def every(self, noun: str) -> Iterator[KeyedState]:
        if noun == BINDING:
            yield from self._bindings()
        elif noun == ATTEMPT:
            for row in self.source.rows("attempts", "ORDER BY last_at, id"):
                yield row["id"], attempt_state(row)
        else:
            rows = self.source.rows(VIEW_TABLES[noun], "ORDER BY key")
            found = ((row["key"], object_state(row)) for row in rows)
            yield from self._with_observed(found) if noun == "pod" else found

    def _with_observed(self, logged: Iterator[tuple[str, ObjectState]]) -> Iterator[KeyedState]:
        """Pods in key order; the observer's row of a pod takes precedence."""
        rows = ((row["key"], row) for row in self.source.rows("observed_pods", "ORDER BY key"))
        # The merge is stable: of two with the same key, the log's comes first.
        for key, group in groupby(merge(logged, rows, key=itemgetter(0)), key=itemgetter(0)):
            states: list[Any] = [it for _, it in group]
            logged_state = states[0] if isinstance(states[0], ObjectState) else None
            yield key, states[0] if states[-1] is logged_state else observed_state(states[-1], logged_state)

    def bindings_of(self, what: Concerned, key: str) -> list[tuple[str, BindingState]]:
        if what in ("pod", "node"):
            return list(self._bindings(f"WHERE {what} = :key", key))
        return list(self._bindings(f"WHERE id IN (SELECT binding FROM binding_legs WHERE {what} = :key)", key))

    def attempts_of(self, pod: str) -> list[tuple[str, AttemptState]]:
        rows = self.source.rows("attempts", "WHERE pod = :pod ORDER BY last_at, id", pod=pod)
        return [(row["id"], attempt_state(row)) for row in rows]

    def notices_about(self, about: str) -> list[Mapping[str, object]]:
        rows = self.source.rows("notices", "WHERE about = :about ORDER BY key", about=about)
        return [object_state(row).manifest or {} for row in rows]

    def deleted_at(self, noun: str, key: str) -> int | None:
        return deletion_of(self.source.state_as_of(f"{noun}/{key}", self.position))

    def steps_of(self, binding: str) -> list[Event]:
        rows = self.source.rows("events", "WHERE binding = :binding ORDER BY position", binding=binding)
        whole = ({**row, "data": unpacked(row["data"])} for row in rows)
        return [Event(**{name: row[name] for name in Event._fields}) for row in whole]

    def _bindings(self, condition: str = "", key: str = "") -> Iterator[tuple[str, BindingState]]:
        values = {"key": key} if condition else {}
        legs: dict[str, list[Row]] = {}
        of_chosen = f"WHERE binding IN (SELECT id FROM bindings {condition})" if condition else ""
        for leg in self.source.rows("binding_legs", of_chosen, **values):
            legs.setdefault(leg["binding"], []).append(leg)
        for row in self.source.rows("bindings", f"{condition} {IN_TIME}", **values):
            yield row["id"], binding_state(row, legs.get(row["id"], []))


def deletion_of(state: State | None) -> int | None:
    """The position of an object's deletion, from its last state; None if it exists, or never existed."""
    return state.rv if isinstance(state, ObjectState) and state.manifest is None and state.rv else None
