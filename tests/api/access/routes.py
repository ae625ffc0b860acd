"""Every request that the application serves, taken from its routes; and what docs/security.md says of each."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette
from starlette.routing import Route

from volsched.api.access.access_reviews import ACCESS, RULES, SELF
from volsched.api.kubernetes.resources import BINDING, EVICTION, RESOURCES, SCALE, STATUS, Resource
from volsched.api.questions.operations import BASE, GROUP
from volsched.api.questions.routes import OPERATIONS

DOCUMENT = Path(__file__).parents[3] / "docs" / "security.md"
GROUPS = {
    "read": ("get", "list", "watch"),
    "write": ("create", "update", "patch", "delete", "deletecollection"),
    "status": ("get", "update", "patch"),
    "tell": ("create", "update", "patch"),
}
GROUPS["all"] = (*GROUPS["read"], *GROUPS["write"])
PRESENT = ("describe", "explain", "map", "simulate", "status")
"""What is told of the present, and of the past to others."""
EVERYBODY, KNOWN = "everybody", "known"
UNREADABLE = "labelSelector=a%20b"
"""A watch that is let through is refused for this, at once."""


@dataclass(frozen=True)
class Served:
    method: str
    path: str
    row: str
    """As the document names it: `pods/status`, `volsched.io history`, `/metrics`."""
    verb: str


def served_by(app: Starlette) -> list[Served]:
    found: list[Served] = []
    for route in app.routes:
        assert isinstance(route, Route), f"{route} is no plain route: say here what it serves"
        found += _of_route(route)
    return found


def _of_route(route: Route) -> Iterator[Served]:
    if route.path == "/api{rest:path}":
        yield from _discovery()
        for resource in RESOURCES:
            yield from _of_resource(resource)
    elif route.path == "/extender/{verb:path}":
        yield Served("GET", "/extender/healthz", "/extender/*", "get")
        for verb in ("filter", "prioritize", "bind", "preempt"):
            yield Served("POST", f"/extender/{verb}", "/extender/*", "post")
    elif route.path == "/ui/{place:path}":
        yield Served("GET", "/ui/", "/ui/*", "get")
    elif route.path == "/apis/volsched.io{rest:path}":
        yield from _of_own()
    elif route.path in (ACCESS, RULES, SELF):
        yield Served("POST", route.path, route.path.removeprefix("/apis/").replace("/v1/", " "), "create")
    else:
        path = route.path.replace("{place:path}", "api/v1")
        assert "{" not in path, f"{path}: say here what it stands for"
        for method in sorted((route.methods or {"GET"}) - {"HEAD"}):
            row = "/openapi/*" if path.startswith("/openapi/") else path
            yield Served(method, path, row, method.lower())


def _discovery() -> Iterator[Served]:
    for path in ("/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/apis/storage.k8s.io/v1"):
        yield Served("GET", path, "/api, /apis", "get")


def _of_resource(resource: Resource) -> Iterator[Served]:
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    name = f"{resource.group} {resource.plural}".strip()
    within = f"{root}/namespaces/shop" if resource.namespaced else root
    for place in {root, within}:
        collection = f"{place}/{resource.plural}"
        yield Served("GET", collection, name, "list")
        yield Served("GET", f"{collection}?watch=true&{UNREADABLE}", name, "watch")
        yield Served("DELETE", f"{collection}?dryRun=All", name, "deletecollection")
    collection = f"{within}/{resource.plural}"
    yield Served("POST", collection, name, "create")
    for method, verb in (("GET", "get"), ("PUT", "update"), ("PATCH", "patch"), ("DELETE", "delete")):
        yield Served(method, f"{collection}/other", name, verb)
    for subresource in resource.subresources:
        path, row = f"{collection}/other/{subresource}", f"{name}/{subresource}"
        parts = {"GET": "get", "PUT": "update", "PATCH": "patch"}
        methods = {STATUS: parts, SCALE: parts, BINDING: {"POST": "create"}, EVICTION: {"POST": "create"}}
        for method, verb in methods[subresource].items():
            yield Served(method, path, row, verb)


def _of_own() -> Iterator[Served]:
    yield Served("GET", f"/apis/{GROUP}", "/api, /apis", "get")
    yield Served("GET", BASE, "/api, /apis", "get")
    for operation in OPERATIONS:
        path = operation.path.replace("{namespace}", "shop")
        rest = (path.removeprefix("/namespaces/shop") if path.startswith("/namespaces/") else path).strip("/")
        resource, *names = re.sub(r"{.+?}", "other", rest).split("/")
        verbs = {"GET": "get" if names else "list", "POST": "create", "PATCH": "patch", "DELETE": "delete"}
        row = f"bindings/{names[1]}" if names[1:] in (["steps"], ["cancel"]) else resource
        place = BASE + re.sub(r"{.+?}", "other", path)
        yield Served(operation.method, place, f"{GROUP} {row}", verbs[operation.method])
        if resource in PRESENT and "asOf" in {it.name for it in operation.query}:
            yield Served(operation.method, f"{place}?asOf=1", f"{GROUP} {resource}/asOf", verbs[operation.method])


@dataclass(frozen=True)
class Cell:
    verbs: frozenset[str]
    own: bool


def documented() -> dict[str, Mapping[str, Cell]]:
    """The table of docs/security.md: row → role → what it may."""
    lines = DOCUMENT.read_text().split("<!-- roles -->")[1].split("<!-- /roles -->")[0].strip().splitlines()
    header, _, *rows = (tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines)
    return {
        cells[0].strip("`"): {role: _cell(cell) for role, cell in zip(header[1:], cells[1:], strict=True)}
        for cells in rows
    }


def _cell(text: str) -> Cell:
    own = text.startswith("own: ")
    words = [it.strip() for it in text.removeprefix("own: ").split(",") if it.strip()]
    return Cell(frozenset(verb for word in words for verb in GROUPS.get(word, (word,))), own)
