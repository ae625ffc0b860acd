"""The `volsched` command: the verbs, and how any failure becomes one clear message and an exit code."""

from typing import Annotated

import typer

from volsched.cli import bench, conform, explain, validate
from volsched.cli.console import print_version

app = typer.Typer(
    name="volsched",
    help="Decide which volume a workload gets, on which node, and say why.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 unsatisfiable.",
)


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=print_version, is_eager=True)
    ] = False,
) -> None:
    """Options that stand before the verb."""


app.command(no_args_is_help=True, epilog=conform.EXAMPLES)(conform.conform)
app.command(no_args_is_help=True, epilog=validate.EXAMPLES)(validate.validate)
app.add_typer(explain.app, name="explain")
app.add_typer(bench.app, name="bench")


def main() -> None:
    app()
