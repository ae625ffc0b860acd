"""Reservations as objects with columns: the node and volumes held for a pod, and until when."""

from typing import Any

from sqlalchemy import Connection

from volsched.binding.rules.phases import Phase
from volsched.log.events.fold import BindingState
from volsched.log.reads.tail import read_head
from volsched.questions.context import QuestionContext
from volsched.questions.get.decision_handlers import binding_page
from volsched.questions.get.documents import OUR_API
from volsched.questions.get.list_parameters import NamedParameters, ReservationList
from volsched.questions.get.manifest_columns import (
    MANIFEST_AGE,
    MANIFEST_NAME,
    MANIFEST_VOLUMES,
    ManifestColumn,
    field_of,
    manifest_row,
)
from volsched.questions.get.object_rows import ObjectsAnswer
from volsched.questions.refusals import MissingError, UnknownError
from volsched.runtime.clock import rfc3339
from volsched.scheduling.pod_reservations import ENDED, UnknownReservationError, reservation

KIND, PLURAL = "Reservation", "reservations"
CONFIRMED = frozenset({Phase.PREBINDING, Phase.WAITING, Phase.COMMITTING})
COLUMNS = (
    MANIFEST_NAME,
    ManifestColumn("POD", field_of("spec", "pod")),
    ManifestColumn("NODE", field_of("status", "node")),
    ManifestColumn("PHASE", field_of("status", "phase")),
    ManifestColumn("EXPIRES", field_of("status", "expiresAt")),
    MANIFEST_AGE,
    MANIFEST_VOLUMES,
)


def reservations(context: QuestionContext, parameters: ReservationList) -> ObjectsAnswer:
    """The reservations held now: a confirmed one is a binding, and an ended one is history."""
    page = binding_page(context, parameters, state=Phase.RESERVED)
    return answer_of(page.rows, head=page.head, now=context.now, after=page.after)


def single_reservation(context: QuestionContext, parameters: NamedParameters) -> ObjectsAnswer:
    with context.database.read() as connection:
        head = read_head(connection).position
        state = reservation_in(connection, parameters.name, parameters.namespace)
    if state.state in ENDED:
        raise UnknownError(
            f'reservation "{parameters.name}" has ended: {state.reason}; see its binding {parameters.name}'
        )
    return answer_of([(parameters.name, state)], head=head, now=context.now)


def reservation_in(connection: Connection, name: str, namespace: str | None) -> BindingState:
    """The reservation; MissingError if it does not exist, or its pod is in another namespace."""
    try:
        state = reservation(connection, name)
    except UnknownReservationError:
        raise MissingError(PLURAL, name) from None
    if state.plan["pod"].partition("/")[0] != namespace:
        raise MissingError(PLURAL, name)
    return state


def answer_of(
    reservations: list[tuple[str, BindingState]], *, now: int, head: int = 0, after: str | None = None
) -> ObjectsAnswer:
    rows = [manifest_row(COLUMNS, manifest_of(id_, state), now=now) for id_, state in reservations]
    return ObjectsAnswer(columns=COLUMNS, rows=rows, position=head, kind=KIND, after=after)


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
    return {"apiVersion": OUR_API, "kind": KIND, "metadata": metadata, "spec": spec, "status": status}


def _phase(state: BindingState) -> str:
    if state.state == Phase.RESERVED:
        return "Reserved"
    if state.state in ENDED:
        return "Ended"
    return "Confirmed" if state.state in CONFIRMED else "Bound"
