"""The `volsched` command: the verbs, and how any failure becomes one clear message and an exit code."""

from typing import Annotated

import typer

from volsched.cli import (
    audit,
    bench,
    bind,
    conform,
    demo,
    describe,
    explain,
    get,
    history,
    integrity,
    objects,
    recovery,
    release,
    run,
    serve,
    simulate,
    transfer,
    validate,
)
from volsched.cli.console import print_version

app = typer.Typer(
    name="volsched",
    help="Decide which volume a workload gets, on which node, and say why.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 unsatisfiable, 5 integrity, 6 timed out, "
    "7 conflict, 130 Ctrl-C.",
)


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=print_version, is_eager=True)
    ] = False,
) -> None:
    """Options that stand before the verb."""


app.command(epilog=demo.EXAMPLES)(demo.demo)
app.command(no_args_is_help=True, epilog=conform.EXAMPLES)(conform.conform)
app.command(no_args_is_help=True, epilog=validate.EXAMPLES)(validate.validate)
app.command(no_args_is_help=True, epilog=get.EXAMPLES)(get.get)
app.command(no_args_is_help=True, epilog=describe.EXAMPLES)(describe.describe)
app.command(no_args_is_help=True, epilog=objects.APPLY_EXAMPLES)(objects.apply)
app.command(no_args_is_help=True, epilog=objects.CREATE_EXAMPLES)(objects.create)
app.command(no_args_is_help=True, epilog=objects.DELETE_EXAMPLES)(objects.delete)
app.command("import", no_args_is_help=True, epilog=objects.IMPORT_EXAMPLES)(objects.import_dump)
app.command(epilog=run.SCHEDULE_EXAMPLES)(run.schedule)
app.command("simulate", no_args_is_help=True, epilog=simulate.EXAMPLES)(simulate.run_simulation)
app.command(epilog=serve.UP_EXAMPLES)(serve.up)
app.command("recover", epilog=recovery.RECOVER_EXAMPLES)(recovery.recover_store)
app.command(no_args_is_help=True, epilog=release.RELEASE_EXAMPLES)(release.release)
app.command(epilog=release.ORPHANS_EXAMPLES)(release.orphans)
app.command(epilog=integrity.MIGRATE_EXAMPLES)(integrity.migrate)
app.command(epilog=integrity.VERIFY_EXAMPLES)(integrity.verify)
app.command(epilog=integrity.REBUILD_EXAMPLES)(integrity.rebuild)
app.command(epilog=integrity.REPLAY_EXAMPLES)(integrity.replay)
app.command(no_args_is_help=True, epilog=transfer.EXPORT_EXAMPLES)(transfer.export)
app.command("import-log", no_args_is_help=True, epilog=transfer.IMPORT_EXAMPLES)(transfer.import_file)
app.command(no_args_is_help=True, epilog=transfer.ARCHIVE_EXAMPLES)(transfer.archive)
app.command(no_args_is_help=True, epilog=history.HISTORY_EXAMPLES)(history.history)
app.command(no_args_is_help=True, epilog=history.DIFF_EXAMPLES)(history.diff)
app.add_typer(audit.app, name="audit")
app.add_typer(recovery.app, name="effects")
app.add_typer(explain.app, name="explain")
app.add_typer(bind.app, name="bind")
app.add_typer(bench.app, name="bench")
app.add_typer(serve.app, name="serve")
