"""Lists and single objects in the forms that clients request: their kinds and columns."""

from collections.abc import Mapping
from dataclasses import dataclass

# The resources of ours that kubectl can get.


@dataclass(frozen=True, slots=True)
class ListKind:
    plural: str
    singular: str
    title: str
    namespaced: bool = True
    verbs: tuple[str, ...] = ("get", "list")
    short: tuple[str, ...] = ()
    subresources: Mapping[str, str] | None = None
    """Its name → the kind of its request body."""


EFFECTS = ListKind(
    "effects", "effect", "Effect", namespaced=False, subresources={"retry": "Reason", "cancel": "Reason"}
)
RESERVATIONS = ListKind(
    "reservations",
    "reservation",
    "Reservation",
    verbs=("create", "delete", "patch", "get", "list"),
    short=("rsv",),
    subresources={"confirm": "Reservation", "renew": "Renewal"},
)
KINDS = (
    ListKind("bindings", "binding", "Binding"),
    ListKind("attempts", "attempt", "Attempt"),
    EFFECTS,
    RESERVATIONS,
)
