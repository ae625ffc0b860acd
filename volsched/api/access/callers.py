"""Whose a request is.

The gate notes it in the context of the request's task, and whatever is written on the way takes its actor from
there: a route cannot forget to pass it on. Work that no request asked for has no caller.
"""

from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    VIEWER = "viewer"
    AUDITOR = "auditor"
    OPERATOR = "operator"
    ADMIN = "admin"
    NODE = "node"
    PROVISIONER = "provisioner"
    EXTENDER = "extender"
    SCHEDULER = "scheduler"
    """A scheduler in another process that binds pods and volumes over the API, such as kube-scheduler."""


NAMESPACED = frozenset({Role.VIEWER, Role.AUDITOR, Role.OPERATOR})
"""Roles that may be given for single namespaces; the others are about the cluster as a whole."""


@dataclass(frozen=True, slots=True)
class Grant:
    role: Role
    namespaces: frozenset[str] | None = None
    """None: everywhere, and what is in no namespace."""

    def covers(self, namespace: str | None) -> bool:
        return self.namespaces is None or namespace in self.namespaces


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    name: str
    """Of a node, that of the node."""
    actor: str
    """As the log names it: `token/NAME`, `cert/NAME`, `api/USER`."""
    grants: tuple[Grant, ...] = ()
    until: int | None = None
    """When it ends by itself, in microseconds since 1970."""


def local_caller(actor: str) -> Caller:
    """Who reaches us without TLS is on this machine, and acts as the one who started us."""
    return Caller(name=actor.rpartition("/")[2], actor=actor, grants=(Grant(Role.ADMIN),))


_current: ContextVar[Caller | None] = ContextVar("volsched_caller", default=None)
_reason: ContextVar[str | None] = ContextVar("volsched_reason", default=None)


def current_caller() -> Caller | None:
    return _current.get()


def note_caller(caller: Caller) -> None:
    """For the rest of this request's task."""
    _current.set(caller)


def current_reason() -> str | None:
    """Why it is done, in the caller's words; kept with what it writes."""
    return _reason.get()


def note_reason(reason: str | None) -> None:
    _reason.set(reason)
