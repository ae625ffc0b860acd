"""Operators' actions: retry or cancel parked effects, cancel bindings, release volumes, free leases."""

from typing import Any

from volsched.api.kubernetes.negotiation import HttpAnswer
from volsched.api.kubernetes.statuses import ApiError
from volsched.api.questions.models import CertainReason, Reason
from volsched.api.questions.object_answers import EFFECTS
from volsched.api.questions.operations import Context, OperationRequest
from volsched.binding.recovery import Sweep
from volsched.log.commands import ConflictError
from volsched.log.leases import free
from volsched.log.reads.as_of import view_at_head
from volsched.log.reads.open_bindings import Parked, parked_effects
from volsched.log.transaction import execute
from volsched.pv_controller.rules.rollback import ReleaseRefusedError
from volsched.pv_controller.sync import releasing
from volsched.questions.get.effects import effect_name, effect_named

EVERY_PARKED = 100_000


def retry(context: Context, request: OperationRequest) -> HttpAnswer:
    """Due at once, with its attempts reset."""
    parked = _parked_effect(context, request.path["name"])
    sweep = Sweep(context.services.database, request.actor)
    if not sweep.retry(parked, request.now, why=_optional_reason(request)):
        raise _not_parked_error(request.path["name"])
    return HttpAnswer(_effect_status(parked, f"{parked.key} is queued again"))


def cancel(context: Context, request: OperationRequest) -> HttpAnswer:
    """Its binding is rolled back: its writes are undone, or kept with a reason."""
    parked = _parked_effect(context, request.path["name"])
    Sweep(context.services.database, request.actor).cancel(parked, request.now, why=_optional_reason(request))
    return HttpAnswer(
        _effect_status(parked, f"{parked.key} is cancelled; its binding {parked.binding} ends without it")
    )


def _parked_effect(context: Context, name: str) -> Parked:
    with context.services.database.read() as connection:
        parked = parked_effects(connection, limit=EVERY_PARKED)
    effect = next((it for it in parked if effect_name(it.key) == name), None)
    if effect is None:
        effect_named(context.services.database, name)
        raise _not_parked_error(name)
    return effect


def _not_parked_error(name: str) -> ApiError:
    return ApiError(409, f'effect "{name}" is not parked; only work that was given up is retried or cancelled')


def _optional_reason(request: OperationRequest) -> str | None:
    assert isinstance(request.body, Reason)
    return request.body.reason.strip() or None


def _effect_status(parked: Parked, message: str) -> dict[str, Any]:
    details = {"name": effect_name(parked.key), "group": "volsched.io", "kind": EFFECTS.plural}
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "message": message}
    return status | {"details": details, "code": 200}


# Cancelling a binding, and releasing a volume.


def cancel_binding(context: Context, request: OperationRequest) -> HttpAnswer:
    """End the binding as if it had failed: its writes are undone, or kept where a volume may hold data."""
    name, reason = request.path["name"], _required_reason(request)
    database = context.services.database
    with database.read() as connection:
        binding = view_at_head(connection).one("binding", name)
    if binding is None:
        raise ApiError(404, f'binding "{name}" is not in the store')
    if not Sweep(database, request.actor).cancel_binding(name, request.now, why=reason):
        raise ApiError(409, f'binding "{name}" is not cancelled: it has ended, or its pod is being bound')
    return _success(f"binding {name} is cancelled, and is being undone")


def release_volume(context: Context, request: OperationRequest) -> HttpAnswer:
    """Refused while its claim exists, while it is bound, attached or in an open binding."""
    name, reason = request.path["name"], _required_reason(request)
    database = context.services.database
    command = releasing(database, name, reason=reason, by=request.actor, actor=request.actor, now=request.now)
    if command is None:
        raise ApiError(404, f'PersistentVolume "{name}" does not exist')
    (outcome,) = execute(database, [command], now=request.now)
    if isinstance(outcome, ConflictError):
        raise ApiError(409, f'PersistentVolume "{name}" was changed at this moment; look at it, and try again')
    if isinstance(outcome, ReleaseRefusedError):
        raise ApiError(409, str(outcome))
    if isinstance(outcome, Exception):
        raise outcome
    return _success(f"volume {name} is Available again")


def _required_reason(request: OperationRequest) -> str:
    assert isinstance(request.body, CertainReason)
    reason = request.body.reason.strip()
    if not reason:
        raise ApiError(422, "reason: it must not be empty; the log keeps it")
    return reason


def _success(message: str) -> HttpAnswer:
    return HttpAnswer(
        {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "message": message}
    )


# Taking a lease from a holder that blocks others without reason.


def free_lease(context: Context, request: OperationRequest) -> HttpAnswer:
    """The old holder is refused from now on, and may acquire the lease again like any other."""
    assert isinstance(request.body, Reason)
    name, reason = request.path["name"], request.body.reason.strip() or None
    lease = free(context.services.database, name, actor=request.actor, now=request.now, reason=reason)
    if lease is None:
        raise ApiError(409, f'lease "{name}" has no holder; only a held lease can be freed')
    return _success(f"{name} is free; {lease.holder} held it in epoch {lease.epoch}")
