"""Classifies the responses of an API server: done, refused, outcome unknown, expired, or not served.

Uses only codes, headers and the structure of a `Status`: messages are for people, and change with versions.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from volsched.cluster.kubernetes.requests import JSON_PATCH, ApiRequest
from volsched.cluster.port import CallRefusedError, ClusterError, ExpiredError, Refusal, UnansweredError

TOO_LARGE_VERSION = "ResourceVersionTooLarge"
MOST_TEXT = 500
OVERLOADED = "the server is overloaded: try again in a moment"
BROKEN = "the server could not answer: try again, and see its log if that does not help"
"""Also for a body that is no Status, such as the error page of a proxy."""


class NotAuthenticatedError(ClusterError):
    """401: the server does not accept our credentials, or no longer. Nothing was written."""


class UnservedError(CallRefusedError):
    """404 without the name of an object: the server has no such kind."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            Refusal.NOT_FOUND,
            f"the server does not serve {kind}; it is older than the kind, or the kind is disabled there: "
            "leave it out or upgrade the server",
        )
        self.kind = kind


class StreamedListRefusedError(ClusterError):
    """The server does not stream lists: use pages."""


class LaggingError(UnansweredError):
    """A replica has not reached the requested version: repeat the request with the same version."""


def status_of(body: bytes) -> Mapping[str, Any]:
    """The `Status` in the body; empty for the plain text of a proxy or the rate limiter."""
    try:
        read = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return read if isinstance(read, dict) and read.get("kind") == "Status" else {}


def error_of(request: ApiRequest, code: int, headers: Mapping[str, str], body: bytes) -> ClusterError | None:
    """The error for the caller; None for success."""
    if 200 <= code < 300:
        return None
    status = status_of(body)
    message = f"{request.what}: {_message(status, body, code)}"
    match code:
        case 401:
            return NotAuthenticatedError(message)
        case 403:
            return CallRefusedError(Refusal.FORBIDDEN, message)
        case 404:
            return _not_found(request, status, message)
        case 409:
            exists = status.get("reason") == "AlreadyExists"
            return CallRefusedError(Refusal.EXISTS if exists else Refusal.CONFLICT, message)
        case 410:
            return ExpiredError(request.kind, message)
        case 422:
            return _invalid(request, status, message)
        case 400 | 405 | 406 | 413 | 415:
            return CallRefusedError(Refusal.INVALID, message)
    wait = retry_after(headers, status)
    if code == 504 and TOO_LARGE_VERSION in _causes(status, "reason"):
        return LaggingError(message, retry_after=wait)
    remedy = OVERLOADED if code == 429 else BROKEN
    return UnansweredError(f"{message}; {remedy}", retry_after=wait)


def error_in_stream(request: ApiRequest, status: Mapping[str, Any]) -> ClusterError:
    """The error of an ERROR event in a watch: the same as for a response with its Status."""
    body = orjson.dumps({**status, "kind": "Status"})
    code = status.get("code")
    error = error_of(request, code if isinstance(code, int) else 500, {}, body)
    return error or UnansweredError(f"{request.what}: an ERROR event without an error")


def retry_after(headers: Mapping[str, str], status: Mapping[str, Any]) -> float | None:
    """The delay in seconds, from the header or the Status; API servers send no date, so a date is ignored."""
    header = {name.lower(): value for name, value in headers.items()}.get("retry-after", "")
    if header.strip().isdecimal():
        return float(header)
    seconds = (status.get("details") or {}).get("retryAfterSeconds")
    return float(seconds) if isinstance(seconds, int | float) and seconds > 0 else None


def _not_found(request: ApiRequest, status: Mapping[str, Any], message: str) -> ClusterError:
    names = (status.get("details") or {}).get("name")
    return (
        CallRefusedError(Refusal.NOT_FOUND, message) if names or not request.kind else UnservedError(request.kind)
    )


def _invalid(request: ApiRequest, status: Mapping[str, Any], message: str) -> ClusterError:
    if "sendInitialEvents" in request.query and "sendInitialEvents" in _causes(status, "field"):
        return StreamedListRefusedError(message)
    if not status.get("details") and request.content_type == JSON_PATCH:
        # A `test` of the patch failed: the object changed since it was read.
        return CallRefusedError(Refusal.CONFLICT, message)
    return CallRefusedError(Refusal.INVALID, message)


def _causes(status: Mapping[str, Any], part: str) -> set[str]:
    causes = (status.get("details") or {}).get("causes") or ()
    return {str(cause.get(part)) for cause in causes if isinstance(cause, dict)}


def _message(status: Mapping[str, Any], body: bytes, code: int) -> str:
    text = status.get("message") or body[:MOST_TEXT].decode("utf-8", "replace").strip()
    return f"{text or 'no reason given'} ({code})"
