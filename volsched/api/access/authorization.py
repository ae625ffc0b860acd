"""The attributes of a request, the rights of each role, and Kubernetes' message for a refusal."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from volsched.api.access.callers import Caller, Role
from volsched.api.kubernetes.queries import parse_field_selector
from volsched.api.kubernetes.resources import CORE, NAMESPACES, RequestTarget, parse_path, resource_at
from volsched.api.kubernetes.statuses import ApiError
from volsched.kube.kinds import KINDS
from volsched.kube.workloads import Pod
from volsched.log.database import Database
from volsched.log.reads.lookups import node_of_pod, pods_on
from volsched.scheduling.rules.pod_claims import claim_uses

# The rights of each role, as one table. What has no row is for admins only; a test requires a row for every route.
#
# docs/security.md prints it, and a test compares the two.

READ = ("get", "list", "watch")
WRITE = ("create", "update", "patch", "delete", "deletecollection")
ALL = (*READ, *WRITE)
STATUS = ("get", "update", "patch")
TELL = ("create", "update", "patch")
OPEN = frozenset({"/healthz", "/livez", "/readyz"})
"""Answered without authentication."""
CONSOLE = "/ui/"
"""The console's files need no authentication either: they are the same for all, and contain no data."""

OURS = "volsched.io"
STORAGE = "storage.k8s.io"
DEVICES = "resource.k8s.io"
DESCRIBE, EXPLAIN, MAP, GLANCE, SIMULATE, AS_OF = "describe", "explain", "map", "status", "simulate", "asOf"
SHOWN = (DESCRIBE, EXPLAIN, MAP, GLANCE, SIMULATE)
"""Resources that are shown as they are now or, with `asOf` in the query, as they were: a read of history."""


@dataclass(frozen=True, slots=True)
class May:
    verbs: frozenset[str]
    own: bool = False
    """Only for the caller's own node: the node itself, the pods bound to it, and the claims that they use."""


@dataclass(frozen=True, slots=True)
class AllowRow:
    group: str | None
    """None: a path that is not a resource."""
    resource: str
    """`pods`, `pods/status`; `history/*` is the resource and everything below it. A path may end in `*` too."""
    may: Mapping[Role, May] = field(default_factory=dict)
    known: frozenset[str] = frozenset()
    """Verbs for any authenticated caller."""
    recorded: bool = False
    """Whether it reads history: then the caller and the question are recorded in the history."""


Verbs = tuple[str, ...]
_NO: Verbs = ()


def _row(
    group: str | None,
    resource: str,
    *,
    viewer: Verbs = _NO,
    auditor: Verbs | None = None,
    operator: Verbs = _NO,
    node: Verbs = _NO,
    own: Verbs = _NO,
    provisioner: Verbs = _NO,
    extender: Verbs = _NO,
    scheduler: Verbs = _NO,
    known: Verbs = _NO,
    recorded: bool = False,
) -> AllowRow:
    """An auditor has a viewer's rights, unless stated otherwise; `own` are a node's rights to its own objects."""
    verbs_by_role = {
        Role.VIEWER: viewer,
        Role.AUDITOR: viewer if auditor is None else auditor,
        Role.OPERATOR: operator,
        Role.PROVISIONER: provisioner,
        Role.EXTENDER: extender,
        Role.SCHEDULER: scheduler,
    }
    may = {role: May(frozenset(verbs)) for role, verbs in verbs_by_role.items() if verbs}
    if node or own:
        may[Role.NODE] = May(frozenset(node or own), own=bool(own))
    return AllowRow(group, resource, may, frozenset(known), recorded)


TABLE: tuple[AllowRow, ...] = (
    _row(
        "", "pods", viewer=READ, operator=ALL, own=(*READ, "delete"), provisioner=READ, scheduler=(*READ, "delete")
    ),
    _row("", "pods/status", viewer=("get",), operator=STATUS, own=STATUS, scheduler=("update", "patch")),
    _row("", "pods/eviction", operator=("create",)),
    _row("", "pods/binding", operator=("create",), scheduler=("create",)),
    _row("", "nodes", viewer=READ, operator=ALL, node=READ, provisioner=READ, scheduler=READ),
    _row("", "nodes/status", viewer=("get",), operator=STATUS, own=STATUS),
    _row("", "namespaces", viewer=READ, operator=ALL, scheduler=READ),
    _row("", "namespaces/status", viewer=("get",), operator=STATUS),
    _row(
        "",
        "persistentvolumes",
        viewer=READ,
        operator=ALL,
        node=READ,
        provisioner=ALL,
        scheduler=(*READ, "update", "patch"),
    ),
    _row("", "persistentvolumes/status", viewer=("get",), operator=STATUS, provisioner=STATUS),
    _row(
        "",
        "persistentvolumeclaims",
        viewer=READ,
        operator=ALL,
        node=READ,
        provisioner=(*READ, "update", "patch"),
        scheduler=(*READ, "update", "patch"),
    ),
    _row("", "persistentvolumeclaims/status", viewer=("get",), operator=STATUS, own=STATUS, provisioner=STATUS),
    _row("", "events", viewer=READ, operator=ALL, node=TELL, provisioner=(*READ, *TELL), scheduler=TELL),
    _row("", "services", viewer=READ, operator=ALL, scheduler=READ),
    _row("", "services/status", viewer=("get",), operator=STATUS),
    _row("", "replicationcontrollers", viewer=READ, operator=READ, scheduler=READ),
    _row(
        "events.k8s.io",
        "events",
        viewer=READ,
        operator=ALL,
        node=TELL,
        provisioner=(*READ, *TELL),
        scheduler=TELL,
    ),
    _row("apps", "statefulsets", viewer=READ, operator=ALL, scheduler=READ),
    _row("apps", "statefulsets/status", viewer=("get",), operator=STATUS),
    _row("apps", "statefulsets/scale", viewer=("get",), operator=STATUS),
    _row("apps", "controllerrevisions", viewer=READ, operator=ALL),
    _row("apps", "replicasets", viewer=READ, operator=READ, scheduler=READ),
    _row("policy", "poddisruptionbudgets", viewer=READ, operator=ALL, scheduler=READ),
    _row("policy", "poddisruptionbudgets/status", viewer=("get",), operator=STATUS),
    _row("scheduling.k8s.io", "priorityclasses", viewer=READ, operator=ALL, scheduler=READ),
    _row("coordination.k8s.io", "leases", viewer=READ, operator=ALL, scheduler=("get", "create", "update")),
    _row(DEVICES, "resourceclaims", viewer=READ, operator=READ, scheduler=READ),
    _row(DEVICES, "resourceslices", viewer=READ, operator=READ, scheduler=READ),
    _row(DEVICES, "deviceclasses", viewer=READ, operator=READ, scheduler=READ),
    _row(DEVICES, "devicetaintrules", viewer=READ, operator=READ, scheduler=READ),
    _row(STORAGE, "storageclasses", viewer=READ, operator=ALL, node=READ, provisioner=READ, scheduler=READ),
    _row(STORAGE, "csidrivers", viewer=READ, operator=ALL, node=READ, provisioner=READ, scheduler=READ),
    _row(STORAGE, "csinodes", viewer=READ, operator=ALL, own=STATUS, provisioner=READ, scheduler=READ),
    _row(STORAGE, "csistoragecapacities", viewer=READ, operator=ALL, provisioner=ALL, scheduler=READ),
    _row(STORAGE, "volumeattachments", viewer=READ, operator=ALL, node=READ, provisioner=READ, scheduler=READ),
    _row(STORAGE, "volumeattachments/status", viewer=("get",), operator=STATUS),
    _row(OURS, "bindings/*", viewer=READ, operator=READ, scheduler=READ),
    _row(OURS, "bindings/steps", auditor=READ, recorded=True),
    _row(OURS, "bindings/cancel", operator=("create",)),
    _row(OURS, "volumes/*", operator=("create",)),
    _row(OURS, "attempts/*", viewer=READ, operator=READ, scheduler=READ),
    _row(OURS, f"{DESCRIBE}/*", viewer=READ, operator=READ),
    _row(OURS, f"{DESCRIBE}/{AS_OF}", auditor=READ, recorded=True),
    _row(OURS, f"{EXPLAIN}/*", viewer=("create", *READ), operator=("create", *READ), scheduler=("create", *READ)),
    _row(OURS, f"{EXPLAIN}/{AS_OF}", auditor=READ, recorded=True),
    _row(OURS, f"{MAP}/*", viewer=READ, operator=READ),
    _row(OURS, f"{MAP}/{AS_OF}", auditor=READ, recorded=True),
    _row(OURS, "timeline/*", viewer=READ, operator=READ),
    _row(OURS, f"{SIMULATE}/*", viewer=("create", *READ), operator=("create", *READ)),
    _row(OURS, f"{SIMULATE}/{AS_OF}", auditor=("create", *READ), recorded=True),
    _row(OURS, "reservations/*", viewer=READ, operator=ALL, scheduler=ALL),
    _row(OURS, f"{GLANCE}/*", viewer=READ, operator=READ),
    _row(OURS, f"{GLANCE}/{AS_OF}", auditor=READ, recorded=True),
    _row(OURS, "effects/*", viewer=READ, operator=ALL),
    _row(OURS, "leases/*", viewer=READ, operator=ALL),
    _row(OURS, "verify/*", auditor=("create", *READ), operator=("create", *READ)),
    _row(OURS, "history/*", auditor=READ, recorded=True),
    _row(OURS, "audit/*", auditor=READ, recorded=True),
    _row(OURS, "diff/*", auditor=READ, recorded=True),
    _row(OURS, "export/*", auditor=READ, recorded=True),
    _row("authorization.k8s.io", "selfsubjectaccessreviews", known=("create",)),
    _row("authorization.k8s.io", "selfsubjectrulesreviews", known=("create",)),
    _row("authentication.k8s.io", "selfsubjectreviews", known=("create",)),
    _row(None, "/extender/*", extender=("get", "post")),
    _row(None, "/metrics", viewer=("get",), operator=("get",)),
    _row(None, "/", known=("get",)),
    _row(None, "/version", known=("get",)),
    _row(None, "/ui/*", known=("get",)),
    _row(None, "/openapi/*", known=("get",)),
    _row(None, "/api", known=("get",)),
    _row(None, "/api/*", known=("get",)),
    _row(None, "/apis", known=("get",)),
    _row(None, "/apis/*", known=("get",)),
)

_ROWS = {(row.group, row.resource): row for row in TABLE}


def row_of(group: str, resource: str, subresource: str | None) -> AllowRow | None:
    exact = _ROWS.get((group, f"{resource}/{subresource}" if subresource else resource))
    return exact or _ROWS.get((group, f"{resource}/*"))


def row_of_path(path: str) -> AllowRow | None:
    exact = _ROWS.get((None, path))
    below = (row for row in TABLE if row.group is None and row.resource.endswith("/*"))
    return exact or next((row for row in below if path.startswith(row.resource[:-1])), None)


# The attributes of a request in authorization's terms: Kubernetes' verb, group, resource and name.
#
# Paths in Kubernetes' form are parsed by the same function that serves them (`resources.parse_path`), so that no
# path can mean one thing to the gate and another behind it. Other routes are matched on the decoded path, and so
# it is parsed here; a path with an encoded slash inside a segment has no row.

_FALSE = ("false", "0", "f", "False", "FALSE")
_VERBS = {"PUT": "update", "PATCH": "patch", "HEAD": "get"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAttributes:
    verb: str
    path: str
    group: str | None = None
    """None: the path is not a resource."""
    resource: str = ""
    subresource: str | None = None
    namespace: str | None = None
    name: str | None = None
    hidden: bool = False
    """The path is ambiguous."""

    @property
    def row(self) -> AllowRow | None:
        if self.hidden:
            return None
        if self.group is None:
            return row_of_path(self.path)
        return row_of(self.group, self.resource, self.subresource)


def attributes_of(method: str, raw_path: str, path: str, query: Mapping[str, str]) -> RequestAttributes:
    """`raw_path` is as it was sent, `path` decoded; `query` as the routes read it, the last of equal names."""
    place = parse_path(raw_path)
    if isinstance(place, RequestTarget):
        attributes = RequestAttributes(
            verb=_verb(method, place.name, query),
            path=path,
            group=place.resource.group,
            resource=place.resource.plural,
            subresource=place.subresource,
            namespace=place.namespace,
            name=place.name,
        )
        namespace = namespace_for(attributes)
        return attributes if namespace == attributes.namespace else replace(attributes, namespace=namespace)
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


def namespace_for(attributes: RequestAttributes) -> str | None:
    """The namespace that must be granted: read access within a namespace includes the namespace object."""
    reads_namespace = (attributes.group, attributes.resource, attributes.verb) == (CORE, NAMESPACES, "get")
    return attributes.name if reads_namespace else attributes.namespace


def _of_segments(
    method: str, path: str, query: Mapping[str, str], group: str, rest: list[str]
) -> RequestAttributes:
    namespace = None
    if rest[0] == NAMESPACES and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    name = rest[1] if len(rest) > 1 else None
    # Access to present objects does not include access to their history.
    past = group == OURS and rest[0] in SHOWN and query.get(AS_OF, "") != ""
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


NODES = ("nodes", "csinodes")
"""The resources that represent a node itself, by its name."""


class AccessVerdict(Enum):
    NO = auto()
    YES = auto()
    IF_OWN = auto()
    """If it belongs to the caller's node; the names in the request do not show that."""


def judge(caller: Caller, attributes: RequestAttributes) -> AccessVerdict:
    row = attributes.row
    verdict = AccessVerdict.NO
    if row is not None and attributes.verb in row.known:
        return AccessVerdict.YES
    for grant in caller.grants:
        if not grant.covers(attributes.namespace):
            continue
        if grant.role is Role.ADMIN:
            return AccessVerdict.YES
        may = None if row is None else row.may.get(grant.role)
        if may is None or attributes.verb not in may.verbs:
            continue
        if not may.own:
            return AccessVerdict.YES
        verdict = _verdict_on_own(caller, attributes)
        if verdict is AccessVerdict.YES:
            return verdict
    return verdict


def _verdict_on_own(caller: Caller, attributes: RequestAttributes) -> AccessVerdict:
    if attributes.resource in NODES:
        return AccessVerdict.YES if attributes.name == caller.name else AccessVerdict.NO
    return AccessVerdict.IF_OWN


def is_open(attributes: RequestAttributes) -> bool:
    return (attributes.path in OPEN or attributes.path.startswith(CONSOLE)) and attributes.verb == "get"


def forbidden(caller: Caller, attributes: RequestAttributes) -> ApiError:
    if attributes.group is None:
        return ApiError(403, f'forbidden: User "{caller.name}" cannot {attributes.verb} path "{attributes.path}"')
    resource = f"{attributes.resource}/{attributes.subresource}" if attributes.subresource else attributes.resource
    qualified = f"{attributes.resource}.{attributes.group}" if attributes.group else attributes.resource
    where = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    named = f' "{attributes.name}"' if attributes.name else ""
    message = (
        f'{qualified}{named} is forbidden: User "{caller.name}" cannot {attributes.verb} resource "{resource}" '
        f'in API group "{attributes.group}" {where}'
    )
    details = {"name": attributes.name, "group": attributes.group, "kind": attributes.resource}
    return ApiError(403, message, details={key: value for key, value in details.items() if value})


# Objects of a node: the pods that are bound to it, and the claims that these use.


def selects_own(query: Mapping[str, str], node: str) -> bool:
    """Whether a list or watch of pods selects only those of the node."""
    pods = resource_at("", "v1", "pods")
    assert pods is not None
    terms = parse_field_selector(query.get("fieldSelector", ""), pods)
    return any((it.field, it.equal, it.value) == ("spec.nodeName", True, node) for it in terms)


def is_own(database: Database, attributes: RequestAttributes, node: str) -> bool:
    """Whether the pod is bound to the node, or the claim used by such a pod. Missing objects belong to no node."""
    with database.read() as connection:
        if attributes.resource == "pods":
            return node_of_pod(connection, f"{attributes.namespace}/{attributes.name}") == node
        if attributes.resource != "persistentvolumeclaims":
            return False
        pods = map(KINDS["Pod"].read, pods_on(connection, node, namespace=str(attributes.namespace)))
        return any(use.name == attributes.name for pod in pods if isinstance(pod, Pod) for use in claim_uses(pod))
