"""Who may talk to a server that knows no passwords yet: programs of this machine, and no web page.

It listens on loopback only, as `kubectl proxy` does. A browser reaches that too, so requests that were addressed
to another host (DNS rebinding), or that a page of another origin has sent, are refused.
"""

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from volsched.server.answers import Answer
from volsched.server.statuses import ApiError

LOCALHOST = "localhost"
NOT_FOR_YOU = "only programs of this machine are served, under the names localhost, 127.0.0.1 and [::1]"


def is_loopback(host: str) -> bool:
    if host == LOCALHOST:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_local(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Does the request name this machine, and come from no page of another?"""
    for name, value in headers:
        text = value.decode("latin-1")
        if name == b"host" and not is_loopback(_host(f"//{text}")):
            return False
        if name == b"origin" and not is_loopback(_host(text)):
            return False
    return True


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


class LocalOnly:
    """Refuses what `is_local` does not let through, before anything else looks at it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not is_local(scope["headers"]):
            error = ApiError(403, NOT_FOR_YOU)
            await Answer(error.status, error.code).response()(scope, receive, send)
            return
        await self._app(scope, receive, send)
