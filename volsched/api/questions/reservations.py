"""Reservations: hold volumes and capacity for a pod, then confirm, renew or release."""

from sqlalchemy import Connection

from volsched.api.kubernetes.negotiation import HttpAnswer
from volsched.api.kubernetes.statuses import ApiError
from volsched.api.questions.lists import RESERVATIONS
from volsched.api.questions.models import Renewal, Reservation, ReservationPatch
from volsched.api.questions.object_answers import shown_one
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
    UnknownPodError,
    reservation,
)
from volsched.scheduling.pod_reservations import ReservationRequest as Wanted


def create(context: Context, asked: OperationRequest) -> HttpAnswer:
    body: Reservation = asked.body
    if body.apiVersion != API_VERSION or body.kind != RESERVATIONS.title:
        raise ApiError(400, f"the body is a {body.kind[:80]} of {body.apiVersion[:80]}, not a Reservation")
    if body.metadata.get("namespace") not in (None, "", asked.namespace):
        raise ApiError(400, "the namespace of the object does not match the namespace on the request")
    if body.metadata.get("name"):
        raise ApiError(422, "metadata.name: Forbidden: reservations are named by the server; use generateName")
    wanted = Wanted(
        pod=f"{asked.namespace}/{body.spec.pod}",
        seconds=body.spec.ttlSeconds,
        node=body.spec.node or None,
        pod_uid=body.spec.podUID or None,
        key=asked.key,
    )
    try:
        made = context.reserver.reserve(wanted, actor=asked.actor, now=asked.now)
    except UnknownPodError as error:
        raise ApiError(404, str(error)) from None
    except NotToBeReservedError as error:
        raise ApiError(409, str(error)) from None
    with context.services.database.read() as connection:
        if isinstance(made, ReservationRefused):
            raise _no_node(connection, made, wanted.pod)
        state = reservation(connection, made)
    return shown_one(answer_of([(made, state)], now=asked.now), asked, 201)


def confirm(context: Context, asked: OperationRequest) -> HttpAnswer:
    name = _known(context, asked)
    try:
        context.reserver.confirm(name, actor=asked.actor, now=asked.now)
    except GatedError as error:
        raise ApiError(409, str(error)) from None
    return _still_there(context, asked)


def renew(context: Context, asked: OperationRequest) -> HttpAnswer:
    """As a request of its own, or as a patch of the object."""
    body: Renewal | ReservationPatch = asked.body
    seconds = body.spec.ttlSeconds if isinstance(body, ReservationPatch) else body.ttlSeconds
    name = _known(context, asked)
    context.reserver.renew(name, seconds=seconds, actor=asked.actor, now=asked.now)
    state = _state(context, asked)
    if state.state != Phase.RESERVED and state.state not in ENDED:
        raise ApiError(409, f'reservation "{name}" is confirmed already, and has no lease any more')
    return _still_there(context, asked)


def cancel(context: Context, asked: OperationRequest) -> HttpAnswer:
    """A repeat is not found, as with any second deletion."""
    name = _known(context, asked)
    before = _state(context, asked)
    if before.state in ENDED:
        raise MissingError(RESERVATIONS.plural, name)
    said = asked.text("reason")
    context.reserver.cancel(
        name, reason=f"cancelled by {asked.actor}" + (f": {said}" if said else ""), actor=asked.actor
    )
    after = _state(context, asked)
    if after.state not in ENDED:
        raise ApiError(
            409, f'reservation "{name}" is confirmed already ({after.state}), and is not cancelled any more'
        )
    return shown_one(answer_of([(name, after)], now=asked.now), asked)


def _no_node(connection: Connection, refused: ReservationRefused, pod: str) -> ApiError:
    attempt = why(connection, refused.attempt)
    causes = [
        {"reason": "NoNode", "message": f"{it['nodes']} node(s): {it['reason']}", "field": ",".join(it["some"])}
        for it in attempt["reasons"]
    ]
    message = f'nothing can be reserved for pod "{pod}": {refused.message} (attempt {refused.attempt})'
    details = {"name": refused.attempt, "group": "volsched.io", "kind": "attempts", "causes": causes}
    return ApiError(422, message, reason="Unschedulable", details=details)


def _state(context: Context, asked: OperationRequest) -> BindingState:
    with context.services.database.read() as connection:
        return reservation_in(connection, asked.path["name"], asked.namespace)


def _known(context: Context, asked: OperationRequest) -> str:
    _state(context, asked)
    return asked.path["name"]


def _still_there(context: Context, asked: OperationRequest) -> HttpAnswer:
    state, name = _state(context, asked), asked.path["name"]
    if state.state in ENDED:
        raise ApiError(409, f'reservation "{name}" has ended: {state.reason}')
    return shown_one(answer_of([(name, state)], now=asked.now), asked)
