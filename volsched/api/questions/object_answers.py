"""Answers with columns in the forms that clients request: whole, as a Table, or metadata alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from volsched.api.kubernetes import negotiation
from volsched.api.kubernetes.negotiation import AnswerFormat, HttpAnswer
from volsched.questions.get.object_rows import ObjectRow, ObjectsAnswer

if TYPE_CHECKING:
    # `operations` imports these functions.
    from volsched.api.questions.operations import OperationRequest

INCLUDED = "Metadata"
"""The part of its object that each row of a Table has by default."""


def list_answer(answer: ObjectsAnswer, request: "OperationRequest") -> HttpAnswer:
    match request.wanted.form:
        case AnswerFormat.TABLE:
            return HttpAnswer(_table(answer, answer.metadata, request))
        case AnswerFormat.METADATA_LIST | AnswerFormat.METADATA:
            items = [negotiation.partial(row.manifest(), request.wanted) for row in answer.rows]
            return HttpAnswer(negotiation.partial_list(items, answer.metadata, request.wanted))
        case _:
            return HttpAnswer(answer.document())


def object_answer(answer: ObjectsAnswer, request: "OperationRequest", code: int = 200) -> HttpAnswer:
    """The HTTP answer for an answer of one row."""
    manifest = answer.rows[0].manifest()
    match request.wanted.form:
        case AnswerFormat.TABLE:
            # Kubernetes objects of the past have the position they were read at; our own kinds cannot be watched.
            metadata = {} if answer.kind else answer.metadata
            return HttpAnswer(_table(answer, metadata, request), code)
        case AnswerFormat.METADATA:
            return HttpAnswer(negotiation.partial(manifest, request.wanted), code)
        case _:
            return HttpAnswer(manifest, code)


def _table(answer: ObjectsAnswer, metadata: dict[str, Any], request: "OperationRequest") -> dict[str, Any]:
    return {
        "kind": "Table",
        "apiVersion": request.wanted.api_version,
        "metadata": metadata,
        "columnDefinitions": negotiation.definitions_of(answer.columns),
        "rows": _rows(answer.rows, request),
    }


def _rows(rows: Sequence[ObjectRow], request: "OperationRequest") -> list[dict[str, Any]]:
    include = request.query.get("includeObject", INCLUDED)
    entries: list[dict[str, Any]] = []
    for row in rows:
        entry: dict[str, Any] = {"cells": row.cells()}
        if include == "Object":
            entry["object"] = row.manifest()
        elif include != "None":
            entry["object"] = negotiation.partial(row.manifest(), request.wanted)
        entries.append(entry)
    return entries


# Lists and single objects in the forms that clients request: their kinds and columns.


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
