"""The API of an observer: whoever wants to change an object is told to ask the cluster itself.

The store is what was observed; an object that somebody wrote here would be in no cluster.
"""

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from volsched.api.access.access_reviews import ACCESS, RULES, SELF
from volsched.api.kubernetes.negotiation import HttpAnswer
from volsched.api.kubernetes.statuses import ApiError

READS = frozenset({"GET", "HEAD", "OPTIONS"})
_QUESTIONS = re.compile(r"/apis/volsched\.io/v1/(namespaces/[^/]+/)?(explain|simulate)")
"""Sent as bodies because they are long; nothing is changed by them."""
REFUSAL = (
    "this server observes a cluster and changes nothing; send it to the cluster itself, whose address is in the "
    "event ClusterAttached"
)
Message = MutableMapping[str, Any]


class ReadOnly:
    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        if scope["type"] != "http" or is_read(scope["method"], scope["path"]):
            await self._app(scope, receive, send)
            return
        await HttpAnswer(ApiError(405, REFUSAL).status, 405).response()(scope, receive, send)


def is_read(method: str, path: str) -> bool:
    if method in READS:
        return True
    return method == "POST" and (path in (ACCESS, RULES, SELF) or _QUESTIONS.fullmatch(path) is not None)
