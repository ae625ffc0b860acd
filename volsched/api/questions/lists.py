"""Lists and single things in the forms that clients ask for: whole, as a table, or their metadata alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from volsched.api.kubernetes import tables
from volsched.api.kubernetes.answers import HttpAnswer
from volsched.api.kubernetes.negotiation import AnswerFormat
from volsched.api.questions.operations import OperationRequest
from volsched.questions.registry import API_VERSION

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cell:
    header: str
    value: Callable[[Manifest, int], str]
    """Of the object, at a time: ages are of that."""
    wide: bool = False


@dataclass(frozen=True, slots=True)
class ListKind:
    """A resource that kubectl can get."""

    plural: str
    singular: str
    title: str
    namespaced: bool
    verbs: tuple[str, ...]
    cells: tuple[Cell, ...] = ()
    """Its columns; bindings and attempts have those of `volsched get` (`own.rows`)."""
    short: tuple[str, ...] = ()
    subresources: Mapping[str, str] | None = None
    """Its name → the kind of what is sent to it."""


def shown_list(
    kind: ListKind, items: Sequence[Manifest], *, position: int, more: str | None, asked: OperationRequest
) -> HttpAnswer:
    metadata = {"resourceVersion": str(position)} | ({} if more is None else {"continue": more})
    wanted = asked.wanted
    match wanted.form:
        case AnswerFormat.TABLE:
            return HttpAnswer(_table(kind, items, metadata, asked))
        case AnswerFormat.METADATA_LIST | AnswerFormat.METADATA:
            return HttpAnswer(tables.partial_list(items, metadata, wanted))
        case _:
            told = {"kind": f"{kind.title}List", "apiVersion": API_VERSION, "metadata": metadata}
            return HttpAnswer(told | {"items": list(items)})


def shown_one(kind: ListKind, item: Manifest, asked: OperationRequest, code: int = 200) -> HttpAnswer:
    wanted = asked.wanted
    match wanted.form:
        case AnswerFormat.TABLE:
            return HttpAnswer(_table(kind, [item], {}, asked), code)
        case AnswerFormat.METADATA:
            return HttpAnswer(tables.partial(item, wanted), code)
        case _:
            return HttpAnswer(dict(item), code)


def _table(
    kind: ListKind, items: Sequence[Manifest], metadata: Manifest, asked: OperationRequest
) -> dict[str, Any]:
    columns = [
        {
            "name": it.header.title(),
            "type": "string",
            "format": "name" if it.header == "NAME" else "",
            "description": "",
            "priority": int(it.wide),
        }
        for it in kind.cells
    ]
    rows = [
        {"cells": [it.value(item, asked.now) for it in kind.cells], "object": tables.partial(item, asked.wanted)}
        for item in items
    ]
    return {
        "kind": "Table",
        "apiVersion": asked.wanted.api_version,
        "metadata": dict(metadata),
        "columnDefinitions": columns,
        "rows": rows,
    }
