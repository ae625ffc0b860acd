"""Answers as clients that print them want them: `Table` with the columns of `volsched get`, and metadata alone."""

from collections.abc import Iterable, Mapping
from typing import Any

from volsched.api.kubernetes.negotiation import AnswerFormat, AnswerRequest
from volsched.api.kubernetes.resources import Resource
from volsched.questions.get.cells import Item
from volsched.questions.get.columns import columns_of

Manifest = Mapping[str, Any]
INCLUDES = ("None", "Metadata", "Object")


def definitions(noun: str) -> list[dict[str, Any]]:
    """The columns; kubectl shows those of priority 1 with `-o wide`."""
    return [
        {
            "name": column.header.title(),
            "type": "string",
            "format": "name" if column.header == "NAME" else "",
            "description": "",
            "priority": int(column.wide),
        }
        for column in columns_of(noun, wide=True)
    ]


def row(resource: Resource, item: Item, manifest: Manifest, include: str, wanted: AnswerRequest) -> dict[str, Any]:
    cells = [column.value(item) for column in columns_of(resource.noun, wide=True)]
    told: dict[str, Any] = {"cells": cells}
    if include == "Object":
        told["object"] = manifest
    elif include != "None":
        told["object"] = partial(manifest, wanted)
    return told


def table(
    resource: Resource,
    rows: Iterable[Mapping[str, Any]],
    list_metadata: Manifest,
    wanted: AnswerRequest,
    *,
    head: bool = True,
) -> dict[str, Any]:
    """`head`: in a watch only the first table says what its columns are."""
    return {
        "kind": "Table",
        "apiVersion": wanted.api_version,
        "metadata": dict(list_metadata),
        "columnDefinitions": definitions(resource.noun) if head else None,
        "rows": list(rows),
    }


def partial(manifest: Manifest, wanted: AnswerRequest) -> dict[str, Any]:
    """The object's metadata alone."""
    return {
        "kind": AnswerFormat.METADATA.value,
        "apiVersion": wanted.api_version,
        "metadata": manifest.get("metadata", {}),
    }


def object_list(resource: Resource, items: Iterable[Manifest], list_metadata: Manifest) -> dict[str, Any]:
    return {
        "kind": f"{resource.kind.name}List",
        "apiVersion": resource.kind.api_version,
        "metadata": dict(list_metadata),
        "items": list(items),
    }


def partial_list(items: Iterable[Manifest], list_metadata: Manifest, wanted: AnswerRequest) -> dict[str, Any]:
    return {
        "kind": AnswerFormat.METADATA_LIST.value,
        "apiVersion": wanted.api_version,
        "metadata": dict(list_metadata),
        "items": [partial(item, wanted) for item in items],
    }
