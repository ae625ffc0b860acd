"""Objects on stdout in the chosen form: columns, CSV, JSON, YAML, names, or what paths select."""

import csv
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.cells import cell_len

from volsched.cli import plain_text
from volsched.cli.console import Exit, fail, on_terminal, output_width, print_json
from volsched.cli.row_choice import EVERY_ROW, RowChoice
from volsched.kube.display_text import one_line, plain_cell, visible
from volsched.kube.manifest import metadata
from volsched.log.events.streams import Named
from volsched.questions.get.columns import columns_of
from volsched.questions.get.documents import Column
from volsched.questions.get.object_rows import ObjectRow

if TYPE_CHECKING:
    from volsched.kube.json_path import Path, Template

GAP = 3


class Form(StrEnum):
    table = "table"
    wide = "wide"
    json = "json"
    yaml = "yaml"
    csv = "csv"
    name = "name"
    jsonpath = "jsonpath"
    columns = "custom-columns"


FORMS = "table, wide, json, yaml, csv, name, jsonpath=TEMPLATE or custom-columns=HEADER:PATH,..."
FormOption = Annotated[
    str,
    typer.Option(
        "--output", "-o", metavar="FORM", help=f"{FORMS}.", autocompletion=lambda: [it.value for it in Form]
    ),
]


@dataclass(frozen=True, slots=True)
class ObjectForm:
    """The value of `-o`, for objects."""

    form: Form
    template: "Template" = ()
    headers: tuple[str, ...] = ()

    def text_of(self, document: Any) -> str:
        from volsched.kube.json_path import rendered

        return rendered(self.template, document)

    def row_of(self, document: Any) -> list[str]:
        from volsched.kube.json_path import shown_value, values_at

        values = ([*map(shown_value, values_at(cast("Path", it), document))] for it in self.template)
        return [",".join(it) or "<none>" for it in values]


def form_of(text: str) -> ObjectForm:
    """Ends the command if there is no such form."""
    name, _, rest = text.partition("=")
    try:
        form = Form(name)
    except ValueError:
        fail(Exit.USAGE, f"-o: '{text[:80]}' is not one of {FORMS}")
    if form not in (Form.jsonpath, Form.columns):
        return ObjectForm(form)
    from volsched.kube.json_path import JsonPathError, parse_path, parse_template

    try:
        if form is Form.jsonpath:
            return ObjectForm(form, parse_template(rest))
        headers, paths = zip(*(_column(it) for it in rest.split(",")), strict=True)
        return ObjectForm(form, tuple(map(parse_path, paths)), headers)
    except JsonPathError as error:
        fail(Exit.USAGE, f"-o {name}: {error}")


def _column(text: str) -> tuple[str, str]:
    header, colon, path = text.partition(":")
    if not (header and colon and path):
        fail(
            Exit.USAGE, f'-o custom-columns: "{text}" is no column; write HEADER:PATH, such as NAME:.metadata.name'
        )
    return header, path


def write(text: str) -> None:
    """Print text unchanged: not wrapped, coloured or buffered. Control characters are made visible."""
    print(visible(text), file=sys.stdout, flush=True)


def print_documents(form: Form, document: Any, before: int = 0) -> None:
    """Print a JSON or YAML document, after `before` others; a terminal gets JSON in colours."""
    if form is Form.yaml:
        # Imported here: a table needs no YAML.
        from volsched.kube.manifest_reader import dump_manifests

        if before:
            write("---")
        write(dump_manifests([document]).removeprefix("---\n").rstrip("\n"))
    elif on_terminal():
        print_json(document)
    else:
        write(json.dumps(document, indent=2, ensure_ascii=False))


@dataclass(slots=True)
class Lines:
    """Rows under headers; the first rows decide how wide the columns are."""

    headers: Sequence[str]
    with_headers: bool = True
    pages: bool = True
    """A table that is too wide is shown in a pager; False while more rows may follow."""
    _widths: list[int] | None = None

    def write(self, rows: Sequence[Sequence[str]]) -> None:
        fits = True
        rows = [list(map(_shown, row)) for row in rows]
        if self._widths is None:
            head = [self.headers] if self.with_headers or not rows else []
            shown: Sequence[Sequence[str]] = [*head, *rows]
            if on_terminal():
                from volsched.cli.table_fit import fitted

                shown, fits = fitted(shown, output_width(), GAP)
            self._widths = [max(map(_width, column)) + GAP for column in zip(*shown, strict=True)]
            rows = shown if self.with_headers else shown[len(head) :]
        lines = [self._line(row) for row in rows]
        if not fits and self.pages:
            from volsched.cli.table_fit import page

            if page(visible("\n".join(lines)) + "\n"):
                return
        if lines:
            # In one piece: 100,000 single writes take a second.
            write("\n".join(lines))

    def _line(self, row: Sequence[str]) -> str:
        assert self._widths is not None
        widths = self._widths
        return "".join(
            [cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)]
        ).rstrip()


def _shown(cell: str) -> str:
    """The cell as it is printed, so that its column becomes wide enough."""
    if cell.isascii() and cell.isprintable():
        return cell
    return plain_text(visible(one_line(cell)), sys.stdout.encoding or "utf-8")


def _width(text: str) -> int:
    """The width in cells of a terminal. Nearly all text is ASCII, which needs no lookup."""
    return len(text) if text.isascii() and text.isprintable() else cell_len(text)


@dataclass(slots=True)
class Sheet:
    """Rows of one kind, printed as they come."""

    named: Named
    shape: ObjectForm
    with_namespace: bool = False
    with_kind: bool = False
    """Whether names include the kind, because several kinds are shown."""
    with_headers: bool = True
    with_labels: bool = False
    choice: RowChoice = EVERY_ROW
    data: Mapping[str, str] | None = None
    """Key of a claim → whether its volume was used."""
    goes_on: bool = False
    """Whether rows come one by one, until Ctrl-C."""
    _lines: Lines | None = field(default=None, init=False)
    _documents: int = field(default=0, init=False)

    @property
    def form(self) -> Form:
        return self.shape.form

    def print(self, items: Sequence[ObjectRow], *, gone: bool = False) -> None:
        """`gone`: the objects were deleted, and are shown as they last were."""
        items = [it for it in items if self.choice.includes(it)]
        match self.form:
            case Form.name:
                for item in items:
                    write(f"{self.named.singular}/{item.name}")
            case Form.json | Form.yaml:
                for item in items:
                    print_documents(self.form, item.manifest(), self._documents)
                    self._documents += 1
            case Form.jsonpath:
                for item in items:
                    write(self.shape.text_of(item.manifest()).removesuffix("\n"))
            case Form.csv:
                self._print_csv(items)
            case _:
                if self._lines is None:
                    self._lines = Lines(self._headers(), self.with_headers, pages=not self.goes_on)
                rows = [self._row(item) for item in items]
                self._lines.write([[*row[:-1], f"{row[-1]} (deleted)"] for row in rows] if gone else rows)

    def _print_csv(self, items: Iterable[ObjectRow]) -> None:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        if self._lines is None:
            self._lines = Lines(self._headers())
            if self.with_headers:
                writer.writerow(self._lines.headers)
        writer.writerows(map(plain_cell, self._row(item)) for item in items)
        sys.stdout.flush()

    def _headers(self) -> list[str]:
        if self.form is Form.columns:
            return [*self.shape.headers]
        headers = [*(("NAMESPACE",) if self.with_namespace else ()), *(it.header for it in self._shown_columns())]
        headers += ["DATA"] if self.data is not None else []
        return [*headers, "LABELS"] if self.with_labels else headers

    def _row(self, item: ObjectRow) -> list[str]:
        if self.form is Form.columns:
            return [" ".join(it.split()) for it in self.shape.row_of(item.manifest())]
        cells = self._cells(item)
        shown = [*cells] if self.form is Form.csv else [" ".join(cell.split()) for cell in cells]
        if self.with_kind:
            names = [at for at, it in enumerate(self._shown_columns()) if it.header == "NAME"]
            shown = [f"{self.named.singular}/{it}" if at in names else it for at, it in enumerate(shown)]
        shown = [item.namespace, *shown] if self.with_namespace else shown
        shown += [self.data.get(item.key, "unknown")] if self.data is not None else []
        return [*shown, _labels(item)] if self.with_labels else shown

    def _cells(self, item: ObjectRow) -> list[str]:
        if self.form is Form.table and item.narrow is not None:
            return item.narrow()
        columns, cells = columns_of(self.named.noun, wide=True), item.cells()
        if len(cells) != len(columns):
            fail(
                Exit.FAILURE,
                f"the server shows other columns of {self.named.plural} than we do; use its version of volsched",
            )
        if self.form is not Form.table:
            return cells
        return [cell for column, cell in zip(columns, cells, strict=True) if not column.wide]

    def _shown_columns(self) -> Sequence[Column]:
        return columns_of(self.named.noun, wide=self.form is not Form.table)


def _labels(item: ObjectRow) -> str:
    labels = metadata(item.manifest()).get("labels") or {}
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items())) or "<none>"
