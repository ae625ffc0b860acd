"""The one table of `/apis/volsched.io/v1`: actions, and the questions of the registry."""

from volsched.api.kubernetes.negotiation import MERGE_PATCH
from volsched.api.kubernetes.queries import FieldValidation
from volsched.api.questions import effects, reservations
from volsched.api.questions.models import CertainReason, Reason, Renewal, Reservation, ReservationPatch
from volsched.api.questions.operations import Operation, Param, question_operations

NAMESPACED = "/namespaces/{namespace}"
VALIDATION = Param(
    name="fieldValidation", about="Unknown fields are refused with every value.", choices=tuple(FieldValidation)
)


def _post(path: str, about: str, serve: object, answer: str, **more: object) -> Operation:
    return Operation(method="POST", path=path, about=about, serve=serve, answer=answer, **more)  # type: ignore[arg-type]


RESERVATIONS = f"{NAMESPACED}/reservations"
OPERATIONS: tuple[Operation, ...] = (
    _post("/effects/{name}/retry", "Retry parked work at once.", effects.retry, "Status", body=Reason,
          writes=True, codes=(409,)),
    _post("/effects/{name}/cancel", "Cancel parked work and end its binding.", effects.cancel, "Status",
          body=Reason, writes=True, codes=(409,)),
    _post("/bindings/{name}/cancel", "Undo a binding that is under way.", effects.cancel_binding, "Status",
          body=CertainReason, needs_body=True, writes=True, codes=(409,)),
    _post("/volumes/{name}/release", "Make a released volume Available again, whatever data is on it.",
          effects.release_volume, "Status", body=CertainReason, needs_body=True, writes=True, codes=(409,)),
    _post("/leases/{name}/free", "Take a lease from its holder.", effects.free_lease, "Status", body=Reason,
          writes=True, codes=(409,)),
    _post(RESERVATIONS, "Reserve volumes and capacity for a pod.", reservations.create, "Reservation",
          body=Reservation, needs_body=True, query=(VALIDATION,), code=201, turn="alone", writes=True,
          action="post", codes=(409,)),
    Operation(method="PATCH", path=f"{RESERVATIONS}/{{name}}", about="Renew its lease.", serve=reservations.renew,
              answer="Reservation", query=(VALIDATION,), body=ReservationPatch, needs_body=True, media=MERGE_PATCH,
              writes=True, action="patch", codes=(409,)),
    Operation(method="DELETE", path=f"{RESERVATIONS}/{{name}}", about="Cancel it.", serve=reservations.cancel,
              answer="Reservation", query=(Param(name="reason", about="Why; kept with the binding."),),
              writes=True, action="delete", codes=(409,)),
    _post(f"{RESERVATIONS}/{{name}}/confirm", "Confirm it: the pod is bound.", reservations.confirm,
          "Reservation", writes=True, body=Reason, codes=(409,)),
    _post(f"{RESERVATIONS}/{{name}}/renew", "Renew its lease.", reservations.renew, "Reservation", writes=True,
          body=Renewal, codes=(409,)),
    *question_operations(),
)  # fmt: skip
