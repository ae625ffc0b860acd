"""What a request is answered with, before it is bytes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
from starlette.responses import Response

from volsched.api.kubernetes.negotiation import JSON

UNREAD = (408, 413)
"""Answers that are given before the whole body has come: the rest of it is not waited for."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    body: Any
    """JSON where it is bytes."""
    code: int = 200
    warnings: Sequence[str] = ()
    headers: Mapping[str, str] = field(default_factory=dict)

    def spelled(self) -> "HttpAnswer":
        """The same as JSON, for threads: of large answers it takes a while, and others wait in the loop."""
        return replace(self, body=orjson.dumps(self.body))

    def response(self) -> Response:
        content = self.body if isinstance(self.body, bytes) else orjson.dumps(self.body)
        response = Response(content, self.code, media_type=JSON)
        response.headers["cache-control"] = "no-cache, private"
        response.headers.update(self.headers)
        if self.code in UNREAD:
            response.headers["connection"] = "close"
        for warning in self.warnings:
            response.headers.append("warning", f'299 - "{_quoted(warning)}"')
        told = self.body if self.code >= 400 and isinstance(self.body, dict) else {}
        seconds = told.get("details", {}).get("retryAfterSeconds")
        if seconds is not None:
            response.headers["retry-after"] = str(seconds)
        return response


def _quoted(text: str) -> str:
    """As a header can hold it."""
    safe = text.encode("ascii", "replace").decode()
    return "".join(char if char.isprintable() else "?" for char in safe).replace("\\", "\\\\").replace('"', '\\"')
