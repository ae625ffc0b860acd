"""Why the write of an object is refused, each with the HTTP status that says so. Nothing was changed then.

That somebody else has changed the object is `log.commands.ConflictError`, as for every other command.
"""

from collections.abc import Sequence

from volsched.kube.problems import Defect
from volsched.kube.validation.field_errors import FieldError
from volsched.log.commands import RejectedError


class ObjectError(RejectedError):
    """The write changes nothing."""

    code = 500


class NotFoundError(ObjectError):
    code = 404


class AlreadyExistsError(ObjectError):
    code = 409


class InvalidError(ObjectError):
    code = 422

    def __init__(self, what: str, defects: Sequence[Defect | FieldError]) -> None:
        super().__init__(f"{what}: " + "; ".join(str(defect) for defect in defects))
        self.defects = defects


class ForbiddenError(ObjectError):
    """The object is sound, but what surrounds it does not allow it; Kubernetes' admission says so."""

    code = 403
