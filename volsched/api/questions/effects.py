"""Operators' actions: parked effects, leases taken from their holders, a part of the log as a file."""

from typing import Any

from volsched.api.kubernetes.negotiation import HttpAnswer
from volsched.api.kubernetes.statuses import ApiError
from volsched.api.questions.lists import EFFECTS
from volsched.api.questions.models import CertainReason, Reason
from volsched.api.questions.operations import Context, OperationRequest
from volsched.binding.recovery import Sweep
from volsched.log.commands import ConflictError
from volsched.log.leases import free
from volsched.log.reads.as_of import look_at_head
from volsched.log.reads.open_bindings import Parked, parked_effects
from volsched.log.transaction import execute
from volsched.pv_controller.rules.rollback import ReleaseRefusedError
from volsched.pv_controller.sync import releasing
from volsched.questions.get.effects import effect_name, one_called

EVERY_PARKED = 100_000


def retry(context: Context, asked: OperationRequest) -> HttpAnswer:
    """Due at once, with its attempts reset."""
    parked = _parked(context, asked.path["name"])
    sweep = Sweep(context.services.database, asked.actor)
    if not sweep.retry(parked, asked.now, why=_why(asked)):
        raise _not_parked(asked.path["name"])
    return HttpAnswer(_done(parked, f"{parked.key} is queued again"))


def cancel(context: Context, asked: OperationRequest) -> HttpAnswer:
    """Its binding is rolled back: what was written is undone, or kept with a reason."""
    parked = _parked(context, asked.path["name"])
    Sweep(context.services.database, asked.actor).cancel(parked, asked.now, why=_why(asked))
    return HttpAnswer(_done(parked, f"{parked.key} is cancelled; its binding {parked.binding} ends without it"))


def _parked(context: Context, name: str) -> Parked:
    with context.services.database.read() as connection:
        parked = parked_effects(connection, limit=EVERY_PARKED)
    found = next((it for it in parked if effect_name(it.key) == name), None)
    if found is None:
        one_called(context.services.database, name)
        raise _not_parked(name)
    return found


def _not_parked(name: str) -> ApiError:
    return ApiError(409, f'effect "{name}" is not parked; only work that was given up is retried or cancelled')


def _why(asked: OperationRequest) -> str | None:
    assert isinstance(asked.body, Reason)
    return asked.body.reason.strip() or None


def _done(parked: Parked, message: str) -> dict[str, Any]:
    details = {"name": effect_name(parked.key), "group": "volsched.io", "kind": EFFECTS.plural}
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "message": message}
    return status | {"details": details, "code": 200}


# Undoing a binding, and giving a volume back.


def cancel_binding(context: Context, asked: OperationRequest) -> HttpAnswer:
    """As if it had failed: what was written is undone, or kept where it may hold data."""
    name, why = asked.path["name"], _certain(asked)
    database = context.services.database
    with database.read() as connection:
        binding = look_at_head(connection).one("binding", name)
    if binding is None:
        raise ApiError(404, f'binding "{name}" is not in the store')
    if not Sweep(database, asked.actor).cancel_binding(name, asked.now, why=why):
        raise ApiError(409, f'binding "{name}" is not cancelled: it has ended, or its pod is being bound')
    return _success(f"binding {name} is cancelled, and is being undone")


def release_volume(context: Context, asked: OperationRequest) -> HttpAnswer:
    """Refused while its claim exists, while it is bound, attached or in an open binding."""
    name, why = asked.path["name"], _certain(asked)
    database = context.services.database
    command = releasing(database, name, reason=why, by=asked.actor, actor=asked.actor, now=asked.now)
    if command is None:
        raise ApiError(404, f'PersistentVolume "{name}" does not exist')
    (outcome,) = execute(database, [command], now=asked.now)
    if isinstance(outcome, ConflictError):
        raise ApiError(409, f'PersistentVolume "{name}" was changed at this moment; look at it, and try again')
    if isinstance(outcome, ReleaseRefusedError):
        raise ApiError(409, str(outcome))
    if isinstance(outcome, Exception):
        raise outcome
    return _success(f"volume {name} is Available again")


def _certain(asked: OperationRequest) -> str:
    assert isinstance(asked.body, CertainReason)
    why = asked.body.reason.strip()
    if not why:
        raise ApiError(422, "reason: it is empty; say why, for those who ask later")
    return why


def _success(message: str) -> HttpAnswer:
    return HttpAnswer(
        {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "message": message}
    )


# Taking a lease from a holder that blocks others without reason.


def free_one(context: Context, asked: OperationRequest) -> HttpAnswer:
    """The old holder is refused from now on, and may acquire the lease again like any other."""
    assert isinstance(asked.body, Reason)
    name, reason = asked.path["name"], asked.body.reason.strip() or None
    freed = free(context.services.database, name, actor=asked.actor, now=asked.now, reason=reason)
    if freed is None:
        raise ApiError(409, f'nobody holds lease "{name}"; only what is held can be freed')
    return _success(f"{name} is free; {freed.holder} held it in epoch {freed.epoch}")
