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
    wanted,
)
from volsched.cli.moment_option import check_as_of
from volsched.cli.object_source import AskedObjects, ObjectSource
from volsched.cli.output import Form, FormOption, ObjectForm, Sheet, form_of, print_documents, write
from volsched.cli.question_command import Client, checked, client_of, declared
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
        typer.Argument(metavar="NAME", help="Only these; NS/NAME too.", autocompletion=complete_name),
    ] = None,
    everywhere: AllOption = False,
    selector: Annotated[
        str | None,
        typer.Option("--selector", "-l", metavar="SELECTOR", help="Only with these labels: a=b,c!=d,!e."),
    ] = None,
    fields: FieldSelectorOption = None,
    order: SortOption = None,
    output: FormOption = Form.table.value,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Rows alone.")] = False,
    show_labels: Annotated[bool, typer.Option("--show-labels", help="With the labels in a last column.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on with every change, until Ctrl-C.")] = False,
    db: Db = None,
    **words: Any,
) -> None:
    shape, as_of = form_of(output), words["as_of"]
    asked = wanted(words["kind"], names or [], namespace=words["namespace"], everywhere=everywhere)
    labels = _selector(selector, asked)
    choice = row_choice(fields, order, [it.named for it in asked])
    if watch and as_of is not None:
        fail(Exit.USAGE, "-w shows what changes from now on, and --as-of the past; give one of them")
    if watch and len(asked) > 1:
        fail(Exit.USAGE, "one kind can be watched at a time; run the command once for each")
    sheets = [
        Sheet(
            it.named,
            shape,
            _with_namespace(it, shape.form),
            with_kind=len(asked) > 1,
            with_headers=not no_headers,
            with_labels=show_labels,
            choice=choice,
            goes_on=watch,
        )
        for it in asked
    ]
    as_of = check_as_of(as_of)
    with client_of(db) as client:
        source = _source(client, db, as_of, selector, labels)
        # Of 100,000 objects nothing is garbage until they are printed.
        with collector_resting():
            answers = [_found(source, it) for it in asked]
            found = [choice.chosen(rows) for rows, _ in answers]
            missing = [message for _, messages in answers for message in messages]
            for sheet, it, rows in zip(sheets, asked, found, strict=True):
                if rows and it.named.noun == "claim" and shape.form is Form.wide and as_of is None and not watch:
                    sheet.data = _data_of_claims(client, it)
            _print(asked, sheets, found, shape, watch=watch)
        if not any(found) and not any(it.keys for it in asked):
            _tell_nothing(source, asked, labels, fields)
        if missing:
            fail(Exit.NOT_FOUND, *missing)
        if watch:
            # Also while it only begins: what watches is loaded after the list is printed.
            with suppress(KeyboardInterrupt):
                source.watch(asked[0], sheets[0])


get.__doc__ = QUESTION.description


def _source(
    client: Client, db: str | None, as_of: str | None, selector: str | None, labels: LabelSelector | None
) -> ObjectSource:
    server = None if as_of is not None else chosen_server(db)
    if server is None:
        return AskedObjects(client, as_of, labels)
    from volsched.cli.remote.served_objects import ServedObjects

    return ServedObjects(client, server, selector)


def _data_of_claims(client: Client, asked: NamedObject) -> dict[str, str] | None:
    """A question of its own, because it reads the history: a table alone must not, and not everybody may."""
    told = client.permitted(question("audit data"), checked("audit data", claims_in=asked.namespace))
    return None if told is None else {it["claim"]: it["data"] for it in told.document["items"]}


def _found(source: ObjectSource, asked: NamedObject) -> tuple[Sequence[ObjectRow], list[str]]:
    """Rows, and what to say of the names that are not there."""
    if not asked.keys:
        return source.every(asked), []
    rows: list[ObjectRow] = []
    missing: list[str] = []
    for key in asked.keys:
        try:
            rows += source.one(asked.named, key)
        except UnknownError as error:
            missing.append(str(error))
    return rows, missing


def _selector(text: str | None, asked: Sequence[NamedObject]) -> LabelSelector | None:
    if text is None:
        return None
    named = next((it for it in asked if it.keys), None)
    if named is not None:
        fail(Exit.USAGE, f"{named.keys[0]} is named already; give a name or a selector")
    unlabelled = next((it for it in asked if not it.named.is_object), None)
    if unlabelled is not None:
        fail(Exit.USAGE, f"{unlabelled.named.plural} have no labels; leave -l out")
    try:
        return parse_label_selector(text)
    except SelectorTextError as error:
        fail(Exit.USAGE, str(error))


def _with_namespace(asked: NamedObject, form: Form) -> bool:
    return asked.named.namespaced and (asked.namespace is None or form is Form.csv)


def _print(
    asked: Sequence[NamedObject],
    sheets: Sequence[Sheet],
    found: Sequence[Sequence[ObjectRow]],
    shape: ObjectForm,
    *,
    watch: bool,
) -> None:
    form = shape.form
    single = len(asked) == 1 and len(asked[0].keys) == 1
    if form in (Form.json, Form.yaml, Form.jsonpath) and not watch and not single:
        document = as_list([item.manifest() for items in found for item in items])
        if form is Form.jsonpath:
            write(shape.text_of(document).removesuffix("\n"))
        else:
            print_documents(form, document)
        return
    if form is Form.columns:
        # One table of all kinds.
        sheets, found = sheets[:1], [[item for items in found for item in items]]
    shown = 0
    for sheet, items in zip(sheets, found, strict=True):
        if shown and items and form in (Form.table, Form.wide):
            write("")
        if items or form is Form.csv:
            sheet.print(items)
        shown += len(items)


def _tell_nothing(
    source: ObjectSource, asked: Sequence[NamedObject], labels: LabelSelector | None, fields: str | None
) -> None:
    chosen = " with these labels" if labels is not None else ""
    chosen += f" with {fields}" if fields is not None else ""
    where = f" in namespace {asked[0].namespace}" if asked[0].namespace is not None else ""
    hint = f";{_near_namespace(source, asked[0].namespace)} -A shows those of every namespace" if where else ""
    console.stderr.print(f"there are no {', '.join(it.named.plural for it in asked)}{chosen}{where}{hint}")


def _near_namespace(source: ObjectSource, namespace: str | None) -> str:
    """What was probably meant by a namespace that is not there."""
    if namespace in (None, DEFAULT_NAMESPACE):
        return ""
    import difflib

    named = kind_of("namespace")
    there = [it.name for it in source.every(NamedObject(named))]
    near = [] if namespace in there else difflib.get_close_matches(str(namespace), there, 1)
    return f" did you mean {near[0]}?" if near else ""
