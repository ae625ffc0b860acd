"""What a path means: `/api/v1/namespaces/shop/pods/db-0/status`.

Read from the path as it was sent. A server that decodes it first cannot tell a slash between two segments from one
that somebody has hidden inside a name.
"""

from dataclasses import dataclass
from urllib.parse import unquote

from volsched.api.kubernetes.resources import CORE, Resource, resource_at

NAMESPACES = "namespaces"
_FORBIDDEN_IN_NAMES = frozenset("/%\\\0")


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """An object, or a collection of them, that a request is about."""

    resource: Resource
    namespace: str | None = None
    """None: all namespaces, or a kind that has none."""
    name: str | None = None
    """None: the collection."""
    subresource: str | None = None

    @property
    def key(self) -> str:
        return self.resource.key(self.namespace, self.name or "")


@dataclass(frozen=True, slots=True)
class GroupVersion:
    """The list of what a group serves in a version."""

    group: str
    version: str


@dataclass(frozen=True, slots=True)
class ApiGroup:
    """`/apis/GROUP`."""

    name: str


@dataclass(frozen=True, slots=True)
class Root:
    """`/api` or `/apis`."""

    core: bool


Place = RequestTarget | GroupVersion | ApiGroup | Root


def parse_path(raw: str) -> Place | None:
    """None where nothing is served. `raw` is the path as sent, still percent-encoded, without its query."""
    segments = _segments(raw)
    if segments is None:
        return None
    match segments:
        case ["api" | "apis" as root]:
            return Root(core=root == "api")
        case ["apis", group]:
            return ApiGroup(group)
        case ["api", version, *rest]:
            group = CORE
        case ["apis", group, version, *rest]:
            pass
        case _:
            return None
    if not rest:
        return GroupVersion(group, version)
    return _target(group, version, rest)


def _segments(raw: str) -> list[str] | None:
    parts = raw.split("/")
    if parts[0] != "" or len(parts) < 2:
        return None
    parts = parts[1:]
    # One slash at the end is a habit; two of them, or one in the middle, is a name that was left empty.
    if len(parts) > 1 and parts[-1] == "":
        parts.pop()
    try:
        decoded = [unquote(part, errors="strict") for part in parts]
    except UnicodeDecodeError:
        return None
    return None if any(part in ("", ".", "..") for part in decoded) else decoded


def _target(group: str, version: str, rest: list[str]) -> RequestTarget | None:
    namespace: str | None = None
    if rest[0] == NAMESPACES and len(rest) > 2 and not _is_of_namespace(group, version, rest):
        namespace, rest = rest[1], rest[2:]
        if not _is_name(namespace):
            return None
    resource = resource_at(group, version, rest[0])
    if resource is None or len(rest) > 3 or (namespace is not None and not resource.namespaced):
        return None
    name = rest[1] if len(rest) > 1 else None
    subresource = rest[2] if len(rest) > 2 else None
    if resource.namespaced and namespace is None and name is not None:
        return None
    # Drivers of volsched itself are named after their provisioners, which have a slash.
    if name is not None and not _is_name(name.replace("/", "", 1) if resource.noun == "driver" else name):
        return None
    if subresource is not None and subresource not in resource.subresources:
        return None
    return RequestTarget(resource, namespace, name, subresource)


def _is_of_namespace(group: str, version: str, rest: list[str]) -> bool:
    """`namespaces/shop/status` is about the namespace, `namespaces/shop/pods` about what is in it."""
    namespaces = resource_at(group, version, NAMESPACES)
    return namespaces is not None and len(rest) == 3 and rest[2] in namespaces.subresources


def _is_name(text: str) -> bool:
    return _FORBIDDEN_IN_NAMES.isdisjoint(text) and text.isprintable()
