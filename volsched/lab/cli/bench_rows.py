"""Shared code of the benchmark commands: stores to measure on, and output and history of their rows."""

import json
import os
import resource
import time
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

import typer
from rich.progress import Progress, track
from rich.table import Table

from volsched.cli.console import Exit, fail, stderr, stdout
from volsched.lab.bench.figure_history import FigureHistoryError, append_history, changes
from volsched.lab.bench.plot import svg
from volsched.log.database import Database
from volsched.log.migrations import scratch_store
from volsched.runtime.clock import rfc3339, system_clock


class MeasuredRow(Protocol):
    def as_json(self) -> dict[str, Any]: ...


Row = TypeVar("Row", bound=MeasuredRow)


class BenchOutput(StrEnum):
    table = "table"
    json = "json"
    svg = "svg"


OutputOption = Annotated[BenchOutput, typer.Option("--output", "-o", help="Form of the answer; svg is a chart.")]
Server = Annotated[
    str | None,
    typer.Option(
        "--postgres",
        metavar="URL",
        help="Measure on this PostgreSQL server too, in a database that is created for it and dropped.",
    ),
]

_benchmark: ContextVar[tuple[str, Path | None]] = ContextVar("benchmark", default=("", None))
"""The benchmark that runs, and the history file."""


def note_benchmark(name: str, history: Path | None) -> None:
    """Set the benchmark for the rest of this command."""
    _benchmark.set((name, history))


# Stores to measure on.


def servers(postgres: str | None) -> tuple[str | None, ...]:
    """None: an SQLite file."""
    return (None, postgres) if postgres else (None,)


def measured(postgres: str | None, measure: Callable[[Database], Iterable[Row]]) -> list[Row]:
    """The rows of an empty store on SQLite, and of one on PostgreSQL where a server is named."""
    rows: list[Row] = []
    for server in servers(postgres):
        with scratch_store(server) as database:
            rows += measure(database)
    return rows


def processor_seconds() -> float:
    """Processor time of this process, and of those that it has started and waited for."""
    waited = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + waited.ru_utime + waited.ru_stime


def with_progress(rows: Iterable[Row], total: int) -> list[Row]:
    return list(track(rows, "Measuring", total=total, console=stderr, disable=not stderr.is_terminal))


def fill_with_progress(total: int, written: Iterable[int]) -> None:
    """Consumes `written`, which fills a store, and shows how many events it has written."""
    with Progress(console=stderr, disable=not stderr.is_terminal, transient=True) as progress:
        task = progress.add_task(f"Writing {total:,} events", total=total)
        for count in written:
            progress.update(task, completed=count)


# Output of rows.


def print_rows(measured_rows: Iterable[MeasuredRow], output: BenchOutput) -> None:
    rows = [row.as_json() for row in measured_rows]
    # First, so that the rows are shown even if the history cannot be written.
    _print_as(rows, output)
    _append_to_history(rows)


def _print_as(rows: Sequence[dict[str, Any]], output: BenchOutput) -> None:
    if output is BenchOutput.json:
        stdout.print_json(json.dumps(rows))
        return
    if output is BenchOutput.svg:
        print(svg(f"volsched bench {_benchmark.get()[0]}", rows), end="")
        return
    table = Table(box=None, pad_edge=False)
    for name, value in rows[0].items():
        table.add_column(name.replace("_", " "), justify="left" if isinstance(value, str) else "right")
    for row in rows:
        table.add_row(*map(_cell, row.values()))
    stdout.print(table)


def _append_to_history(rows: Sequence[dict[str, Any]]) -> None:
    name, file = _benchmark.get()
    if file is None:
        return
    try:
        for change in changes(file, name, rows):
            stderr.print(f"changed: {change}", markup=False, highlight=False, soft_wrap=True)
        append_history(file, name, rows, at=rfc3339(system_clock()), load=os.getloadavg()[0])
    except FigureHistoryError as error:
        fail(Exit.USAGE, f"{error}; name another file with --history")
    except OSError as error:
        fail(Exit.FAILURE, f"{file} cannot be written: {error.strerror}; name another file with --history")


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return str(value)
