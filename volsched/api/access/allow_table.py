"""What each role may do, as one table. What has no row, nobody may but an admin; a test wants one for every route.

docs/security.md prints it, and a test compares the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from volsched.api.access.callers import Role

READ = ("get", "list", "watch")
WRITE = ("create", "update", "patch", "delete", "deletecollection")
ALL = (*READ, *WRITE)
STATUS = ("get", "update", "patch")
TELL = ("create", "update", "patch")
OPEN = frozenset({"/healthz", "/livez", "/readyz"})
"""Answered without asking who it is."""

OURS = "volsched.io"
STORAGE = "storage.k8s.io"
DEVICES = "resource.k8s.io"
DESCRIBE, EXPLAIN, AS_OF = "describe", "explain", "asOf"
"""The one resource that is shown as it is, or with this in the query as it was: then it is history."""


@dataclass(frozen=True, slots=True)
class May:
    verbs: frozenset[str]
    own: bool = False
    """Only of the node that the caller is: itself, the pods bound to it, and the claims that they use."""


@dataclass(frozen=True, slots=True)
class AllowRow:
    group: str | None
    """None: a path that is no resource."""
    resource: str
    """`pods`, `pods/status`; `history/*` is all of it, with whatever stands below. A path may end in `*` too."""
    may: Mapping[Role, May] = field(default_factory=dict)
    known: frozenset[str] = frozenset()
    """Verbs for anybody who has said who they are."""
    recorded: bool = False
    """The history is read: who asked what becomes part of it."""


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
    """An auditor sees what a viewer sees, where nothing else is said; `own` is the node's, of what is its own."""
    given = {
        Role.VIEWER: viewer,
        Role.AUDITOR: viewer if auditor is None else auditor,
        Role.OPERATOR: operator,
        Role.PROVISIONER: provisioner,
        Role.EXTENDER: extender,
        Role.SCHEDULER: scheduler,
    }
    may = {role: May(frozenset(verbs)) for role, verbs in given.items() if verbs}
    if node or own:
        may[Role.NODE] = May(frozenset(node or own), own=bool(own))
    return AllowRow(group, resource, may, frozenset(known), recorded)


TABLE: tuple[AllowRow, ...] = (
    _row(
        "", "pods", viewer=READ, operator=ALL, own=(*READ, "delete"), provisioner=READ, scheduler=(*READ, "delete")
    ),
    _row("", "pods/status", viewer=("get",), operator=STATUS, own=STATUS, scheduler=("update", "patch")),
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
    _row(OURS, "attempts/*", viewer=READ, operator=READ, scheduler=READ),
    _row(OURS, f"{DESCRIBE}/*", viewer=READ, operator=READ),
    _row(OURS, f"{DESCRIBE}/{AS_OF}", auditor=READ, recorded=True),
    _row(OURS, f"{EXPLAIN}/*", viewer=("create", *READ), operator=("create", *READ), scheduler=("create", *READ)),
    _row(OURS, f"{EXPLAIN}/{AS_OF}", auditor=READ, recorded=True),
    _row(OURS, "simulate/*", viewer=("create", *READ), operator=("create", *READ)),
    _row(OURS, "reservations/*", viewer=READ, operator=ALL, scheduler=ALL),
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
    _row(None, "/version", known=("get",)),
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
