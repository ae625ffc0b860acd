"""Leases: who acts in an exclusive role, and taking one from a holder that keeps others away for no reason."""

from volsched.api.kubernetes.answers import HttpAnswer
from volsched.api.kubernetes.statuses import ApiError
from volsched.api.questions.models import Reason
from volsched.api.questions.operations import Context, OperationRequest
from volsched.log.leases import free, standings
from volsched.questions.audit.leases import lease_rows
from volsched.questions.registry import API_VERSION


def list_leases(context: Context, asked: OperationRequest) -> HttpAnswer:
    items = lease_rows(standings(context.services.database, now=asked.now), now=asked.now)
    return HttpAnswer({"apiVersion": API_VERSION, "kind": "List", "items": items})


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
