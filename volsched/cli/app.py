"""The `volsched` command: the verbs, and how any failure becomes one clear message and an exit code."""

from typing import Annotated

import typer

from volsched.cli import bench, conform, explain, integrity, recovery, run, transfer, validate
from volsched.cli.console import print_version

app = typer.Typer(
    name="volsched",
    help="Decide which volume a workload gets, on which node, and say why.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 unsatisfiable, 5 integrity, 6 timed out.",
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
app.command(no_args_is_help=True, epilog=run.APPLY_EXAMPLES)(run.apply)
app.command(epilog=run.SCHEDULE_EXAMPLES)(run.schedule)
app.command("recover", epilog=recovery.RECOVER_EXAMPLES)(recovery.recover_store)
app.command(epilog=integrity.MIGRATE_EXAMPLES)(integrity.migrate)
app.command(epilog=integrity.VERIFY_EXAMPLES)(integrity.verify)
app.command(epilog=integrity.REBUILD_EXAMPLES)(integrity.rebuild)
app.command(epilog=integrity.REPLAY_EXAMPLES)(integrity.replay)
app.command(no_args_is_help=True, epilog=transfer.EXPORT_EXAMPLES)(transfer.export)
app.command("import-log", no_args_is_help=True, epilog=transfer.IMPORT_EXAMPLES)(transfer.import_file)
app.command(no_args_is_help=True, epilog=transfer.ARCHIVE_EXAMPLES)(transfer.archive)
app.add_typer(recovery.app, name="effects")
app.add_typer(explain.app, name="explain")
app.add_typer(bench.app, name="bench")


def main() -> None:
    app()
