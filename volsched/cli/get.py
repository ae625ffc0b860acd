"""`volsched get`: objects, bindings and attempts, in kubectl's words."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer

from volsched.cli import console
from volsched.cli.completion import complete_name
from volsched.cli.console import Exit, fail
from volsched.cli.kind_names import (
    AllOption,
    NamedObject,
    kind_of,
    requested_objects,
)
from volsched.cli.moment_option import check_as_of
from volsched.cli.object_source import ObjectSource, RegistryObjects
from volsched.cli.output import Form, FormOption, ObjectForm, Sheet, form_of, print_documents, write
from volsched.cli.question_command import Client, client_of, declared, parameters_for
from volsched.cli.remote.server_choice import chosen_server
from volsched.cli.row_choice import FieldSelectorOption, SortOption, row_choice
from volsched.cli.store_option import Db
from volsched.kube.meta import DEFAULT_NAMESPACE
from volsched.kube.selectors import LabelSelector, SelectorTextError, parse_label_selector
from volsched.log.garbage_pause import collector_resting
from volsched.questions.get.documents import as_list
from volsched.questions.get.object_rows import ObjectRow
from volsched.questions.refusals import UnknownError
from volsched.questions.registry import question

QUESTION = question("get")
EXAMPLES = QUESTION.examples


@declared(question("get object"), without=("name",))
def get(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Only these; NAME or NS/NAME.", autocompletion=complete_name),
    ] = None,
    everywhere: AllOption = False,
    selector: Annotated[
        str | None,
        typer.Option("--selector", "-l", metavar="SELECTOR", help="Only with these labels: a=b,c!=d,!e."),
    ] = None,
    fields: FieldSelectorOption = None,
    order: SortOption = None,
    output: FormOption = Form.table.value,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Without column headers.")] = False,
    show_labels: Annotated[bool, typer.Option("--show-labels", help="With the labels in a last column.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Then print every change, until Ctrl-C.")] = False,
    db: Db = None,
    **words: Any,
) -> None:
    shape, as_of = form_of(output), words["as_of"]
    requests = requested_objects(words["kind"], names or [], namespace=words["namespace"], everywhere=everywhere)
    labels = _selector(selector, requests)
    choice = row_choice(fields, order, [it.named for it in requests])
    if watch and as_of is not None:
        fail(Exit.USAGE, "-w shows what changes from now on, and --as-of the past; give one of them")
    if watch and len(requests) > 1:
        fail(Exit.USAGE, "one kind can be watched at a time; run the command once for each")
    sheets = [
        Sheet(
            it.named,
            shape,
            _with_namespace(it, shape.form),
            with_kind=len(requests) > 1,
            with_headers=not no_headers,
            with_labels=show_labels,
            choice=choice,
            goes_on=watch,
        )
        for it in requests
    ]
    as_of = check_as_of(as_of)
    with client_of(db) as client:
        source = _source(client, db, as_of, selector, labels)
        # Collects no garbage meanwhile: 100,000 objects stay alive until they are printed.
        with collector_resting():
            answers = [_rows_of(source, it) for it in requests]
            rows_of_each = [choice.select(rows) for rows, _ in answers]
            missing = [message for _, messages in answers for message in messages]
            for sheet, it, rows in zip(sheets, requests, rows_of_each, strict=True):
                if rows and it.named.noun == "claim" and shape.form is Form.wide and as_of is None and not watch:
                    sheet.data = _data_of_claims(client, it)
            _print(requests, sheets, rows_of_each, shape, watch=watch)
        if not any(rows_of_each) and not any(it.keys for it in requests):
            _report_empty(source, requests, labels, fields)
        if missing:
            fail(Exit.NOT_FOUND, *missing)
        if watch:
            # Also while the watch starts: its modules are loaded after the list is printed.
            with suppress(KeyboardInterrupt):
                source.watch(requests[0], sheets[0])


get.__doc__ = QUESTION.description


def _source(
    client: Client, db: str | None, as_of: str | None, selector: str | None, labels: LabelSelector | None
) -> ObjectSource:
    server = None if as_of is not None else chosen_server(db)
    if server is None:
        return RegistryObjects(client, as_of, labels)
    from volsched.cli.remote.served_objects import ServedObjects

    return ServedObjects(client, server, selector)


def _data_of_claims(client: Client, request: NamedObject) -> dict[str, str] | None:
    """A separate question, because it reads the history: a plain table must not, and not every user may."""
    answer = client.permitted(question("audit data"), parameters_for("audit data", claims_in=request.namespace))
    return None if answer is None else {it["claim"]: it["data"] for it in answer.document["items"]}


def _rows_of(source: ObjectSource, request: NamedObject) -> tuple[Sequence[ObjectRow], list[str]]:
    """Rows, and a message for each name that does not exist."""
    if not request.keys:
        return source.every(request), []
    rows: list[ObjectRow] = []
    missing: list[str] = []
    for key in request.keys:
        try:
            rows += source.one(request.named, key)
        except UnknownError as error:
            missing.append(str(error))
    return rows, missing


def _selector(text: str | None, requests: Sequence[NamedObject]) -> LabelSelector | None:
    if text is None:
        return None
    named = next((it for it in requests if it.keys), None)
    if named is not None:
        fail(Exit.USAGE, f"{named.keys[0]} is named already; give a name or a selector")
    unlabelled = next((it for it in requests if not it.named.is_object), None)
    if unlabelled is not None:
        fail(Exit.USAGE, f"{unlabelled.named.plural} have no labels; leave -l out")
    try:
        return parse_label_selector(text)
    except SelectorTextError as error:
        fail(Exit.USAGE, str(error))


def _with_namespace(request: NamedObject, form: Form) -> bool:
    return request.named.namespaced and (request.namespace is None or form is Form.csv)


def _print(
    requests: Sequence[NamedObject],
    sheets: Sequence[Sheet],
    rows_of_each: Sequence[Sequence[ObjectRow]],
    shape: ObjectForm,
    *,
    watch: bool,
) -> None:
    form = shape.form
    single = len(requests) == 1 and len(requests[0].keys) == 1
    if form in (Form.json, Form.yaml, Form.jsonpath) and not watch and not single:
        document = as_list([item.manifest() for items in rows_of_each for item in items])
        if form is Form.jsonpath:
            write(shape.text_of(document).removesuffix("\n"))
        else:
            print_documents(form, document)
        return
    if form is Form.columns:
        # One table for all kinds.
        sheets, rows_of_each = sheets[:1], [[item for items in rows_of_each for item in items]]
    shown = 0
    for sheet, items in zip(sheets, rows_of_each, strict=True):
        if shown and items and form in (Form.table, Form.wide):
            write("")
        if items or form is Form.csv:
            sheet.print(items)
        shown += len(items)


def _report_empty(
    source: ObjectSource, requests: Sequence[NamedObject], labels: LabelSelector | None, fields: str | None
) -> None:
    chosen = " with these labels" if labels is not None else ""
    chosen += f" with {fields}" if fields is not None else ""
    where = f" in namespace {requests[0].namespace}" if requests[0].namespace is not None else ""
    hint = f";{_near_namespace(source, requests[0].namespace)} -A shows those of every namespace" if where else ""
    console.stderr.print(f"there are no {', '.join(it.named.plural for it in requests)}{chosen}{where}{hint}")


def _near_namespace(source: ObjectSource, namespace: str | None) -> str:
    """A suggestion for a namespace that does not exist."""
    if namespace in (None, DEFAULT_NAMESPACE):
        return ""
    import difflib

    named = kind_of("namespace")
    there = [it.name for it in source.every(NamedObject(named))]
    near = [] if namespace in there else difflib.get_close_matches(str(namespace), there, 1)
    return f" did you mean {near[0]}?" if near else ""
