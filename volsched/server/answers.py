"""What a request is answered with, before it is bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.responses import Response

from volsched.server.negotiation import JSON

UNREAD = (408, 413)
"""Answers that are given before the whole body has come: the rest of it is not waited for."""


@dataclass(frozen=True, slots=True)
class Answer:
    body: Any
    code: int = 200
    warnings: Sequence[str] = ()

    def response(self) -> Response:
        response = Response(orjson.dumps(self.body), self.code, media_type=JSON)
        response.headers["cache-control"] = "no-cache, private"
        if self.code in UNREAD:
            response.headers["connection"] = "close"
        for warning in self.warnings:
            response.headers.append("warning", f'299 - "{_quoted(warning)}"')
        seconds = self.body.get("details", {}).get("retryAfterSeconds") if self.code >= 400 else None
        if seconds is not None:
            response.headers["retry-after"] = str(seconds)
        return response


def _quoted(text: str) -> str:
    """As a header can hold it."""
    safe = text.encode("ascii", "replace").decode()
    return "".join(char if char.isprintable() else "?" for char in safe).replace("\\", "\\\\").replace('"', '\\"')
