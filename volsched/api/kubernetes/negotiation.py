"""Content negotiation (whole objects, a `Table`, or metadata alone), and answers before they are serialised."""

import gzip
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import orjson
from starlette.responses import Response

from volsched.api.kubernetes.resources import Resource
from volsched.api.kubernetes.statuses import ApiError
from volsched.questions.get.columns import columns_of
from volsched.questions.get.documents import Item
from volsched.questions.get.object_rows import ColumnHead

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
"""The media type of protobuf: for bodies (`protobuf`), never for answers."""
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
PATCHES = (MERGE_PATCH, JSON_PATCH, STRATEGIC_PATCH)
META_GROUP = "meta.k8s.io"
META_VERSIONS = ("v1", "v1beta1")


class AnswerFormat(Enum):
    OBJECT = ""
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"
    METADATA_LIST = "PartialObjectMetadataList"


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    form: AnswerFormat
    version: str = "v1"
    """The version of the table or the metadata, as the client requests it."""

    @property
    def api_version(self) -> str:
        return f"{META_GROUP}/{self.version}"


PLAIN = AnswerRequest(AnswerFormat.OBJECT)


def wanted_form(accept: str | None) -> AnswerRequest:
    """The first supported form, in the client's order; ApiError 406 where there is none."""
    if not accept or not accept.strip():
        return PLAIN
    for part in accept.split(","):
        media, parameters = media_type(part)
        if media not in (JSON, "application/*", "*/*"):
            continue
        if "as" not in parameters:
            return PLAIN
        forms = [form for form in AnswerFormat if form.value and form.value == parameters["as"]]
        if forms and parameters.get("g") == META_GROUP and parameters.get("v") in META_VERSIONS:
            return AnswerRequest(forms[0], parameters["v"])
    raise ApiError(406, "only the following media types are accepted: application/json")


def media_type(text: str) -> tuple[str, dict[str, str]]:
    """`application/json;as=Table` → its name, and its parameters."""
    media, *rest = (part.strip() for part in text.split(";"))
    pairs = (part.partition("=") for part in rest if "=" in part)
    return media.lower(), {name.strip(): value.strip().strip('"') for name, _, value in pairs}


def body_form(content_type: str | None) -> str:
    """JSON, YAML or protobuf; ApiError 415 for any other format."""
    media = media_type(content_type)[0] if content_type else JSON
    if media in (JSON, YAML, PROTOBUF):
        return media
    raise ApiError(
        415,
        "the body of the request was in an unknown format - accepted media types include: "
        f"{JSON}, {YAML}, {PROTOBUF}",
    )


def patch_form(content_type: str | None) -> str:
    media = media_type(content_type)[0] if content_type else ""
    if media in (*PATCHES, APPLY_PATCH):
        return media
    raise ApiError(415, "415: Unsupported Media Type")


# The answer to a request, before serialisation.

UNREAD = (408, 413)
"""Answers that are sent before the whole body has arrived: the rest is not awaited."""
SMALLEST_PACKED, PACKING_LEVEL = 16_000, 1
"""The bytes from which an answer is packed, and gzip's level: the map of 5,000 nodes, 700 KB, takes 3 ms to pack,
to a twentieth of its size."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    body: Any
    """JSON where it is bytes."""
    code: int = 200
    warnings: Sequence[str] = ()
    headers: Mapping[str, str] = field(default_factory=dict)

    def serialised(self, *, packed: bool = False) -> "HttpAnswer":
        """The answer with its body as JSON. For threads: serialising a large body would block the event loop."""
        body = orjson.dumps(self.body)
        if not packed or len(body) < SMALLEST_PACKED:
            return replace(self, body=body)
        headers = {**self.headers, "content-encoding": "gzip", "vary": "accept-encoding"}
        return replace(self, body=gzip.compress(body, PACKING_LEVEL, mtime=0), headers=headers)

    def response(self) -> Response:
        content = self.body if isinstance(self.body, bytes) else orjson.dumps(self.body)
        headers = {"cache-control": "no-cache, private", **self.headers}
        response = Response(content, self.code, headers, media_type=JSON)
        if self.code in UNREAD:
            response.headers["connection"] = "close"
        for warning in self.warnings:
            response.headers.append("warning", f'299 - "{_header_text(warning)}"')
        status = self.body if self.code >= 400 and isinstance(self.body, dict) else {}
        seconds = status.get("details", {}).get("retryAfterSeconds")
        if seconds is not None:
            response.headers["retry-after"] = str(seconds)
        return response


def _header_text(text: str) -> str:
    """The text in a form that a header can hold."""
    safe = text.encode("ascii", "replace").decode()
    return "".join(char if char.isprintable() else "?" for char in safe).replace("\\", "\\\\").replace('"', '\\"')


# Answers for clients that print them: `Table` with the columns of `volsched get`, and metadata alone.

Manifest = Mapping[str, Any]
INCLUDES = ("None", "Metadata", "Object")


def definitions(noun: str) -> list[dict[str, Any]]:
    return definitions_of(columns_of(noun, wide=True))


def definitions_of(columns: Iterable[ColumnHead]) -> list[dict[str, Any]]:
    """The columns; kubectl shows those of priority 1 with `-o wide`."""
    return [
        {
            "name": column.header.title(),
            "type": "string",
            "format": "name" if column.header == "NAME" else "",
            "description": "",
            "priority": int(column.wide),
        }
        for column in columns
    ]


def row(
    cells: Sequence[str], include: str, full_object: Callable[[], Any], metadata: Callable[[], Any]
) -> dict[str, Any]:
    """`full_object` and `metadata` build the object in these forms, where one of them is requested."""
    entry: dict[str, Any] = {"cells": cells}
    if include == "Object":
        entry["object"] = full_object()
    elif include != "None":
        entry["object"] = metadata()
    return entry


def cells_of(resource: Resource, item: Item) -> list[str]:
    return [column.value(item) for column in columns_of(resource.noun, wide=True)]


def table(
    resource: Resource,
    rows: Iterable[Mapping[str, Any]],
    list_metadata: Manifest,
    wanted: AnswerRequest,
    *,
    head: bool = True,
) -> dict[str, Any]:
    """`head`: in a watch only the first table describes its columns."""
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


def object_list(
    resource: Resource, items: Sequence[Any] | orjson.Fragment, list_metadata: Manifest
) -> dict[str, Any]:
    return {
        "kind": f"{resource.kind.name}List",
        "apiVersion": resource.kind.api_version,
        "metadata": dict(list_metadata),
        "items": items,
    }


def partial_list(items: Iterable[Any], list_metadata: Manifest, wanted: AnswerRequest) -> dict[str, Any]:
    """`items` are `partial` already."""
    return {
        "kind": AnswerFormat.METADATA_LIST.value,
        "apiVersion": wanted.api_version,
        "metadata": dict(list_metadata),
        "items": list(items),
    }
