"""The permissions of each mode in a cluster: the one table behind its role, its check at start and its test.

A mode is added by an entry of `MODES`. `volsched manifests` then prints its role (`role_rules`), and
`tests/cluster/kubernetes/test_permissions.py` requires a run of the mode against the strict server: every call
that the server saw (`GET /strict/calls`) must be in the role, and every verb of the role must have been called.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from volsched.cluster.installation_lock import NAMESPACE, lock_name
from volsched.cluster.port import PLURALS, Permission
from volsched.cluster.projection import OBSERVED_KINDS
from volsched.kube.meta import SCHEDULER_NAME

READS = ("get", "list", "watch")
WRITES = ("create", "update", "patch", "delete")
OBSERVE, ADVISE, GATE_MODE, OWN = "observe", "advise", "gate", "own"
EVENTS_GROUP = "events.k8s.io"
COORDINATION_GROUP = "coordination.k8s.io"

_OBSERVES = (
    # Identifies the cluster: the uid of kube-system. No other object is read by name.
    Permission("get", "Namespace"),
    *(Permission(verb, kind) for kind in OBSERVED_KINDS for verb in ("list", "watch")),
)
WATCHED_KINDS = tuple(kind for kind in OBSERVED_KINDS if kind != "Event")
"""Kinds watched by the modes that decide: they create events at most, and read none."""
_FOLLOWS = (
    Permission("get", "Namespace"),
    *(Permission(verb, kind) for kind in WATCHED_KINDS for verb in ("list", "watch")),
)
_BINDS_CLAIMS = (
    # After a refused or unanswered write, the writer reads the objects again.
    *(Permission("get", kind) for kind in ("PersistentVolume", "PersistentVolumeClaim", "Pod", "Node")),
    Permission("patch", "PersistentVolume"),
    Permission("patch", "PersistentVolumeClaim"),
    Permission("patch", "Pod", "status"),
    Permission("create", "Event", group=EVENTS_GROUP),
)


def _locks(name: str) -> tuple[Permission, ...]:
    """The installation lock. A role cannot limit `create` to a name: the name is not in the request's path."""
    named = {"group": COORDINATION_GROUP, "namespace": NAMESPACE}
    return (
        Permission("create", "Lease", **named),
        *(Permission(verb, "Lease", **named, name=name) for verb in ("get", "update")),
    )


LOCKS = {OWN: lock_name(SCHEDULER_NAME), GATE_MODE: lock_name(None)}
"""Mode → the name of its installation lock."""
_OWNS = (*_FOLLOWS, *_BINDS_CLAIMS, Permission("create", "Pod", "binding"), *_locks(LOCKS[OWN]))
_GATES = (*_FOLLOWS, *_BINDS_CLAIMS, Permission("patch", "Pod"), *_locks(LOCKS[GATE_MODE]))
MODES: Mapping[str, tuple[Permission, ...]] = {
    OBSERVE: _OBSERVES,
    ADVISE: _FOLLOWS,
    GATE_MODE: _GATES,
    OWN: _OWNS,
}
"""Mode → exactly the permissions that it needs. Access reviews of oneself need none."""


_WRITTEN_KINDS = ("Pod", "Node", "PersistentVolume", "PersistentVolumeClaim")


def excess_of_observer() -> tuple[Permission, ...]:
    """Permissions that an observer should not have: it writes nothing even with them, but cannot prove that."""
    return (
        *(Permission(verb, kind) for kind in OBSERVED_KINDS for verb in WRITES),
        # Other ways to change pods, nodes and volumes.
        *(Permission("deletecollection", kind) for kind in _WRITTEN_KINDS),
        *(Permission("patch", kind, "status") for kind in _WRITTEN_KINDS),
        *(Permission("create", "Pod", subresource) for subresource in ("binding", "eviction", "exec")),
    )


def resource_of(permission: Permission) -> tuple[str, str]:
    """Group and resource, as a role names them: `("", "pods/binding")`."""
    below = f"/{permission.subresource}" if permission.subresource else ""
    return permission.api_group, f"{PLURALS[permission.kind]}{below}"


def role_rules(permissions: Iterable[Permission], *, namespace: str = "") -> list[dict[str, Any]]:
    """The rules of a role, one for the resources of a group that have the same verbs.

    They are those of the cluster-wide role, or of the role in `namespace`.
    """
    verbs: dict[tuple[str, str, str], list[str]] = {}
    for permission in permissions:
        if permission.namespace == namespace:
            verbs.setdefault((*resource_of(permission), permission.name), []).append(permission.verb)
    rules: dict[tuple[str, tuple[str, ...], str], list[str]] = {}
    for (group, resource, name), held in sorted(verbs.items()):
        rules.setdefault((group, tuple(sorted(held)), name), []).append(resource)
    return [
        {
            "apiGroups": [group],
            "resources": resources,
            "verbs": list(held),
            **({"resourceNames": [name]} if name else {}),
        }
        for (group, held, name), resources in sorted(rules.items())
    ]
