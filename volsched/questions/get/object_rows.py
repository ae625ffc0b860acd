"""Things that have columns, as questions answer with them: printed by a command, sent as a list or a Table."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from volsched.log.events.fold import BindingState, ObjectState, State
from volsched.log.events.streams import BINDING
from volsched.questions.get.columns import columns_of
from volsched.questions.get.documents import OUR_API, Item, as_list, as_manifest

if TYPE_CHECKING:
    from volsched.log.reads.views import Look


class ColumnHead(Protocol):
    @property
    def header(self) -> str: ...

    @property
    def wide(self) -> bool:
        """Shown with `-o wide` alone."""


@dataclass(frozen=True, slots=True)
class ObjectRow:
    """One of them, wherever it comes from: what its form does not need is not made."""

    key: str
    name: str
    namespace: str
    cells: Callable[[], list[str]]
    """Of all columns, the wide ones too."""
    manifest: Callable[[], dict[str, Any]]
    narrow: Callable[[], list[str]] | None = None
    """Of the columns that are not wide, where these are made without the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectsAnswer:
    rows: Sequence[ObjectRow]
    position: int
    """Of the log that was looked at."""
    columns: Sequence[ColumnHead] = ()
    kind: str = ""
    """Ours, as `Binding`; empty: Kubernetes' own, of any kind."""
    after: str | None = None
    """Where the next page begins; None: this was all."""
    begins: str | None = None
    """When the log begins, where it knows nothing of the moment that was asked about yet."""

    @property
    def metadata(self) -> dict[str, Any]:
        told = {"resourceVersion": str(self.position)}
        told |= {} if self.begins is None else {"logBegins": self.begins}
        return told if self.after is None else told | {"continue": self.after}

    def document(self) -> dict[str, Any]:
        items = [row.manifest() for row in self.rows]
        if not self.kind:
            return as_list(items)
        return {"kind": f"{self.kind}List", "apiVersion": OUR_API, "metadata": self.metadata, "items": items}


def state_rows(
    noun: str, found: Iterable[tuple[str, State]], *, now: int, look: "Look | None" = None
) -> list[ObjectRow]:
    """`now` is what ages are counted to; `look` finds the bindings whose assumptions lie over objects."""
    return [state_row(noun, key, state, now=now, look=look) for key, state in found]


def state_row(noun: str, key: str, state: State, *, now: int, look: "Look | None") -> ObjectRow:
    item = Item(key, state, now, None if look is None else _holding(look, state))
    return ObjectRow(
        key,
        item.name,
        item.namespace,
        lambda: [column.value(item) for column in columns_of(noun, wide=True)],
        lambda: as_manifest(noun, key, state),
        lambda: [column.value(item) for column in columns_of(noun, wide=False)],
    )


def _holding(look: "Look", state: State) -> BindingState | None:
    """The open binding whose assumption lies over the object."""
    held = state.assumed if isinstance(state, ObjectState) else None
    binding = None if held is None else look.one(BINDING, held.binding)
    return binding if isinstance(binding, BindingState) and binding.open else None
