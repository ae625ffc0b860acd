"""Reservations: hold volumes and capacity for a pod, then confirm, renew or release."""

from sqlalchemy import Connection

from volsched.api.kubernetes.negotiation import HttpAnswer
from volsched.api.kubernetes.statuses import ApiError
from volsched.api.questions.models import Renewal, Reservation, ReservationPatch
from volsched.api.questions.object_answers import RESERVATIONS, object_answer
from volsched.api.questions.operations import Context, OperationRequest
from volsched.binding.rules.phases import Phase
from volsched.binding.rules.reservations import GatedError
from volsched.log.events.fold import BindingState
from volsched.questions.explain.stored_decisions import why
from volsched.questions.get.reservations import answer_of, reservation_in
from volsched.questions.refusals import MissingError
from volsched.questions.registry import API_VERSION
from volsched.scheduling.pod_reservations import (
    ENDED,
    NotToBeReservedError,
    ReservationRefused,
    ReservationRequest,
    UnknownPodError,
    reservation,
)


def create(context: Context, request: OperationRequest) -> HttpAnswer:
    body: Reservation = request.body
    if body.apiVersion != API_VERSION or body.kind != RESERVATIONS.title:
        raise ApiError(400, f"the body is a {body.kind[:80]} of {body.apiVersion[:80]}, not a Reservation")
    if body.metadata.get("namespace") not in (None, "", request.namespace):
        raise ApiError(400, "the namespace of the object does not match the namespace on the request")
    if body.metadata.get("name"):
        raise ApiError(422, "metadata.name: Forbidden: reservations are named by the server; use generateName")
    wanted = ReservationRequest(
        pod=f"{request.namespace}/{body.spec.pod}",
        seconds=body.spec.ttlSeconds,
        node=body.spec.node or None,
        pod_uid=body.spec.podUID or None,
        key=request.key,
    )
    try:
        binding = context.reserver.reserve(wanted, actor=request.actor, now=request.now)
    except UnknownPodError as error:
        raise ApiError(404, str(error)) from None
    except NotToBeReservedError as error:
        raise ApiError(409, str(error)) from None
    with context.services.database.read() as connection:
        if isinstance(binding, ReservationRefused):
            raise _no_node_error(connection, binding, wanted.pod)
        state = reservation(connection, binding)
    return object_answer(answer_of([(binding, state)], now=request.now), request, 201)


def confirm(context: Context, request: OperationRequest) -> HttpAnswer:
    name = _checked_name(context, request)
    try:
        context.reserver.confirm(name, actor=request.actor, now=request.now)
    except GatedError as error:
        raise ApiError(409, str(error)) from None
    return _answer_unless_ended(context, request)


def renew(context: Context, request: OperationRequest) -> HttpAnswer:
    """Renew a reservation, by `POST …/renew` or by a patch of the object."""
    body: Renewal | ReservationPatch = request.body
    seconds = body.spec.ttlSeconds if isinstance(body, ReservationPatch) else body.ttlSeconds
    name = _checked_name(context, request)
    context.reserver.renew(name, seconds=seconds, actor=request.actor, now=request.now)
    state = _state(context, request)
    if state.state != Phase.RESERVED and state.state not in ENDED:
        raise ApiError(409, f'reservation "{name}" is confirmed already, and has no lease any more')
    return _answer_unless_ended(context, request)


def cancel(context: Context, request: OperationRequest) -> HttpAnswer:
    """404 for a reservation that has ended, as for any second deletion."""
    name = _checked_name(context, request)
    before = _state(context, request)
    if before.state in ENDED:
        raise MissingError(RESERVATIONS.plural, name)
    reason = request.text("reason")
    context.reserver.cancel(
        name, reason=f"cancelled by {request.actor}" + (f": {reason}" if reason else ""), actor=request.actor
    )
    after = _state(context, request)
    if after.state not in ENDED:
        raise ApiError(
            409, f'reservation "{name}" is confirmed already ({after.state}), and is not cancelled any more'
        )
    return object_answer(answer_of([(name, after)], now=request.now), request)


def _no_node_error(connection: Connection, refused: ReservationRefused, pod: str) -> ApiError:
    attempt = why(connection, refused.attempt)
    causes = [
        {"reason": "NoNode", "message": f"{it['nodes']} node(s): {it['reason']}", "field": ",".join(it["some"])}
        for it in attempt["reasons"]
    ]
    message = f'nothing can be reserved for pod "{pod}": {refused.message} (attempt {refused.attempt})'
    details = {"name": refused.attempt, "group": "volsched.io", "kind": "attempts", "causes": causes}
    return ApiError(422, message, reason="Unschedulable", details=details)


def _state(context: Context, request: OperationRequest) -> BindingState:
    with context.services.database.read() as connection:
        return reservation_in(connection, request.path["name"], request.namespace)


def _checked_name(context: Context, request: OperationRequest) -> str:
    _state(context, request)
    return request.path["name"]


def _answer_unless_ended(context: Context, request: OperationRequest) -> HttpAnswer:
    state, name = _state(context, request), request.path["name"]
    if state.state in ENDED:
        raise ApiError(409, f'reservation "{name}" has ended: {state.reason}')
    return object_answer(answer_of([(name, state)], now=request.now), request)
