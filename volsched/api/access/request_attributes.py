"""What a request asks for, in the words in which it is allowed or not: Kubernetes' verb, group, resource and name.

What we serve as Kubernetes does is read by the very function that serves it (`paths.parse_path`), so that no path
can mean one thing to the gate and another behind it. Other routes are matched on the decoded path, and so it is
read here; one that hides a slash inside a segment means nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from volsched.api.access.allow_table import AS_OF, DESCRIBE, EXPLAIN, OURS, AllowRow, row_of, row_of_path
from volsched.api.kubernetes.paths import NAMESPACES, RequestTarget, parse_path
from volsched.api.kubernetes.resources import CORE

_FALSE = ("false", "0", "f", "False", "FALSE")
_VERBS = {"PUT": "update", "PATCH": "patch", "HEAD": "get"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAttributes:
    verb: str
    path: str
    group: str | None = None
    """None: the path is no resource."""
    resource: str = ""
    subresource: str | None = None
    namespace: str | None = None
    name: str | None = None
    hidden: bool = False
    """Written so that it might mean several things."""

    @property
    def row(self) -> AllowRow | None:
        if self.hidden:
            return None
        if self.group is None:
            return row_of_path(self.path)
        return row_of(self.group, self.resource, self.subresource)


def asked_of(method: str, raw_path: str, path: str, query: Mapping[str, str]) -> RequestAttributes:
    """`raw_path` is as it was sent, `path` decoded; `query` as the routes read it, the last of equal names."""
    place = parse_path(raw_path)
    if isinstance(place, RequestTarget):
        asked = RequestAttributes(
            verb=_verb(method, place.name, query),
            path=path,
            group=place.resource.group,
            resource=place.resource.plural,
            subresource=place.subresource,
            namespace=place.namespace,
            name=place.name,
        )
        return replace(asked, namespace=namespace_for(asked))
    verb = "get" if method == "HEAD" else method.lower()
    segments = path.strip("/").split("/")
    if segments[0] not in ("api", "apis"):
        return RequestAttributes(verb=verb, path=path)
    if "%2f" in raw_path.lower():
        return RequestAttributes(verb=verb, path=path, hidden=True)
    match segments:
        case ["apis", group, _, first, *rest]:
            return _of_segments(method, path, query, group, [first, *rest])
        case ["api", _, first, *rest]:
            return _of_segments(method, path, query, "", [first, *rest])
        case _:
            return RequestAttributes(verb=verb, path=path)


def namespace_for(asked: RequestAttributes) -> str | None:
    """In which namespace one must be let in: who may look into a namespace may look at it."""
    itself = (asked.group, asked.resource, asked.verb) == (CORE, NAMESPACES, "get")
    return asked.name if itself else asked.namespace


def _of_segments(
    method: str, path: str, query: Mapping[str, str], group: str, rest: list[str]
) -> RequestAttributes:
    namespace = None
    if rest[0] == NAMESPACES and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    name = rest[1] if len(rest) > 1 else None
    # Who may look at what is there may not therefore look at what was.
    past = group == OURS and rest[0] in (DESCRIBE, EXPLAIN) and query.get(AS_OF, "") != ""
    return RequestAttributes(
        verb=_verb(method, name, query),
        path=path,
        group=group,
        resource=rest[0],
        subresource=AS_OF if past else "/".join(rest[2:]) or None,
        namespace=namespace,
        name=name,
    )


def _verb(method: str, name: str | None, query: Mapping[str, str]) -> str:
    if method == "GET" and name is None:
        return "watch" if query.get("watch", "false") not in _FALSE else "list"
    if method == "DELETE":
        return "delete" if name is not None else "deletecollection"
    return _VERBS.get(method, "create" if method == "POST" else method.lower())
