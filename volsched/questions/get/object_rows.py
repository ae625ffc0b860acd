"""The rows with columns of an answer: printed by a command, or sent by the API as a list or a Table."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from volsched.log.events.fold import BindingState, ObjectState, State
from volsched.log.events.streams import BINDING
from volsched.questions.get.columns import columns_of
from volsched.questions.get.documents import OUR_API, Item, as_list, as_manifest

if TYPE_CHECKING:
    from volsched.log.reads.views import StoreView


class ColumnHead(Protocol):
    @property
    def header(self) -> str: ...

    @property
    def wide(self) -> bool:
        """Whether the column is shown only with `-o wide`."""


@dataclass(frozen=True, slots=True)
class ObjectRow:
    """One row, from any source: its cells and its manifest are computed on demand."""

    key: str
    name: str
    namespace: str
    cells: Callable[[], list[str]]
    """The cells of all columns, including the wide ones."""
    manifest: Callable[[], dict[str, Any]]
    narrow: Callable[[], list[str]] | None = None
    """The cells of the columns that are not wide, if they can be computed without the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectsAnswer:
    rows: Sequence[ObjectRow]
    position: int
    """The position of the log at which the rows were read."""
    columns: Sequence[ColumnHead] = ()
    kind: str = ""
    """One of volsched's own kinds, such as `Binding`; empty: Kubernetes' kinds."""
    after: str | None = None
    """The token of the next page; None: this is the last page."""
    begins: str | None = None
    """When the log begins, if the requested time is before that."""

    @property
    def metadata(self) -> dict[str, Any]:
        metadata = {"resourceVersion": str(self.position)}
        metadata |= {} if self.begins is None else {"logBegins": self.begins}
        return metadata if self.after is None else metadata | {"continue": self.after}

    def document(self) -> dict[str, Any]:
        items = [row.manifest() for row in self.rows]
        if not self.kind:
            return as_list(items)
        return {"kind": f"{self.kind}List", "apiVersion": OUR_API, "metadata": self.metadata, "items": items}


def state_rows(
    noun: str, states: Iterable[tuple[str, State]], *, now: int, view: "StoreView | None" = None
) -> list[ObjectRow]:
    """The rows of states. Ages are counted to `now`; `view` finds the bindings with assumptions over objects."""
    return [state_row(noun, key, state, now=now, view=view) for key, state in states]


def state_row(noun: str, key: str, state: State, *, now: int, view: "StoreView | None") -> ObjectRow:
    item = Item(key, state, now, None if view is None else _assuming_binding(view, state))
    return ObjectRow(
        key,
        item.name,
        item.namespace,
        lambda: [column.value(item) for column in columns_of(noun, wide=True)],
        lambda: as_manifest(noun, key, state),
        lambda: [column.value(item) for column in columns_of(noun, wide=False)],
    )


def _assuming_binding(view: "StoreView", state: State) -> BindingState | None:
    """The open binding whose assumption lies over the object."""
    assumption = state.assumed if isinstance(state, ObjectState) else None
    binding = None if assumption is None else view.one(BINDING, assumption.binding)
    return binding if isinstance(binding, BindingState) and binding.open else None
