"""`volsched get`: objects, bindings and attempts, in kubectl's words."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Protocol

import typer

from volsched.cli.console import Exit, fail, stderr
from volsched.cli.kind_names import AllOption, KindArgument, NamedObject, NamespaceOption, wanted
from volsched.cli.output import Form, FormOption, OutputRow, Sheet, print_documents, row_of, write
from volsched.cli.remote.server_choice import chosen_server
from volsched.cli.store_option import Db, opened
from volsched.cli.store_view import AsOfOption, check_as_of, item_of, looked_at
from volsched.kube.manifest import metadata
from volsched.kube.selector_text import SelectorTextError, parse_label_selector
from volsched.kube.selectors import LabelSelector, label_selector_matches
from volsched.log.database import Database
from volsched.log.events.fold import ObjectState, State
from volsched.log.events.streams import noun_and_key
from volsched.log.reads.as_of import Look, Now
from volsched.log.reads.tail import read_head, state_as_of, tail
from volsched.questions.get.cells import Item, namespace_of
from volsched.questions.get.documents import as_list
from volsched.questions.get.near_names import not_found
from volsched.runtime.clock import system_clock

EXAMPLES = """**Examples**

`volsched get pv -o wide` shows volumes, and which open binding has them for which node

`volsched get pods -A` and `volsched get pvc -n shop -l tier=db`

`volsched get pv disk-7 -o yaml --as-of 2025-11-16T22:00:00Z` is what it was then

`volsched get bindings,attempts -A` is what was decided, and why pods wait

`volsched get pvc -w` goes on with every change until Ctrl-C
"""
PAUSE_SECONDS = 0.2
"""Between two looks at the log's end."""
CHUNK = 1_000


def get(
    kind: KindArgument,
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Only these; NS/NAME too.")] = None,
    namespace: NamespaceOption = None,
    everywhere: AllOption = False,
    selector: Annotated[
        str | None,
        typer.Option("--selector", "-l", metavar="SELECTOR", help="Only with these labels: a=b,c!=d,!e."),
    ] = None,
    output: FormOption = Form.table,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on with every change, until Ctrl-C.")] = False,
    as_of: AsOfOption = None,
    db: Db = None,
) -> None:
    """List objects, or show those that are named.

    Ages are those of the moment that is looked at. Exit 3, with what comes near, if there is no such kind or name.
    """
    asked = wanted(kind, names or [], namespace=namespace, everywhere=everywhere)
    labels = _selector(selector, asked)
    if watch and as_of is not None:
        fail(Exit.USAGE, "-w shows what changes from now on, and --as-of the past; give one of them")
    if watch and len(asked) > 1:
        fail(Exit.USAGE, "one kind can be watched at a time; run the command once for each")
    sheets = [Sheet(it.named, output, _with_namespace(it, output), with_kind=len(asked) > 1) for it in asked]
    with _source(db, as_of, selector, labels) as source:
        answers = source.found(asked)
        found = [rows for rows, _ in answers]
        missing = [message for _, messages in answers for message in messages]
        _print(asked, sheets, found, output, watch=watch)
        if not any(found) and not any(it.keys for it in asked):
            _tell_nothing(asked, labels)
        if missing:
            fail(Exit.NOT_FOUND, *missing)
        if watch:
            source.watch(asked[0], sheets[0])


class _Source(Protocol):
    """Where objects come from: a store, or a server."""

    def found(self, asked: Sequence[NamedObject]) -> list[tuple[list[OutputRow], list[str]]]:
        """Of each, rows, and what to say of the names that are not there."""
        ...

    def watch(self, asked: NamedObject, sheet: Sheet) -> None:
        """Go on with what changes after that."""
        ...


@contextmanager
def _source(
    db: str | None, as_of: str | None, selector: str | None, labels: LabelSelector | None
) -> Iterator[_Source]:
    server = chosen_server(db)
    if server is None:
        with opened(db) as database:
            yield _Stored(database, as_of, labels)
        return
    from volsched.cli.remote.get import ServedTable

    check_as_of(as_of)
    yield ServedTable(server, as_of, selector, labels)


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


def _found(look: Look, asked: NamedObject, labels: LabelSelector | None, now: int) -> Iterator[Item]:
    noun = asked.named.noun
    if asked.keys:
        for key in asked.keys:
            state = look.one(noun, key)
            if state is not None:
                yield item_of(look, key, state, now)
        return
    for key, state in look.every(noun):
        if _is_asked_for(asked, labels, key, state):
            yield item_of(look, key, state, now)


def _is_asked_for(asked: NamedObject, labels: LabelSelector | None, key: str, state: State) -> bool:
    if asked.keys:
        return key in asked.keys
    if asked.namespace is not None and namespace_of(key, state) != asked.namespace:
        return False
    if labels is None:
        return True
    manifest = state.manifest if isinstance(state, ObjectState) else None
    return label_selector_matches(labels, metadata(manifest or {}).get("labels", {}))


def _print(
    asked: Sequence[NamedObject],
    sheets: Sequence[Sheet],
    found: Sequence[Sequence[OutputRow]],
    form: Form,
    *,
    watch: bool,
) -> None:
    single = len(asked) == 1 and len(asked[0].keys) == 1
    if form in (Form.json, Form.yaml) and not watch and not single:
        print_documents(form, as_list([item.manifest() for items in found for item in items]))
        return
    shown = 0
    for sheet, items in zip(sheets, found, strict=True):
        if shown and items and form in (Form.table, Form.wide):
            write("")
        if items or form is Form.csv:
            sheet.print(items)
        shown += len(items)


def _tell_nothing(asked: Sequence[NamedObject], labels: LabelSelector | None) -> None:
    chosen = " with these labels" if labels is not None else ""
    where = f" in namespace {asked[0].namespace}" if asked[0].namespace is not None else ""
    hint = "; -A shows those of every namespace" if where else ""
    stderr.print(f"there are no {', '.join(it.named.plural for it in asked)}{chosen}{where}{hint}")


# --- watching -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Stored:
    """A store, now or as of a moment."""

    database: Database
    as_of: str | None
    labels: LabelSelector | None
    _position: int = 0

    def found(self, asked: Sequence[NamedObject]) -> list[tuple[list[OutputRow], list[str]]]:
        answers: list[tuple[list[OutputRow], list[str]]] = []
        with looked_at(self.database, self.as_of) as (connection, look, now):
            self._position = look.position
            for it in asked:
                rows = [row_of(it.named, item) for item in _found(look, it, self.labels, now)]
                there = {row.key for row in rows}
                missing = [not_found(connection, look, it.named, key) for key in it.keys if key not in there]
                answers.append((rows, missing))
        return answers

    def watch(self, asked: NamedObject, sheet: Sheet) -> None:
        _watch(_Watch(self.database, asked, self.labels, sheet), self._position)


@dataclass(frozen=True, slots=True)
class _Watch:
    database: Database
    asked: NamedObject
    labels: LabelSelector | None
    sheet: Sheet


def _watch(watch: _Watch, position: int) -> None:
    """Until Ctrl-C, which is how a watch ends well."""
    try:
        while True:
            after = _print_changes(watch, position)
            if after == position:
                time.sleep(PAUSE_SECONDS)
            position = after
    except KeyboardInterrupt:
        return


def _print_changes(watch: _Watch, position: int) -> int:
    """What was touched after a position, as it is now; answers how far it has looked."""
    noun = watch.asked.named.noun
    with watch.database.read() as connection:
        events = tail(connection, after=position, limit=CHUNK)
        look = Now(connection, read_head(connection).position)
        for stream in dict.fromkeys(it.stream for it in events if noun_and_key(it.stream)[0] == noun):
            key = noun_and_key(stream)[1]
            state = look.one(noun, key)
            gone = state is None
            if gone:
                last = max(it.position for it in events if it.stream == stream)
                state = state_as_of(connection, stream, position=last - 1)
            if state is not None and _is_asked_for(watch.asked, watch.labels, key, state):
                watch.sheet.print(
                    [row_of(watch.asked.named, item_of(look, key, state, system_clock()))], gone=gone
                )
    return events[-1].position if events else position
