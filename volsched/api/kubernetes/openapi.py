"""OpenAPI as far as kubectl looks at it: which fields a kind has, and that the server itself validates them.

Strategic merge patches are not announced: our types do not say by which keys lists are merged, and kubectl, which
would believe them, then takes what it was built with.
"""

from functools import cache
from typing import Any

from volsched.api.kubernetes.negotiation import JSON, MERGE_PATCH
from volsched.api.kubernetes.resources import GROUPS, Kept, Resource, group_version, resources_of
from volsched.api.questions import openapi as own
from volsched.kube.known_fields import all_types, item_type, type_of

_GVK = "x-kubernetes-group-version-kind"
_ACTION = "x-kubernetes-action"
_PLAIN: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "int": {"type": "integer"},
    "number": {"type": "number"},
    "bool": {"type": "boolean"},
    # Not empty: `kubectl explain` takes that for a schema which is missing.
    "any": {"x-kubernetes-preserve-unknown-fields": True},
}
_VALIDATION = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}


def root() -> dict[str, Any]:
    """`/openapi/v3`: one document per group and version."""
    paths = {_place(group, version): {"serverRelativeURL": f"/openapi/v3/{_place(group, version)}"}
             for group, version in GROUPS}  # fmt: skip
    paths[own.PLACE] = {"serverRelativeURL": f"/openapi/v3/{own.PLACE}"}
    return {"paths": paths}


@cache
def document(place: str) -> dict[str, Any] | None:
    """`/openapi/v3/apis/GROUP/VERSION`."""
    if place == own.PLACE:
        return own.document()
    found = next(((group, version) for group, version in GROUPS if _place(group, version) == place), None)
    if found is None:
        return None
    resources = _documented(*found)
    paths: dict[str, Any] = {}
    for resource in resources:
        paths |= _paths(place, resource)
    schemas = {name: _schema(fields, "#/components/schemas/") for name, fields in all_types().items()}
    for resource in resources:
        schemas[type_of(resource.kind)][_GVK] = [_gvk(resource)]
    return {
        "openapi": "3.0.0",
        "info": {"title": "volsched", "version": group_version(*found)},
        "paths": paths,
        "components": {"schemas": schemas},
    }


@cache
def version_2() -> dict[str, Any]:
    """`/openapi/v2`, for older clients."""
    definitions = {name: _schema(fields, "#/definitions/") for name, fields in all_types().items()}
    for group, version in GROUPS:
        for resource in _documented(group, version):
            definitions[type_of(resource.kind)][_GVK] = [_gvk(resource)]
    info = {"title": "volsched", "version": "v1"}
    return {"swagger": "2.0", "info": info, "paths": {}, "definitions": definitions}


def _documented(group: str, version: str) -> list[Resource]:
    return [it for it in resources_of(group, version) if it.kept is not Kept.NOT]


def _place(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _gvk(resource: Resource) -> dict[str, str]:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind.name}


def _paths(place: str, resource: Resource) -> dict[str, Any]:
    within = "/namespaces/{namespace}" if resource.namespaced else ""
    collection = f"/{place}{within}/{resource.plural}"
    schema = {"$ref": f"#/components/schemas/{type_of(resource.kind)}"}
    answer = {"200": {"description": "OK", "content": {JSON: {"schema": schema}}}}

    places = [_in_path("namespace")] if resource.namespaced else []

    def operation(action: str, *media: str) -> dict[str, Any]:
        told: dict[str, Any] = {"responses": answer, _ACTION: action, _GVK: _gvk(resource)}
        if media:
            told["parameters"] = [_VALIDATION]
            told["requestBody"] = {"content": {it: {"schema": schema} for it in media}}
        return told

    return {
        collection: {"parameters": places, "get": operation("list"), "post": operation("post", JSON)},
        f"{collection}/{{name}}": {
            "parameters": [*places, _in_path("name")],
            "get": operation("get"),
            "put": operation("put", JSON),
            "patch": operation("patch", MERGE_PATCH),
            "delete": operation("delete"),
        },
    }


def _in_path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _schema(fields: Any, refs: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: _field(type_, refs) for name, type_ in fields.items()}}


def _field(type_: str, refs: str) -> dict[str, Any]:
    if type_ in _PLAIN:
        return dict(_PLAIN[type_])
    if type_.startswith("["):
        return {"type": "array", "items": _field(item_type(type_), refs)}
    if type_.startswith("{"):
        return {"type": "object", "additionalProperties": _field(item_type(type_), refs)}
    return {"$ref": f"{refs}{type_}"}
