"""The API of a followed cluster: a request to change an object is answered with "ask the cluster itself".

The store holds what was observed; an object written here would be in no cluster. Reservations are not objects of
the cluster: a process that makes decisions accepts them. In a process that does not bind, the extender itself
refuses to bind.
"""

import re
from collections.abc import Awaitable, Callable, MutableMapping
from functools import cache
from typing import Any

from volsched.api.access.access_reviews import ACCESS, RULES, SELF
from volsched.api.kubernetes.negotiation import HttpAnswer
from volsched.api.kubernetes.statuses import ApiError
from volsched.api.questions.operations import BASE
from volsched.api.services import Services
from volsched.questions.registry import every_question

READS = frozenset({"GET", "HEAD", "OPTIONS"})
_ADVICE = frozenset({"/extender/filter", "/extender/prioritize", "/extender/preempt"})
_BIND = "/extender/bind"
_RESERVATIONS = re.compile(r"/apis/volsched\.io/v1/namespaces/[^/]+/reservations(/[^/]+(/renew)?)?")
_CONFIRM = re.compile(r"/apis/volsched\.io/v1/namespaces/[^/]+/reservations/[^/]+/confirm")
REFUSAL = (
    "this server observes a cluster and changes nothing; send it to the cluster itself, whose address is in the "
    "event ClusterAttached"
)
Message = MutableMapping[str, Any]


@cache
def _questions() -> "re.Pattern[str]":
    """Questions that are sent with POST because they are long; they change nothing."""
    paths = (
        path for it in every_question() for route in it.routes if route.method == "POST" for path in route.paths
    )
    return re.compile("|".join(re.escape(BASE) + re.sub(r"\{\w+\}", "[^/]+", path) for path in paths))


class ReadOnly:
    def __init__(self, app: Callable[..., Awaitable[None]], services: Services) -> None:
        self._app, self._services = app, services

    async def __call__(self, scope: Message, receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        if scope["type"] != "http" or self._is_allowed(scope["method"], scope["path"]):
            await self._app(scope, receive, send)
            return
        await HttpAnswer(ApiError(405, REFUSAL).status, 405).response()(scope, receive, send)

    def _is_allowed(self, method: str, path: str) -> bool:
        if is_read(method, path) or path == _BIND:
            # In a process that does not bind, the extender refuses in an answer that kube-scheduler reads.
            return True
        if self._services.binds and _CONFIRM.fullmatch(path):
            return True
        return self._services.reserves and _RESERVATIONS.fullmatch(path) is not None


def is_read(method: str, path: str) -> bool:
    if method in READS:
        return True
    if method != "POST":
        return False
    return path in _ADVICE or path in (ACCESS, RULES, SELF) or _questions().fullmatch(path) is not None
