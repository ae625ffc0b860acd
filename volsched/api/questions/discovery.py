"""What kubectl asks of our group before anything else."""

from typing import Any

from volsched.api.questions.kinds import KINDS
from volsched.api.questions.lists import ListKind
from volsched.api.questions.operations import GROUP, VERSION
from volsched.questions.registry import API_VERSION


def group_entry() -> dict[str, Any]:
    named = {"groupVersion": API_VERSION, "version": VERSION}
    return {"name": GROUP, "versions": [named], "preferredVersion": named}


def discovered(raw: str) -> dict[str, Any] | None:
    """`/apis/volsched.io` and `/apis/volsched.io/v1`; None where the path is another."""
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
    below = [
        {
            "name": f"{kind.plural}/{name}",
            "singularName": "",
            "namespaced": kind.namespaced,
            "kind": sent,
            "verbs": ["create"],
        }
        for name, sent in (kind.subresources or {}).items()
    ]
    return [entry, *below]
