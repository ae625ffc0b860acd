"""Reservations: hold volumes and room for a pod, then confirm, renew or give up."""

from typing import Any

from sqlalchemy import Connection

from volsched.api.kubernetes.answers import HttpAnswer
from volsched.api.kubernetes.statuses import ApiError
from volsched.api.questions.decisions import missing
from volsched.api.questions.kinds import RESERVATIONS
from volsched.api.questions.lists import shown_list, shown_one
from volsched.api.questions.models import Renewal, Reservation, ReservationPatch
from volsched.api.questions.operations import Context, OperationRequest
from volsched.binding.rules.phases import Phase
from volsched.binding.rules.reservations import GatedError
from volsched.log.events.fold import BindingState
from volsched.log.reads.decision_pages import bindings_page
from volsched.log.reads.tail import read_head
from volsched.questions.audit.answers import place_in, place_token
from volsched.questions.explain.attempts import why
from volsched.questions.registry import API_VERSION
from volsched.runtime.clock import rfc3339
from volsched.scheduling.pod_reservations import (
    ENDED,
    NotToBeReservedError,
    ReservationRefused,
    UnknownPodError,
    UnknownReservationError,
    reservation,
)
from volsched.scheduling.pod_reservations import ReservationRequest as Wanted

CONFIRMED = frozenset({Phase.PREBINDING, Phase.WAITING, Phase.COMMITTING})


def list_held(context: Context, asked: OperationRequest) -> HttpAnswer:
    """Those that are held now: a confirmed one is a binding, and one that has ended is history."""
    limit = asked.query["limit"]
    with context.services.database.read() as connection:
        head = read_head(connection).position
        found = bindings_page(
            connection,
            namespace=asked.namespace,
            after=place_in(asked.text("continue")),
            limit=limit + 1,
            state=Phase.RESERVED,
            id=asked.text("name"),
        )
    more = place_token(found[limit - 1][1].planned_at, found[limit - 1][0]) if len(found) > limit else None
    items = [manifest_of(id_, state) for id_, state in found[:limit]]
    return shown_list(RESERVATIONS, items, position=head, more=more, asked=asked)


def get_one(context: Context, asked: OperationRequest) -> HttpAnswer:
    with context.services.database.read() as connection:
        state = _one(connection, asked)
    if state.state in ENDED:
        name = asked.path["name"]
        raise ApiError(404, f'reservation "{name}" has ended: {state.reason}; its binding {name} tells more')
    return shown_one(RESERVATIONS, manifest_of(asked.path["name"], state), asked)


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
    return shown_one(RESERVATIONS, manifest_of(made, state), asked, 201)


def confirm(context: Context, asked: OperationRequest) -> HttpAnswer:
    name = _known(context, asked)
    try:
        context.reserver.confirm(name, actor=asked.actor, now=asked.now)
    except GatedError as error:
        raise ApiError(409, str(error)) from None
    return _still_there(context, asked)


def renew(context: Context, asked: OperationRequest) -> HttpAnswer:
    """By a request of its own, or as a patch of the object."""
    body: Renewal | ReservationPatch = asked.body
    seconds = body.spec.ttlSeconds if isinstance(body, ReservationPatch) else body.ttlSeconds
    name = _known(context, asked)
    context.reserver.renew(name, seconds=seconds, actor=asked.actor, now=asked.now)
    state = _state(context, asked)
    if state.state != Phase.RESERVED and state.state not in ENDED:
        raise ApiError(409, f'reservation "{name}" is confirmed already, and has no lease any more')
    return _still_there(context, asked)


def cancel(context: Context, asked: OperationRequest) -> HttpAnswer:
    """Said again it is not found, as with anything that is deleted twice."""
    name = _known(context, asked)
    before = _state(context, asked)
    if before.state in ENDED:
        raise missing(RESERVATIONS.plural, name)
    said = asked.text("reason")
    context.reserver.cancel(
        name, reason=f"cancelled by {asked.actor}" + (f": {said}" if said else ""), actor=asked.actor
    )
    after = _state(context, asked)
    if after.state not in ENDED:
        raise ApiError(
            409, f'reservation "{name}" is confirmed already ({after.state}), and is not cancelled any more'
        )
    return shown_one(RESERVATIONS, manifest_of(name, after), asked)


def manifest_of(id_: str, state: BindingState) -> dict[str, Any]:
    namespace, _, pod = state.plan["pod"].partition("/")
    status: dict[str, Any] = {
        "phase": _phase(state),
        "state": state.state,
        "binding": id_,
        "node": state.plan["node"],
        "reservedAt": rfc3339(state.planned_at),
        "decidedAt": state.plan["decided_at"],
        "claims": [
            {"claim": leg.claim, "state": leg.state, "provisioned": leg.dynamic}
            | {
                name: value
                for name, value in (("volume", leg.volume), ("capacity", leg.capacity), ("bytes", leg.bytes))
                if value is not None
            }
            for leg in state.legs
        ],
    }
    if state.state == Phase.RESERVED and state.plan.get("deadline") is not None:
        status["expiresAt"] = rfc3339(state.plan["deadline"])
    if state.reason is not None:
        status["reason"] = state.reason
    metadata = {"name": id_, "namespace": namespace, "uid": id_, "creationTimestamp": rfc3339(state.planned_at)}
    spec = {"pod": pod, "podUID": state.plan["pod_uid"], "node": state.plan["node"]}
    kind = {"apiVersion": API_VERSION, "kind": RESERVATIONS.title}
    return kind | {"metadata": metadata, "spec": spec, "status": status}


def _phase(state: BindingState) -> str:
    if state.state == Phase.RESERVED:
        return "Reserved"
    if state.state in ENDED:
        return "Ended"
    return "Confirmed" if state.state in CONFIRMED else "Bound"


def _no_node(connection: Connection, refused: ReservationRefused, pod: str) -> ApiError:
    attempt = why(connection, refused.attempt)
    causes = [
        {"reason": "NoNode", "message": f"{it['nodes']} node(s): {it['reason']}", "field": ",".join(it["some"])}
        for it in attempt["reasons"]
    ]
    message = f'nothing can be reserved for pod "{pod}": {refused.message} (attempt {refused.attempt})'
    details = {"name": refused.attempt, "group": "volsched.io", "kind": "attempts", "causes": causes}
    return ApiError(422, message, reason="Unschedulable", details=details)


def _one(connection: Connection, asked: OperationRequest) -> BindingState:
    name = asked.path["name"]
    try:
        state = reservation(connection, name)
    except UnknownReservationError:
        raise missing(RESERVATIONS.plural, name) from None
    if state.plan["pod"].partition("/")[0] != asked.namespace:
        raise missing(RESERVATIONS.plural, name)
    return state


def _state(context: Context, asked: OperationRequest) -> BindingState:
    with context.services.database.read() as connection:
        return _one(connection, asked)


def _known(context: Context, asked: OperationRequest) -> str:
    _state(context, asked)
    return asked.path["name"]


def _still_there(context: Context, asked: OperationRequest) -> HttpAnswer:
    state, name = _state(context, asked), asked.path["name"]
    if state.state in ENDED:
        raise ApiError(409, f'reservation "{name}" has ended: {state.reason}')
    return shown_one(RESERVATIONS, manifest_of(name, state), asked)
