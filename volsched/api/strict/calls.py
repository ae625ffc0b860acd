"""Which permissions a client has used: every request as Kubernetes' authorization sees it. Pure.

A client's role should allow exactly what the client calls: a run against the strict server compares the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OF_NAMESPACE = frozenset({"status", "finalize"})


@dataclass(frozen=True, slots=True, order=True)
class ApiCall:
    client: str
    """The User-Agent."""
    verb: str
    group: str
    resource: str
    """`pods`, or with its subresource `pods/binding`."""

    def as_json(self) -> dict[str, str]:
        return {"client": self.client, "verb": self.verb, "group": self.group, "resource": self.resource}


def call_of(method: str, path: str, query: Mapping[str, str], *, client: str) -> ApiCall | None:
    """None where no resource is asked for: discovery, versions, health."""
    match path.strip("/").split("/"):
        case ["api", _, *rest]:
            group = ""
        case ["apis", group, _, *rest]:
            pass
        case _:
            return None
    if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in _OF_NAMESPACE:
        rest = rest[2:]
    if not rest:
        return None
    plural, *names = rest
    subresource = names[1] if len(names) > 1 else ""
    return ApiCall(
        client,
        _verb(method, query, named=bool(names)),
        group,
        "/".join(filter(None, (plural, subresource))),
    )


def _verb(method: str, query: Mapping[str, str], *, named: bool) -> str:
    if method in _VERBS:
        return "deletecollection" if method == "DELETE" and not named else _VERBS[method]
    if named:
        return "get"
    return "watch" if query.get("watch") in ("1", "true") else "list"
