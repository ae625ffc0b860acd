"""The OpenAPI document of our own endpoints, and the discovery of our group for kubectl."""

from functools import cache
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import models_json_schema

from volsched.api.kubernetes.negotiation import JSON
from volsched.api.questions.object_answers import KINDS, ListKind
from volsched.api.questions.operations import BASE, GROUP, VERSION, Operation, Param
from volsched.api.questions.routes import OPERATIONS
from volsched.questions.map.answers import LogTimeline, VolumeMap
from volsched.questions.registry import API_VERSION

PLACE = f"apis/{GROUP}/{VERSION}"
_REF = "#/components/schemas/"
_OBJECT: dict[str, Any] = {"type": "object"}
TYPED_ANSWERS = (VolumeMap, LogTimeline)
"""Answers whose schemas are generated from their types."""
ANYWHERE = (400, 401, 403, 404, 405, 406, 408, 410, 413, 415, 422, 429, 503)
"""Codes that any endpoint may answer with: a Status."""
NAME = {
    "type": "string",
    "minLength": 1,
    "maxLength": 500,
    "pattern": r"^[A-Za-z0-9]([A-Za-z0-9._:~-]*[A-Za-z0-9])?$",
}
IDEMPOTENCY = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "A repeated request with the same key gets the first answer again.",
    "schema": {"type": "string", "maxLength": 200, "pattern": "^[ -~]*$"},
}


@cache
def document() -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        paths.setdefault(f"{BASE}{operation.path}", {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.0.3",
        "info": {"title": "volsched", "version": API_VERSION},
        "paths": paths,
        "components": {"schemas": _bodies() | _answers()},
    }


def _operation(operation: Operation) -> dict[str, Any]:
    names = [it.strip("{}") for it in operation.segments if it.startswith("{")]
    parameters: list[dict[str, Any]] = [
        {"name": it, "in": "path", "required": True, "schema": NAME} for it in names
    ]
    parameters += [_parameter(it) for it in operation.query]
    if operation.method == "POST" and operation.answer == "Reservation" and operation.needs_body:
        parameters.append(IDEMPOTENCY)
    codes = sorted({*ANYWHERE, *operation.codes})
    entry: dict[str, Any] = {
        "operationId": _id(operation),
        "summary": operation.about,
        "parameters": parameters,
        "responses": {
            str(operation.code): _response(
                "OK", "ReservationAnswer" if operation.answer == "Reservation" else operation.answer
            ),
            **{str(it): _response("refused, or failed", "Status") for it in codes},
        },
    }
    if operation.body is not None:
        schema = {"$ref": f"{_REF}{operation.body.__name__}"}
        entry["requestBody"] = {"required": operation.needs_body, "content": {operation.media: {"schema": schema}}}
    kind = next((it for it in KINDS if it.plural == operation.resource), None)
    if operation.action and kind is not None:
        entry["x-kubernetes-action"] = operation.action
        entry["x-kubernetes-group-version-kind"] = _gvk(kind.title)
    return entry


def _parameter(param: Param) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": param.type}
    optional = {"default": param.default, "minimum": param.least, "maximum": param.most}
    schema |= {name: value for name, value in optional.items() if value is not None}
    if param.choices:
        schema["enum"] = list(param.choices)
    elif param.type == "string":
        schema |= {"maxLength": 500}
    return {
        "name": param.name,
        "in": "query",
        "required": param.required,
        "description": param.about,
        "schema": schema,
    }


def _response(about: str, schema: str) -> dict[str, Any]:
    return {"description": about, "content": {JSON: {"schema": {"$ref": f"{_REF}{schema}"}}}}


def _id(operation: Operation) -> str:
    words = [it.strip("{}").replace("-", "_") for it in operation.segments]
    return "_".join([operation.method.lower(), *words])


def _gvk(kind: str) -> dict[str, str]:
    return {"group": GROUP, "version": VERSION, "kind": kind}


def _bodies() -> dict[str, Any]:
    models = list(dict.fromkeys((it.body, "validation") for it in OPERATIONS if it.body is not None))
    _, schema = models_json_schema(models, ref_template=_REF + "{model}")  # type: ignore[arg-type]
    definitions: dict[str, Any] = schema["$defs"]
    definitions["Reservation"]["x-kubernetes-group-version-kind"] = [_gvk("Reservation")]
    return definitions


def _answers() -> dict[str, Any]:
    array = {"type": "array", "items": _OBJECT}
    schemas: dict[str, Any] = {
        "Status": _with(
            {"kind": _constant("Status"), "message": _string(), "code": {"type": "integer"}}, "kind", "status"
        )
        | {"description": "Kubernetes' own: what was done, or why not."},
        "List": _with({"apiVersion": _string(), "kind": _constant("List"), "items": array}, "kind", "items"),
        "Object": _with({"apiVersion": _string(), "kind": _string(), "metadata": _OBJECT}, "kind", "metadata"),
        "Item": _OBJECT,
        "Description": _with({"object": _OBJECT}, "object"),
        "Explanation": _with({"pod": _string(), "fits": {"type": "boolean"}, "refused": array}, "pod", "fits"),
        "Simulation": _with({"placed": array, "stranded": array}, "placed", "stranded"),
        "Verification": _with(
            {"ok": {"type": "boolean"}, "position": {"type": "integer"}, "findings": array}, "ok", "position"
        ),
        "StoreStatus": _with(
            {
                "kind": _constant("StoreStatus"),
                "position": {"type": "integer"},
                "pending": array,
                "storage": array,
            },
            "kind",
            "position",
        ),
        "Export": _with({"text": _string(), "first": {"type": "integer"}, "last": {"type": "integer"}}, "text"),
    }
    for shaped in TYPED_ANSWERS:
        schemas |= _shape(shaped)
    for kind in KINDS:
        shape = {
            "apiVersion": _constant(API_VERSION),
            "kind": _constant(kind.title),
            "metadata": _OBJECT,
            "status": _OBJECT,
        }
        title = f"{kind.title}Answer" if kind.title == "Reservation" else kind.title
        schemas[title] = _with(shape, "apiVersion", "kind", "metadata", "status")
        if title == kind.title:
            schemas[title]["x-kubernetes-group-version-kind"] = [_gvk(kind.title)]
        items = {"type": "array", "items": {"$ref": f"{_REF}{title}"}}
        schemas[f"{kind.title}List"] = _with(
            {
                "apiVersion": _constant(API_VERSION),
                "kind": _constant(f"{kind.title}List"),
                "metadata": _OBJECT,
                "items": items,
            },
            "kind",
            "metadata",
            "items",
        )
    return schemas


def _shape(answer: Any) -> dict[str, Any]:
    """The schema of a typed answer, and of the types in it."""
    schema = TypeAdapter(answer).json_schema(ref_template=_REF + "{model}", mode="serialization")
    parts = schema.pop("$defs", {})
    return {name: _as_version_3_0(it) for name, it in ({schema["title"]: schema} | parts).items()}


def _as_version_3_0(schema: Any) -> Any:
    """Pydantic uses the type `null`, which OpenAPI has from 3.1 on."""
    if isinstance(schema, list):
        return [_as_version_3_0(it) for it in schema]
    if not isinstance(schema, dict):
        return schema
    converted = {name: _as_version_3_0(it) for name, it in schema.items() if name not in ("anyOf", "const")}
    if "const" in schema:
        converted["enum"] = [schema["const"]]
    kinds = [_as_version_3_0(it) for it in schema.get("anyOf", ()) if it != {"type": "null"}]
    if len(kinds) == 1:
        return converted | kinds[0] | {"nullable": True}
    return converted | ({"anyOf": kinds} if kinds else {})


def _with(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def _string() -> dict[str, Any]:
    return {"type": "string"}


def _constant(text: str) -> dict[str, Any]:
    return {"type": "string", "enum": [text]}


# Discovery of our group, which kubectl requests before anything else.


def group_entry() -> dict[str, Any]:
    named = {"groupVersion": API_VERSION, "version": VERSION}
    return {"name": GROUP, "versions": [named], "preferredVersion": named}


def discovery_document(raw: str) -> dict[str, Any] | None:
    """`/apis/volsched.io` and `/apis/volsched.io/v1`; None for any other path."""
    match raw.removesuffix("/").split("/"):
        case ["", "apis", group] if group == GROUP:
            return {"kind": "APIGroup", "apiVersion": "v1", **group_entry()}
        case ["", "apis", group, version] if (group, version) == (GROUP, VERSION):
            return {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": API_VERSION,
                "resources": [entry for kind in KINDS for entry in _entries(kind)],
            }
        case _:
            return None


def _entries(kind: ListKind) -> list[dict[str, Any]]:
    entry: dict[str, Any] = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.title,
        "verbs": list(kind.verbs),
        "categories": ["volsched"],
    }
    if kind.short:
        entry["shortNames"] = list(kind.short)
    subresources = [
        {
            "name": f"{kind.plural}/{name}",
            "singularName": "",
            "namespaced": kind.namespaced,
            "kind": body_kind,
            "verbs": ["create"],
        }
        for name, body_kind in (kind.subresources or {}).items()
    ]
    return [entry, *subresources]
