"""What the server has, as kubectl asks for it before anything else."""

from importlib.metadata import version
from typing import Any

from volsched.api.kubernetes.resources import BINDING, CORE, GROUPS, SCALE, Resource, group_version, resources_of
from volsched.api.questions.discovery import group_entry

KUBERNETES_VERSION = ("1", "33")
"""Whose API we follow; clients warn where theirs is far from it."""


def server_version() -> dict[str, str]:
    major, minor = KUBERNETES_VERSION
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{major}.{minor}.0+volsched-{version('volsched')}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "",
    }


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
        "kind": {BINDING: "Binding", SCALE: "Scale"}.get(name, resource.kind.name),
        "verbs": ["create"] if name == BINDING else ["get", "patch", "update"],
    }
    return {**entry, "group": "autoscaling", "version": "v1"} if name == SCALE else entry
