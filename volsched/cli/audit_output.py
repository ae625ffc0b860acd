"""How the answers to questions are printed: a page of items or a single one, as a table, JSON or CSV."""

import csv
import re
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from volsched.cli import console
from volsched.cli.moment_option import local_time
from volsched.cli.output import Form, Lines, print_documents, write
from volsched.kube.display_text import plain_cell
from volsched.questions.audit.answers import Answer, Item
from volsched.questions.explain.reason_lines import claim_lines, failure_lines
from volsched.questions.registry import page_document

TIMES = frozenset({"at", "from", "until", "since"})


class AnswerForm(StrEnum):
    table = "table"
    json = "json"
    csv = "csv"


FormOption = Annotated[AnswerForm, typer.Option("--output", "-o", help="Form of the answer.")]


def answer_of(document: Mapping[str, Any]) -> Answer:
    """The answer in a document of a server, which has the form that `-o json` prints."""
    paging = document.get("metadata") or {}
    return Answer(
        items=document["items"],
        after=paging.get("continue"),
        cut=paging.get("cut", False),
        archived=paging.get("archived"),
    )


def print_answer(
    answer: Answer, columns: Sequence[str], form: AnswerForm, *, nothing: str = "nothing found"
) -> None:
    """Print a page. Columns are fields of the items; JSON has all fields."""
    if form is AnswerForm.json:
        print_documents(Form.json, page_document(answer))
    elif form is AnswerForm.csv:
        _print_csv(answer.items, columns)
    elif answer.items:
        rows = [[_cell(name, item.get(name)) for name in columns] for item in answer.items]
        Lines([_header(name) for name in columns]).write(rows)
    elif answer.after is None:
        console.stderr.print(nothing)
    if answer.after is not None:
        console.stderr.print(f"there is more: --after {answer.after}", markup=False)
    if answer.cut:
        console.stderr.print("there is more: give a higher --limit")
    if answer.archived:
        console.stderr.print(answer.archived, markup=False)


def print_item(item: Item, form: AnswerForm) -> None:
    """Print an answer that is one item, a line for each field."""
    if form is AnswerForm.json:
        print_documents(Form.json, item)
    elif form is AnswerForm.csv:
        _print_csv([item], list(item))
    else:
        width = max(len(_header(name)) for name in item) + 3
        for name, value in item.items():
            write(f"{_header(name).lower():{width}}{_cell(name, value)}")


def _print_csv(items: Sequence[Item], columns: Sequence[str]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(
        ["" if item.get(it) is None else plain_cell(_text(item.get(it))) for it in columns] for item in items
    )
    sys.stdout.flush()


def _header(field: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", r" \1", field).upper()


def _cell(field: str, value: Any) -> str:
    if value is None or value == []:
        return "-"
    if isinstance(value, str) and (field in TIMES or field.endswith("At")):
        return local_time(value)
    return " ".join(_text(value).split())


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, list):
        return "; ".join(map(_text, value))
    if isinstance(value, Mapping):
        return _mapping_text(value)
    return str(value)


def _mapping_text(value: Mapping[str, Any]) -> str:
    """An element of a list: a leg, a reason, a runner-up, or else its fields."""
    if "state" in value:
        return f"{value['claim']} → {value['volume'] or 'a new volume'} ({value['state']})"
    if "some" in value:
        some = f" ({', '.join(value['some'])}…)" if value["some"] else ""
        return f"{value['nodes']} nodes{some}: {value['reason']}"
    if "score" in value:
        return f"{value['node']} ({value['score']})"
    return ", ".join(f"{name} {_text(it)}" for name, it in value.items())


# `volsched audit why` as a table has the claims and failures below it, a line each.


def print_why(item: Item, output: AnswerForm) -> None:
    if output is not AnswerForm.table:
        print_item(item, output)
        return
    print_item({name: it for name, it in item.items() if name not in ("failure", "failing")}, output)
    for line in (*claim_lines(item["reasons"]), *failure_lines(item)):
        write(line)
