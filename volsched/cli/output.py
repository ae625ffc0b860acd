"""Objects on stdout, in the form that was asked for: aligned columns, CSV, JSON, YAML or names."""

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.cells import cell_len

from volsched.cli.console import print_json, stdout
from volsched.kube.visible_text import plain_cell, visible
from volsched.log.events.kind_names import Named
from volsched.questions.get.cells import Column, Item
from volsched.questions.get.columns import columns_of
from volsched.questions.get.documents import as_manifest

GAP = 3


class Form(StrEnum):
    table = "table"
    wide = "wide"
    json = "json"
    yaml = "yaml"
    csv = "csv"
    name = "name"


FormOption = Annotated[Form, typer.Option("--output", "-o", help="Form of the answer.")]


def write(text: str) -> None:
    """As it is: nothing is wrapped, coloured or held back. What is not printable is shown, not sent."""
    print(visible(text), file=stdout.file, flush=True)


def print_documents(form: Form, document: Any, before: int = 0) -> None:
    """A JSON or YAML document, and how many were printed before it; a terminal gets JSON in colours."""
    if form is Form.yaml:
        # A table needs no YAML.
        from volsched.kube.manifest_reader import dump_manifests

        if before:
            write("---")
        write(dump_manifests([document]).removeprefix("---\n").rstrip("\n"))
    elif stdout.is_terminal:
        print_json(document)
    else:
        write(json.dumps(document, indent=2, ensure_ascii=False))


@dataclass(slots=True)
class Lines:
    """Rows under headers, in columns that were made wide enough for the first of them."""

    headers: Sequence[str]
    _widths: list[int] | None = None

    def write(self, rows: Sequence[Sequence[str]]) -> None:
        if self._widths is None:
            self._widths = [max(map(cell_len, column)) + GAP for column in zip(self.headers, *rows, strict=True)]
            rows = [self.headers, *rows]
        for row in rows:
            padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(row, self._widths, strict=True))
            write("".join(padded).rstrip())


@dataclass(frozen=True, slots=True)
class OutputRow:
    """One thing to be shown, wherever it comes from: what its form does not need is not made."""

    key: str
    name: str
    namespace: str
    cell: Callable[[Column], str]
    manifest: Callable[[], dict[str, Any]]


def row_of(named: Named, item: Item) -> OutputRow:
    return OutputRow(
        item.key,
        item.name,
        item.namespace,
        lambda column: column.value(item),
        lambda: as_manifest(named.noun, item.key, item.state),
    )


@dataclass(slots=True)
class Sheet:
    """Rows of one kind, printed as they come."""

    named: Named
    form: Form
    with_namespace: bool = False
    with_kind: bool = False
    """Several kinds are shown: names say of which they are."""
    _lines: Lines | None = field(default=None, init=False)
    _documents: int = field(default=0, init=False)

    def print(self, items: Sequence[OutputRow], *, gone: bool = False) -> None:
        """`gone`: the objects were deleted, and are shown as they last were."""
        match self.form:
            case Form.name:
                for item in items:
                    write(f"{self.named.singular}/{item.name}")
            case Form.json | Form.yaml:
                for item in items:
                    print_documents(self.form, item.manifest(), self._documents)
                    self._documents += 1
            case Form.csv:
                self._print_csv(items)
            case _:
                if self._lines is None:
                    self._lines = Lines(self._headers())
                rows = [self._row(item) for item in items]
                self._lines.write([[*row[:-1], f"{row[-1]} (deleted)"] for row in rows] if gone else rows)

    def _print_csv(self, items: Iterable[OutputRow]) -> None:
        writer = csv.writer(stdout.file, lineterminator="\n")
        if self._lines is None:
            self._lines = Lines(self._headers())
            writer.writerow(self._lines.headers)
        writer.writerows(map(plain_cell, self._row(item)) for item in items)
        stdout.file.flush()

    def _columns(self) -> list[Column]:
        return columns_of(self.named.noun, wide=self.form is not Form.table)

    def _headers(self) -> list[str]:
        return [*(("NAMESPACE",) if self.with_namespace else ()), *(it.header for it in self._columns())]

    def _row(self, item: OutputRow) -> list[str]:
        cells = [self._cell(column, item) for column in self._columns()]
        return [item.namespace, *cells] if self.with_namespace else cells

    def _cell(self, column: Column, item: OutputRow) -> str:
        text = " ".join(item.cell(column).split()) if self.form is not Form.csv else item.cell(column)
        return f"{self.named.singular}/{text}" if self.with_kind and column.header == "NAME" else text
