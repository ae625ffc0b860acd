"""The one table of what is served under `/apis/volsched.io/v1`."""

from volsched.api.kubernetes.negotiation import MERGE_PATCH
from volsched.api.kubernetes.queries import FieldValidation
from volsched.api.questions import decisions, effects, export, leases, questions, reservations
from volsched.api.questions.models import Reason, Renewal, Reservation, ReservationPatch
from volsched.api.questions.operations import Operation, Param
from volsched.api.questions.question_operations import question_operations
from volsched.api.questions.rows import INCLUDE
from volsched.binding.executor import QUEUES
from volsched.binding.rules.phases import Phase
from volsched.log.effects import EffectState

PAGE, MOST = 500, 1_000
NAMESPACED = "/namespaces/{namespace}"


def _limit(default: int) -> Param:
    return Param(
        name="limit", about="Items of a page, at most.", type="integer", default=default, least=1, most=MOST
    )


CONTINUE = Param(name="continue", about="The next page: what the one before has told.")
SINCE = Param(name="since", about="From then on: 2h (ago), 2025-11-16T22:00:00Z, or a position.")
UNTIL = Param(name="until", about="Until then.")
AS_OF = Param(name="asOf", about="As it was then: 2h (ago), 2025-11-16T22:00:00Z, or a position.")
NODE = Param(name="node", about="Only of this node.")
POD = Param(name="pod", about="Only of this pod: NAME within a namespace, else NAMESPACE/NAME.")
NAME = Param(name="name", about="Only this one.")
STATE = Param(name="state", about="Only in this state.", choices=tuple(Phase))
LISTS = (_limit(PAGE), CONTINUE)
BINDING_LIST = (*LISTS, POD, NODE, STATE, NAME, INCLUDE)
ATTEMPT_LIST = (
    *LISTS,
    POD,
    NODE,
    NAME,
    INCLUDE,
    Param(name="outcome", about="planned, failed, unschedulable or error."),
)
EFFECT_LIST = (
    *LISTS,
    NAME,
    Param(name="state", about="Only in this state.", choices=tuple(EffectState)),
    Param(name="queue", about="Only of this queue.", choices=tuple(QUEUES)),
)
VALIDATION = Param(
    name="fieldValidation", about="Unknown fields are refused, whatever is said.", choices=tuple(FieldValidation)
)


def _get(path: str, about: str, serve: object, answer: str, *query: Param, **more: object) -> Operation:
    return Operation(method="GET", path=path, about=about, serve=serve, answer=answer, query=query, **more)  # type: ignore[arg-type]


def _both(
    path: str, about: str, serve: object, answer: str, *query: Param, **more: object
) -> tuple[Operation, ...]:
    """Of every namespace, and of one."""
    return tuple(_get(f"{place}{path}", about, serve, answer, *query, **more) for place in ("", NAMESPACED))


def _post(path: str, about: str, serve: object, answer: str, **more: object) -> Operation:
    return Operation(method="POST", path=path, about=about, serve=serve, answer=answer, **more)  # type: ignore[arg-type]


HELD = f"{NAMESPACED}/reservations"
OPERATIONS: tuple[Operation, ...] = (
    *_both("/bindings", "Bindings in the order in which they were planned.", decisions.list_bindings,
           "BindingList", *BINDING_LIST, action="list"),
    _get(f"{NAMESPACED}/bindings/{{name}}", "A binding with its legs.", decisions.get_binding, "Binding",
         INCLUDE, action="get"),
    _get(f"{NAMESPACED}/bindings/{{name}}/steps", "All that was done for it.", decisions.steps, "List"),
    *_both("/attempts", "Attempts to schedule pods.", decisions.list_attempts, "AttemptList", *ATTEMPT_LIST,
           action="list"),
    _get(f"{NAMESPACED}/attempts/{{name}}", "An attempt with its reasons.", decisions.get_attempt, "Attempt",
         INCLUDE, action="get"),
    _get("/effects", "Work that is queued, leased or parked.", effects.list_queued, "EffectList", *EFFECT_LIST,
         action="list"),
    _get("/effects/{name}", "A piece of work; its name is its key with dots for slashes.", effects.get_effect,
         "Effect", action="get"),
    _post("/effects/{name}/retry", "Try parked work again at once.", effects.retry, "Status", body=Reason,
          writes=True, codes=(409,)),
    _post("/effects/{name}/cancel", "Let a binding end without its parked work.", effects.cancel, "Status",
          body=Reason, writes=True, codes=(409,)),
    _post("/leases/{name}/free", "Take such a role from its holder.", leases.free_one, "Status", body=Reason,
          writes=True, codes=(409,)),
    *_both("/reservations", "Reservations that are held.", reservations.list_held, "ReservationList", *LISTS,
           NAME, action="list"),
    _post(HELD, "Hold volumes and room for a pod.", reservations.create, "Reservation", body=Reservation,
          needs_body=True, query=(VALIDATION,), code=201, turn="alone", writes=True, action="post", codes=(409,)),
    _get(f"{HELD}/{{name}}", "A reservation, while it is held or has become a binding.", reservations.get_one,
         "Reservation", action="get"),
    Operation(method="PATCH", path=f"{HELD}/{{name}}", about="Let its lease end later.", serve=reservations.renew,
              answer="Reservation", query=(VALIDATION,), body=ReservationPatch, needs_body=True, media=MERGE_PATCH,
              writes=True, action="patch", codes=(409,)),
    Operation(method="DELETE", path=f"{HELD}/{{name}}", about="Give it up.", serve=reservations.cancel,
              answer="Reservation", query=(Param(name="reason", about="Why; kept with it."),), writes=True,
              action="delete", codes=(409,)),
    _post(f"{HELD}/{{name}}/confirm", "Let it be bound.", reservations.confirm, "Reservation", writes=True,
          body=Reason, codes=(409,)),
    _post(f"{HELD}/{{name}}/renew", "Let its lease end later.", reservations.renew, "Reservation", writes=True,
          body=Renewal, codes=(409,)),
    _get("/export", "A part of the log, for anybody to verify.", export.export_range, "Export", SINCE, UNTIL,
         Param(name="limit", about="Events, at most.", type="integer", default=export.MOST_EXPORTED, least=1,
               most=export.MOST_EXPORTED), turn="long"),
    *_both("/history/{kind}", "All objects of a kind, as they were.", questions.as_it_was, "List", AS_OF,
           INCLUDE, turn="long"),
    *_both("/history/{kind}/{name}/object", "An object as it was.", questions.one_as_it_was, "Object", AS_OF,
           INCLUDE),
    *_both("/describe/{kind}/{name}", "An object with its bindings, attempts and events.", questions.describe,
           "Description", AS_OF),
    *question_operations(),
)  # fmt: skip
