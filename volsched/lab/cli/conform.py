"""`volsched conform`: are our answers the reference's?"""

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from volsched.cli.console import Exit, fail, stderr, stdout
from volsched.lab.conformance.vectors import VectorError, VectorOutcome, read_vectors, run_vector

EXAMPLES = """
Examples:

volsched conform tests/lab/binder.jsonl.gz

volsched conform tests/lab/controller.jsonl.gz

volsched conform vectors.jsonl --show 20

volsched conform --live tests/live/scenarios

volsched --server https://HOST:6443 --ca-file ca.crt --token-file token conform --live scenario.json
"""


def conform(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Golden vectors, .jsonl or .jsonl.gz; or scenarios.")
    ],
    show: Annotated[int, typer.Option(help="How many failed vectors to show in full.", min=0)] = 5,
    live: Annotated[
        bool, typer.Option("--live", help="FILE is a live scenario, or a directory of them; play it on a server.")
    ] = False,
    record: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="With --live: write what this server makes of it, as the outcome."),
    ] = None,
    patience: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="With --live on a server: look once all stays as expected; give up after SECONDS without news.",
        ),
    ] = None,
) -> None:
    """Run golden vectors under profile `parity`: of the volume binder, or of the PV controller.

    With `--live`, play scenarios (steps over the public API) and compare how they end with how a real control
    plane ended them: on the server of `--server`, which must be empty and is emptied again, or without one on a
    system of our own whose clock does not wait.

    Of the binder every field of every answer is compared; of the controller the objects at the end, its events and
    its calls of the volume plugin. Which kind a vector is shows in its input.

    Prints a table by category, the first differences, and `N passed, M failed, K skipped`. Only vectors on which
    the reference itself crashed are skipped. Exit 1 if any failed, 2 if the file cannot be read.
    """
    if live:
        # The other vectors need no server.
        from volsched.lab.cli.conform_live import conform_live

        conform_live(files, show=show, record=record, patience=patience)
        return
    if record is not None or patience is not None:
        fail(Exit.USAGE, "--record and --patience are for scenarios; give --live too")
    for file in files:
        _conform(file, show)


def _conform(file: Path, show: int) -> None:
    try:
        vectors = list(read_vectors(_lines(file)))
        outcomes = [
            run_vector(vector)
            for vector in track(vectors, "Running vectors", console=stderr, disable=not stderr.is_terminal)
        ]
    except VectorError as error:
        fail(Exit.USAGE, f"{file}: {error}")
    if not outcomes:
        fail(Exit.USAGE, f"{file} holds no vectors; give a file with one JSON object per line")
    stdout.print(_table(outcomes))
    failed = [outcome for outcome in outcomes if outcome.failed]
    for outcome in failed[:show]:
        _show(outcome)
    skipped = sum(outcome.skipped for outcome in outcomes)
    stdout.print(f"{len(outcomes) - len(failed) - skipped} passed, {len(failed)} failed, {skipped} skipped")
    if failed:
        raise typer.Exit(Exit.FAILURE)


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
            yield from lines
    except (OSError, EOFError, zlib.error) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        fail(Exit.USAGE, f"{path} cannot be read: {why}; give a .jsonl or .jsonl.gz file")


def _table(outcomes: list[VectorOutcome]) -> Table:
    table = Table("category", box=None, pad_edge=False)
    for name in ("passed", "failed", "skipped"):
        table.add_column(name, justify="right")
    counts: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        verdict = "failed" if outcome.failed else "skipped" if outcome.skipped else "passed"
        counts.setdefault(outcome.vector.category, Counter())[verdict] += 1
    for category in sorted(counts):
        count = counts[category]
        table.add_row(category, str(count["passed"]), str(count["failed"]), str(count["skipped"]))
    return table


def _show(outcome: VectorOutcome) -> None:
    stdout.print(f"\n[bold]{escape(outcome.vector.id)}[/] ({escape(outcome.vector.category)})")
    for difference in outcome.differences:
        stdout.print(f"  {escape(difference.path)}")
        stdout.print(f"    expected {escape(json.dumps(difference.expected))}")
        stdout.print(f"    got      {escape(json.dumps(difference.got))}")
