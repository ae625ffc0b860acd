"""`volsched bench`: what our own work costs on this machine."""

import json
import time
from typing import Annotated

import typer
from rich.progress import track
from rich.table import Table

from volsched.cli.console import Output, stderr, stdout
from volsched.insight.bench import CLAIM_COUNTS, CLUSTERS, bench_decide

EXAMPLES = """
Examples:

volsched bench decide

volsched bench decide --nodes 200 -o json
"""

app = typer.Typer(help="Measure what decisions cost, against a baseline of the same run.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Measure what decisions cost, against a baseline of the same run."""


@app.command(epilog=EXAMPLES)
def decide(
    nodes: Annotated[int, typer.Option(help="Nodes of each cluster; volumes are ten times as many.", min=1)] = 50,
    repeat: Annotated[int, typer.Option(help="Runs of each row; the best counts.", min=1)] = 3,
    output: Annotated[Output, typer.Option("--output", "-o", help="Form of the answer.")] = Output.table,
) -> None:
    """One decision over all nodes, without an index, as a ratio to a bare walk over the same nodes and volumes."""
    rows = list(
        track(
            bench_decide(nodes, repeat=repeat, clock=time.perf_counter),
            "Measuring",
            total=len(CLUSTERS) * len(CLAIM_COUNTS),
            console=stderr,
            disable=not stderr.is_terminal,
        )
    )
    if output is Output.json:
        stdout.print_json(json.dumps([row.as_json() for row in rows]))
        return
    table = Table("cluster", box=None, pad_edge=False)
    for name in ("nodes", "volumes", "claims", "feasible", "decision ms", "baseline ms", "ratio"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            row.cluster,
            *map(str, (row.nodes, row.volumes, row.claims, row.feasible_nodes)),
            f"{row.decision_ms:.2f}",
            f"{row.baseline_ms:.3f}",
            f"{row.ratio:.1f}",
        )
    stdout.print(table)
