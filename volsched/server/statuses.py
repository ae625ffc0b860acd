"""Answers that are no objects: Kubernetes' `Status`, with the code and the reason that its clients act upon."""

from collections.abc import Mapping, Sequence
from typing import Any

from volsched.core.objects import AlreadyExistsError, InvalidError, NotFoundError, ObjectError, StaleError
from volsched.engine.writer import OverloadedError, WriterClosedError
from volsched.events.catalogue import CatalogueError
from volsched.model.problems import Defect
from volsched.server.paths import Target
from volsched.store.commands import RejectedError
from volsched.store.errors import ArchivedError, ConnectionLostError, StoreError

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    408: "Timeout",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
RETRY_AFTER_SECONDS = 1
UNSERVED = "the server could not find the requested resource"
INTERNAL = "the server failed to carry the request out; its log says why"


class ApiError(Exception):
    """A request that is answered with a Status."""

    def __init__(
        self, code: int, message: str, *, reason: str | None = None, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason or REASONS[code]
        self.details = details or {}

    @property
    def status(self) -> dict[str, Any]:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            **({"details": dict(self.details)} if self.details else {}),
            "code": self.code,
        }


def success(target: Target, uid: str | None, *, code: int = 200) -> dict[str, Any]:
    """What an act is answered with that leaves no object."""
    details = _details(target) | ({"uid": uid} if uid else {})
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return status | ({"details": details} if code == 200 else {"code": code})


def error_of(error: Exception, target: Target) -> ApiError:
    """How a refused or failed write is told to a Kubernetes client."""
    match error:
        case ApiError():
            return error
        case NotFoundError():
            return not_found(target)
        case AlreadyExistsError():
            message = f'{target.resource.plural} "{target.name}" already exists'
            return ApiError(409, message, reason="AlreadyExists", details=_details(target))
        case StaleError():
            message = (
                f'Operation cannot be fulfilled on {_qualified(target)} "{target.name}": {error}; '
                "the object has been modified; please apply your changes to the latest version and try again"
            )
            return ApiError(409, message, details=_details(target))
        case InvalidError():
            return invalid(target, error.defects)
        case ObjectError():
            return ApiError(error.code, str(error), details=_details(target))
        case _:
            return store_error(error)


def store_error(error: Exception) -> ApiError:
    """What the store says of itself; anything else is ours, and no business of a client's."""
    again = {"retryAfterSeconds": RETRY_AFTER_SECONDS}
    match error:
        case ApiError():
            return error
        case OverloadedError():
            return ApiError(429, str(error), details=again)
        case WriterClosedError() | ConnectionLostError():
            return ApiError(503, str(error), details=again)
        case ArchivedError():
            return expired(str(error))
        case RejectedError():
            return ApiError(409, str(error))
        case CatalogueError():
            return ApiError(422, str(error))
        case StoreError():
            return ApiError(500, str(error))
        case _:
            return ApiError(500, INTERNAL)


def not_found(target: Target) -> ApiError:
    return ApiError(404, f'{_qualified(target)} "{target.name}" not found', details=_details(target))


def invalid(target: Target, defects: Sequence[Defect]) -> ApiError:
    causes = [{"reason": "FieldValueInvalid", "message": str(it), "field": it.field} for it in defects]
    told = "; ".join(str(defect) for defect in defects)
    message = f'{target.resource.kind.name} "{target.name or ""}" is invalid: {told}'
    return ApiError(422, message, details=_details(target) | {"kind": target.resource.kind.name, "causes": causes})


def expired(message: str) -> ApiError:
    return ApiError(410, message)


def too_large_version(asked: int, head: int) -> ApiError:
    """As Kubernetes says it: clients look for the cause, and list without a version."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {asked}, current: {head}"
    return ApiError(504, message, details={"causes": [cause], "retryAfterSeconds": RETRY_AFTER_SECONDS})


def _qualified(target: Target) -> str:
    resource = target.resource
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def _details(target: Target) -> dict[str, Any]:
    named = {"name": target.name, "group": target.resource.group, "kind": target.resource.plural}
    return {field: value for field, value in named.items() if value}
