"""Tables with the columns of `volsched get`: of bindings and attempts, and of objects as they were."""

from collections.abc import Iterable, Mapping
from typing import Any

from volsched.api.kubernetes import tables
from volsched.api.kubernetes.answers import HttpAnswer
from volsched.api.questions.operations import OperationRequest, Param
from volsched.log.events.fold import BindingState, ObjectState, State
from volsched.log.events.streams import BINDING
from volsched.log.reads.as_of import Look
from volsched.questions.get.cells import Item
from volsched.questions.get.columns import columns_of
from volsched.questions.get.documents import as_manifest

INCLUDE = Param(
    name="includeObject",
    about="Of a Table: what comes with each row.",
    default="Metadata",
    choices=tables.INCLUDES,
)


def rows(
    noun: str,
    found: Iterable[tuple[str, State]],
    asked: OperationRequest,
    *,
    now: int,
    metadata: Mapping[str, Any],
    look: Look | None = None,
) -> HttpAnswer:
    """`now` is what ages are counted to; `look` finds the bindings whose assumptions lie over objects."""
    columns = columns_of(noun, wide=True)
    told: list[dict[str, Any]] = []
    for key, state in found:
        item = Item(key, state, now, None if look is None else _holding(look, state))
        manifest = as_manifest(noun, key, state)
        row: dict[str, Any] = {"cells": [column.value(item) for column in columns]}
        if asked.query["includeObject"] == "Object":
            row["object"] = manifest
        elif asked.query["includeObject"] != "None":
            row["object"] = tables.partial(manifest, asked.wanted)
        told.append(row)
    table = {"kind": "Table", "apiVersion": asked.wanted.api_version, "metadata": dict(metadata)}
    return HttpAnswer(table | {"columnDefinitions": tables.definitions(noun), "rows": told})


def _holding(look: Look, state: State) -> BindingState | None:
    held = state.assumed if isinstance(state, ObjectState) else None
    binding = None if held is None else look.one(BINDING, held.binding)
    return binding if isinstance(binding, BindingState) and binding.open else None
