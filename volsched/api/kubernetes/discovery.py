"""Discovery, which kubectl requests before anything else, with OpenAPI as far as it reads it."""

from functools import cache
from importlib.metadata import version as installed_version
from typing import Any

from volsched.api.kubernetes.descriptions import description_of
from volsched.api.kubernetes.negotiation import JSON, MERGE_PATCH
from volsched.api.kubernetes.openapi_message import document_message
from volsched.api.kubernetes.resources import (
    BINDING,
    CORE,
    EVICTION,
    GROUPS,
    SCALE,
    Resource,
    ResourceStorage,
    group_version,
    resources_of,
)
from volsched.api.questions import openapi as own
from volsched.api.questions.openapi import group_entry
from volsched.kube.known_fields import all_types, item_type, type_of

KUBERNETES_VERSION = ("1", "33")
"""The API version that we follow; clients warn where theirs is far from it."""


def server_version() -> dict[str, str]:
    major, minor = KUBERNETES_VERSION
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{major}.{minor}.0+volsched-{installed_version('volsched')}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "",
    }


def root_paths() -> dict[str, list[str]]:
    """`/`: the available paths."""
    served = {"/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/ui/"}
    versions = [group_version(group, it) for group, it in GROUPS if group != CORE]
    for named in (*versions, group_entry()["preferredVersion"]["groupVersion"]):
        served |= {f"/apis/{named.partition('/')[0]}", f"/apis/{named}"}
    return {"paths": sorted({*served, "/version", *(f"/api/{it}" for group, it in GROUPS if group == CORE)})}


def core_versions() -> dict[str, Any]:
    versions = [it for group, it in GROUPS if group == CORE]
    return {"kind": "APIVersions", "versions": versions, "serverAddressByClientCIDRs": []}


def groups() -> dict[str, Any]:
    named = [*(_group(group, it) for group, it in GROUPS if group != CORE), group_entry()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": named}


def group(name: str) -> dict[str, Any] | None:
    return next(
        (
            {"kind": "APIGroup", "apiVersion": "v1", **_group(group, it)}
            for group, it in GROUPS
            if group == name != CORE
        ),
        None,
    )


def resource_list(group: str, version: str) -> dict[str, Any] | None:
    if (group, version) not in GROUPS:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version(group, version),
        "resources": [entry for it in resources_of(group, version) for entry in _entries(it)],
    }


def _group(name: str, version: str) -> dict[str, Any]:
    named = {"groupVersion": group_version(name, version), "version": version}
    return {"name": name, "versions": [named], "preferredVersion": named}


def _entries(resource: Resource) -> list[dict[str, Any]]:
    entry: dict[str, Any] = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind.name,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    return [entry, *(_subresource(resource, name) for name in resource.subresources)]


def _subresource(resource: Resource, name: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": {BINDING: "Binding", EVICTION: "Eviction", SCALE: "Scale"}.get(name, resource.kind.name),
        "verbs": ["create"] if name in (BINDING, EVICTION) else ["get", "patch", "update"],
    }
    group = {EVICTION: "policy", SCALE: "autoscaling"}.get(name)
    return {**entry, "group": group, "version": "v1"} if group else entry


# OpenAPI as far as kubectl reads it: the fields of a kind, and that the server itself validates them.
#
# Strategic merge patches are not announced: our types do not declare the merge keys of lists, and kubectl, which
# would rely on them, then uses its built-in ones.

_GVK = "x-kubernetes-group-version-kind"
_ACTION = "x-kubernetes-action"
_PLAIN: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "int": {"type": "integer"},
    "number": {"type": "number"},
    "bool": {"type": "boolean"},
    # Not empty: `kubectl explain` takes that for a missing schema.
    "any": {"x-kubernetes-preserve-unknown-fields": True},
}
REFS = "#/components/schemas/"
_VALIDATION = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}


def root() -> dict[str, Any]:
    """`/openapi/v3`: one document per group and version."""
    paths = {_path_of(group, version): {"serverRelativeURL": f"/openapi/v3/{_path_of(group, version)}"}
             for group, version in GROUPS}  # fmt: skip
    paths[own.PLACE] = {"serverRelativeURL": f"/openapi/v3/{own.PLACE}"}
    return {"paths": paths}


@cache
def document(place: str) -> dict[str, Any] | None:
    """`/openapi/v3/apis/GROUP/VERSION`."""
    if place == own.PLACE:
        return own.document()
    group_and_version = next(
        ((group, version) for group, version in GROUPS if _path_of(group, version) == place), None
    )
    if group_and_version is None:
        return None
    resources = _resources_of(*group_and_version)
    paths: dict[str, Any] = {}
    for resource in resources:
        paths |= _paths(place, resource)
    schemas = {name: _schema(name, fields, REFS) for name, fields in all_types().items()}
    for resource in resources:
        schemas[type_of(resource.kind)][_GVK] = [_gvk(resource)]
    return {
        "openapi": "3.0.0",
        "info": {"title": "volsched", "version": group_version(*group_and_version)},
        "paths": paths,
        "components": {"schemas": schemas},
    }


@cache
def version_2() -> dict[str, Any]:
    """`/openapi/v2`, for older clients."""
    definitions = {name: _schema(name, fields, "#/definitions/") for name, fields in all_types().items()}
    for group, version in GROUPS:
        for resource in _resources_of(group, version):
            definitions[type_of(resource.kind)][_GVK] = [_gvk(resource)]
    info = {"title": "volsched", "version": "v1"}
    return {"swagger": "2.0", "info": info, "paths": {}, "definitions": definitions}


@cache
def version_2_message() -> bytes:
    return document_message(version_2())


def _resources_of(group: str, version: str) -> list[Resource]:
    return [it for it in resources_of(group, version) if it.stored_in is not ResourceStorage.NOT]


def _path_of(group: str, version: str) -> str:
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
        entry: dict[str, Any] = {"responses": answer, _ACTION: action, _GVK: _gvk(resource)}
        if media:
            entry["parameters"] = [_VALIDATION]
            entry["requestBody"] = {"content": {it: {"schema": schema} for it in media}}
        return entry

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


def _schema(type_: str, fields: Any, refs: str) -> dict[str, Any]:
    properties = {
        name: _with_description(_field(type_name, refs), type_, name, refs) for name, type_name in fields.items()
    }
    description = description_of(type_)
    return {**({"description": description} if description else {}), "type": "object", "properties": properties}


def _with_description(schema: dict[str, Any], type_: str, name: str, refs: str) -> dict[str, Any]:
    description = description_of(type_, name)
    if description is None:
        return schema
    # Version 3 ignores everything beside a reference; in version 2, kubectl reads both.
    if "$ref" in schema and refs == REFS:
        return {"description": description, "allOf": [schema]}
    return {"description": description, **schema}


def _field(type_: str, refs: str) -> dict[str, Any]:
    if type_ in _PLAIN:
        return dict(_PLAIN[type_])
    if type_.startswith("["):
        return {"type": "array", "items": _field(item_type(type_), refs)}
    if type_.startswith("{"):
        return {"type": "object", "additionalProperties": _field(item_type(type_), refs)}
    return {"$ref": f"{refs}{type_}"}
