"""Answers that are not objects: Kubernetes' `Status`, with the code and the reason that its clients act on."""

from collections.abc import Mapping, Sequence
from typing import Any

from volsched.api.kubernetes.resources import BINDING, EVICTION, RequestTarget
from volsched.kube.problems import Defect
from volsched.kube.validation.field_errors import FieldError
from volsched.log.commands import ConflictError, RejectedError
from volsched.log.database import FULL
from volsched.log.errors import ArchivedError, ConnectionLostError, FullError, ReplacedError, StoreError
from volsched.log.events.catalogue import CatalogueError
from volsched.objects.rules.admission import NAMESPACE, NoNamespaceError, TerminatingError
from volsched.objects.rules.evictions import DisruptionError, SeveralBudgetsError
from volsched.objects.rules.object_events import (
    AlreadyExistsError,
    FieldsOwnedError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ObjectError,
    UntypedPatchError,
)
from volsched.objects.rules.pod_assignment import UnboundError
from volsched.runtime.writer import EndedError, OverloadedError, WriterClosedError

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
    507: "InsufficientStorage",
}
RETRY_AFTER_SECONDS = 1
FULL_RETRY_SECONDS = 10
UNANSWERED = "the database does not answer; try again later"
UNSERVED = "the server could not find the requested resource"
IN_CONTAINERS = frozenset({"attach", "exec", "ephemeralcontainers", "log", "portforward", "proxy"})
"""Subresources that a kubelet serves for its pods."""


def unserved(path: str) -> str:
    """The message for a path that is not served."""
    segments = path.rstrip("/").split("/")
    if len(segments) > 2 and segments[-3] == "pods" and segments[-1] in IN_CONTAINERS:
        return (
            f"pods/{segments[-1]} is not served: volsched places pods and binds volumes, and runs no containers; "
            "see what became of the pod with kubectl describe pod or volsched history pod"
        )
    return UNSERVED


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
UNEXPLAINED = ""
"""The reason of errors that Kubernetes passes through, always with code 500."""
OPTIONS_GROUP = "meta.k8s.io"
_PRECONDITIONS = {"uid": "UID", "resourceVersion": "ResourceVersion"}
"""A precondition of a client → Kubernetes' name for it in the answer."""
INTERNAL = "the server failed to carry the request out; its log says why"


class ApiError(Exception):
    """A request that is answered with a Status."""

    def __init__(
        self, code: int, message: str, *, reason: str | None = None, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = REASONS[code] if reason is None else reason
        self.details = details or {}

    @property
    def status(self) -> dict[str, Any]:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            **({"reason": self.reason} if self.reason else {}),
            **({"details": dict(self.details)} if self.details else {}),
            "code": self.code,
        }


def success(target: RequestTarget, uid: str | None, *, code: int = 200) -> dict[str, Any]:
    """The answer to an operation that leaves no object."""
    details = _details(target) | ({"uid": uid} if uid else {})
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return status | ({"details": details} if code == 200 else {"code": code})


def error_of(error: Exception, target: RequestTarget, *, deletion: bool = False) -> ApiError:
    """The answer to a Kubernetes client for a refused or failed write."""
    match error:
        case ApiError():
            return error
        case NoNamespaceError():
            return ApiError(404, str(error), details={"name": error.namespace, "kind": "namespaces"})
        case NotFoundError():
            return not_found(target)
        case AlreadyExistsError():
            message = f'{_qualified_plural(target)} "{target.name}" already exists'
            return ApiError(409, message, reason="AlreadyExists", details=_details(target))
        case FieldsOwnedError():
            return _fields_owned(error)
        case UntypedPatchError():
            return ApiError(500, str(error), reason=UNEXPLAINED)
        case DisruptionError():
            return _disruption_refused(error)
        case SeveralBudgetsError():
            return ApiError(500, str(error), reason=UNEXPLAINED)
        case UnboundError():
            return _conflict(target, str(error), f"{target.resource.plural}/binding")
        case ConflictError() if error.field in _PRECONDITIONS:
            return _precondition(error, target, deletion=deletion)
        case ConflictError():
            return _conflict(target, MODIFIED, _qualified_plural(target))
        case InvalidError():
            return invalid(target, error.defects)
        case ForbiddenError():
            return forbidden(target, error)
        case ObjectError():
            return ApiError(error.code, str(error), details=_details(target))
        case _:
            return store_error(error)


def _fields_owned(error: FieldsOwnedError) -> ApiError:
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {it.owner}", "field": it.field}
        for it in error.conflicts
    ]
    return ApiError(409, str(error), details={"causes": causes})


def _disruption_refused(error: DisruptionError) -> ApiError:
    later = {"retryAfterSeconds": error.seconds} if error.seconds else {}
    cause = {"reason": "DisruptionBudget", "message": error.why}
    return ApiError(429, str(error), details={"causes": [cause], **later})


def _conflict(target: RequestTarget, why: str, resource: str) -> ApiError:
    message = f'Operation cannot be fulfilled on {resource} "{target.name}": {why}'
    return ApiError(409, message, details=_details(target))


def _precondition(error: ConflictError, target: RequestTarget, *, deletion: bool) -> ApiError:
    """Kubernetes has one message for deletions, one for updates of another version, and its store's otherwise."""
    condition = _PRECONDITIONS[error.field]
    if deletion and target.resource.kind.name == NAMESPACE and error.field == "uid":
        why = f"Precondition failed: UID in precondition: {error.wanted}, UID in object meta: {error.have}"
        return _conflict(target, why, _qualified_plural(target))
    if deletion or target.subresource == EVICTION:
        became = "deleted and then recreated" if error.field == "uid" else "modified"
        why = (
            f"the {condition} in the precondition ({error.wanted}) does not match the {condition} in record "
            f"({error.have}). The object might have been {became}"
        )
        return _conflict(target, why, group_kind(target))
    if error.field == "resourceVersion" and target.subresource != BINDING:
        return _conflict(target, MODIFIED, _qualified_plural(target))
    place = "/".join(part for part in (target.resource.plural, target.namespace, target.name) if part)
    why = (
        f"StorageError: invalid object, Code: 4, Key: /registry/{place}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: {condition} in precondition: {error.wanted}, "
        f"{condition} in object meta: {error.have}"
    )
    return _conflict(target, why, _qualified_plural(target))


def forbidden(target: RequestTarget, error: ForbiddenError) -> ApiError:
    details = _details(target)
    if isinstance(error, TerminatingError):
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {error.namespace} is being terminated",
            "field": "metadata.namespace",
        }
        details["causes"] = [cause]
    return ApiError(403, f'{_qualified_plural(target)} "{target.name}" is forbidden: {error}', details=details)


def store_error(error: Exception) -> ApiError:
    """The store's own message; any other error is internal, and not shown to clients."""
    again = {"retryAfterSeconds": RETRY_AFTER_SECONDS}
    match error:
        case ApiError():
            return error
        case OverloadedError():
            return ApiError(429, str(error), details=again)
        case FullError():
            return ApiError(507, error.remedy or FULL, details={"retryAfterSeconds": FULL_RETRY_SECONDS})
        case ConnectionLostError():
            # Its message contains the location of the database.
            return ApiError(503, UNANSWERED, details=again)
        case WriterClosedError() | EndedError() | ReplacedError():
            return ApiError(503, error.remedy or str(error), details=again)
        case ArchivedError():
            return expired(str(error))
        case RejectedError():
            return ApiError(error.code, str(error))
        case CatalogueError():
            return ApiError(422, str(error))
        case StoreError():
            return ApiError(500, error.remedy or str(error))
        case _:
            return ApiError(500, INTERNAL)


def not_found(target: RequestTarget) -> ApiError:
    return ApiError(404, f'{_qualified_plural(target)} "{target.name}" not found', details=_details(target))


def invalid(target: RequestTarget, defects: Sequence[Defect | FieldError]) -> ApiError:
    return invalid_object(group_kind(target), target.name or "", defects, _details(target))


def invalid_options(kind: str, *errors: FieldError) -> ApiError:
    """Errors in a request's query, or in the options of its body."""
    return invalid_object(f"{kind}.{OPTIONS_GROUP}", "", errors, {"group": OPTIONS_GROUP, "kind": kind})


def invalid_object(
    qualified_kind: str, name: str, defects: Sequence[Defect | FieldError], details: Mapping[str, Any]
) -> ApiError:
    causes = [
        {
            "reason": it.cause if isinstance(it, FieldError) else "FieldValueInvalid",
            "message": it.body if isinstance(it, FieldError) else str(it),
            "field": it.field,
        }
        for it in defects
    ]
    errors = ", ".join(str(defect) for defect in defects)
    message = f'{qualified_kind} "{name}" is invalid: ' + (errors if len(defects) == 1 else f"[{errors}]")
    return ApiError(422, message, details={**details, "kind": qualified_kind.split(".")[0], "causes": causes})


def expired(message: str) -> ApiError:
    return ApiError(410, message)


def too_large_version(version: int, head: int) -> ApiError:
    """Kubernetes' message: clients look for the cause, and list without a version."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {version}, current: {head}"
    return ApiError(504, message, details={"causes": [cause], "retryAfterSeconds": RETRY_AFTER_SECONDS})


def group_kind(target: RequestTarget) -> str:
    resource = target.resource
    return f"{resource.kind.name}.{resource.group}" if resource.group else resource.kind.name


def _qualified_plural(target: RequestTarget) -> str:
    resource = target.resource
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def _details(target: RequestTarget) -> dict[str, Any]:
    named = {"name": target.name, "group": target.resource.group, "kind": target.resource.plural}
    return {field: value for field, value in named.items() if value}
