"""Answers with columns in the forms that clients request: whole, as a Table, or metadata alone."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from volsched.api.kubernetes import negotiation
from volsched.api.kubernetes.negotiation import AnswerFormat, HttpAnswer
from volsched.questions.get.object_rows import ObjectRow, ObjectsAnswer

if TYPE_CHECKING:
    # What operations are answers with these functions.
    from volsched.api.questions.operations import OperationRequest

INCLUDED = "Metadata"
"""What comes with each row of a Table where nobody says."""


def shown_list(answer: ObjectsAnswer, asked: "OperationRequest") -> HttpAnswer:
    match asked.wanted.form:
        case AnswerFormat.TABLE:
            return HttpAnswer(_table(answer, answer.metadata, asked))
        case AnswerFormat.METADATA_LIST | AnswerFormat.METADATA:
            items = [negotiation.partial(row.manifest(), asked.wanted) for row in answer.rows]
            return HttpAnswer(negotiation.partial_list(items, answer.metadata, asked.wanted))
        case _:
            return HttpAnswer(answer.document())


def shown_one(answer: ObjectsAnswer, asked: "OperationRequest", code: int = 200) -> HttpAnswer:
    """For an answer of one row."""
    manifest = answer.rows[0].manifest()
    match asked.wanted.form:
        case AnswerFormat.TABLE:
            # Objects of the past are watched from the position they were read at; ours cannot be watched.
            metadata = {} if answer.kind else answer.metadata
            return HttpAnswer(_table(answer, metadata, asked), code)
        case AnswerFormat.METADATA:
            return HttpAnswer(negotiation.partial(manifest, asked.wanted), code)
        case _:
            return HttpAnswer(manifest, code)


def _table(answer: ObjectsAnswer, metadata: dict[str, Any], asked: "OperationRequest") -> dict[str, Any]:
    return {
        "kind": "Table",
        "apiVersion": asked.wanted.api_version,
        "metadata": metadata,
        "columnDefinitions": negotiation.definitions_of(answer.columns),
        "rows": _rows(answer.rows, asked),
    }


def _rows(rows: Sequence[ObjectRow], asked: "OperationRequest") -> list[dict[str, Any]]:
    include = asked.query.get("includeObject", INCLUDED)
    told: list[dict[str, Any]] = []
    for row in rows:
        entry: dict[str, Any] = {"cells": row.cells()}
        if include == "Object":
            entry["object"] = row.manifest()
        elif include != "None":
            entry["object"] = negotiation.partial(row.manifest(), asked.wanted)
        told.append(entry)
    return told
