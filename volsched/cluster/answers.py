"""How the clusters that we play ourselves say that a call was refused."""

from volsched.cluster.port import CallRefusedError, Refusal
from volsched.log.commands import ConflictError, RejectedError
from volsched.objects.rules.refusals import AlreadyExistsError, InvalidError, NotFoundError

_REFUSALS: dict[type[RejectedError], Refusal] = {
    NotFoundError: Refusal.NOT_FOUND,
    AlreadyExistsError: Refusal.EXISTS,
    ConflictError: Refusal.CONFLICT,
    InvalidError: Refusal.INVALID,
}


def refused(error: RejectedError) -> CallRefusedError:
    refusal = next((it for kind, it in _REFUSALS.items() if isinstance(error, kind)), Refusal.INVALID)
    return CallRefusedError(refusal, str(error))
