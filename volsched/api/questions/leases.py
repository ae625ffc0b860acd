"""Taking a lease from a holder that keeps others away for no reason."""

from volsched.api.kubernetes.answers import HttpAnswer
from volsched.api.kubernetes.statuses import ApiError
from volsched.api.questions.models import Reason
from volsched.api.questions.operations import Context, OperationRequest
from volsched.log.leases import free


def free_one(context: Context, asked: OperationRequest) -> HttpAnswer:
    """Whoever held it is refused from now on, and may ask for it again like any other."""
    assert isinstance(asked.body, Reason)
    name, reason = asked.path["name"], asked.body.reason.strip() or None
    freed = free(context.services.database, name, actor=asked.actor, now=asked.now, reason=reason)
    if freed is None:
        raise ApiError(409, f'nobody holds lease "{name}"; only what is held can be freed')
    message = f"{name} is free; {freed.holder} held it in epoch {freed.epoch}"
    return HttpAnswer(
        {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "message": message}
    )
