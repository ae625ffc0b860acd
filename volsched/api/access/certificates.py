"""Whose a client certificate is: CN is the user, each `volsched:ROLE` or `volsched:ROLE:NAMESPACE` of O a role.

The handshake has verified it by then. What is asked here is what the handshake cannot know: connections live for
hours, and the certificate may have run out since.
"""

import ssl
from collections.abc import Iterable, Mapping
from typing import Any

from volsched.api.access.callers import NAMESPACED, Caller, Grant, Role
from volsched.api.access.tokens import UnauthorizedError
from volsched.runtime.clock import SECOND

PREFIX = "volsched:"
LONGEST_NAME = 253
Certificate = Mapping[str, Any]
"""As `ssl.SSLSocket.getpeercert` tells it."""


def caller_of(certificate: Certificate, *, now: int) -> Caller:
    names = _values(certificate, "commonName")
    if len(names) != 1 or not names[0].isprintable() or not 0 < len(names[0]) <= LONGEST_NAME:
        raise UnauthorizedError("Unauthorized: the certificate names no user, or several, as its CN")
    until = ssl.cert_time_to_seconds(certificate["notAfter"]) * SECOND
    if now >= until:
        raise UnauthorizedError(f'Unauthorized: the certificate of "{names[0]}" has expired; have one issued anew')
    grants = (_grant(it) for it in _values(certificate, "organizationName"))
    return Caller(
        name=names[0], actor=f"cert/{names[0]}", grants=tuple(it for it in grants if it is not None), until=until
    )


def organizations(roles: Iterable[Role], namespaces: Iterable[str] | None) -> list[str]:
    """What stands in a certificate that is to grant these."""
    if namespaces is None:
        return [f"{PREFIX}{role}" for role in roles]
    return [f"{PREFIX}{role}:{namespace}" for role in roles for namespace in namespaces]


def _grant(organization: str) -> Grant | None:
    if not organization.startswith(PREFIX):
        return None
    role, separator, namespace = organization.removeprefix(PREFIX).partition(":")
    if role not in tuple(Role):
        return None
    if not separator:
        return Grant(Role(role))
    # One that is meant for a part must never become one for the whole.
    return Grant(Role(role), frozenset({namespace})) if role in NAMESPACED and namespace else None


def _values(certificate: Certificate, attribute: str) -> list[str]:
    return [value for part in certificate.get("subject", ()) for name, value in part if name == attribute]
