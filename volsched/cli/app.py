"""The `volsched` command: which verbs there are, and where each of them is."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import typer

from volsched.cli.lazy_commands import MARKUP, CommandVerb, Family, LazyGroup, QuestionVerb
from volsched.cli.remote.options import (
    CaFileOption,
    ClientCertOption,
    ClientKeyOption,
    KubeconfigOption,
    ServerChoice,
    ServerOption,
    TokenFileOption,
    note_choice,
)


class Verbs(LazyGroup):
    """A new command is a line in here: nothing of it is loaded until it is called."""

    table: ClassVar[Mapping[str, tuple[CommandVerb | QuestionVerb | Family, ...]]] = {
        "Begin": (
            CommandVerb("demo", "volsched.lab.cli.demo", "See it all on a small cluster, in a few seconds."),
            CommandVerb(
                "migrate", "integrity", "Make a store, or bring it up to date.", examples="MIGRATE_EXAMPLES"
            ),
            CommandVerb(
                "up", "serve", "Run the whole system, with its API, in one process.", examples="UP_EXAMPLES"
            ),
        ),
        "Objects": (
            CommandVerb("get", "get", "List objects, now or as they were.", needs_words=True),
            CommandVerb(
                "describe", "describe", "Show one with its bindings, attempts and events.", needs_words=True
            ),
            CommandVerb(
                "apply", "objects", "Create or change objects.", examples="APPLY_EXAMPLES", needs_words=True
            ),
            CommandVerb("create", "objects", "Create objects.", examples="CREATE_EXAMPLES", needs_words=True),
            CommandVerb("delete", "objects", "Delete objects.", examples="DELETE_EXAMPLES", needs_words=True),
            CommandVerb(
                "import",
                "objects",
                "Take over a cluster as kubectl prints it.",
                function="import_dump",
                examples="IMPORT_EXAMPLES",
                needs_words=True,
            ),
            CommandVerb("validate", "validate", "Check manifests; nothing is stored.", needs_words=True),
        ),
        "Schedule and bind": (
            CommandVerb(
                "schedule", "run", "Place and bind pods until nothing moves.", examples="SCHEDULE_EXAMPLES"
            ),
            Family("bind", "bind", "Bind a claim now, for a node that you name."),
            Family("reservations", "reservations", "Hold volumes for a pod: reserve, confirm, cancel."),
            CommandVerb(
                "release", "release", "Give a volume free again.", examples="RELEASE_EXAMPLES", needs_words=True
            ),
            Family("serve", "serve", "Run one process of a stack."),
            Family("stack", "volsched.lab.cli.stack", "Run the whole stack on this machine, without Docker."),
        ),
        "Access": (
            Family("token", "tokens", "Issue, list and revoke tokens for the API."),
            Family("certs", "certs", "Make certificates for servers and clients."),
            CommandVerb("kubeconfig", "kubeconfig", "Write what kubectl needs to reach the API."),
        ),
        "Ask": (
            Family("explain", "explain", "Why a pod waits, or is where it is, and what would help."),
            CommandVerb(
                "simulate", "simulate", "What would happen if.", function="run_simulation", needs_words=True
            ),
            QuestionVerb("history", "All that happened to an object."),
            QuestionVerb("diff", "How the world differs since."),
            Family("audit", "audit", "Who, when, why, and what followed."),
            CommandVerb("orphans", "release", "What was left behind.", examples="ORPHANS_EXAMPLES"),
        ),
        "Operate": (
            CommandVerb(
                "recover",
                "recovery",
                "Set going what a crash has left, and say what needs a human.",
                function="recover_store",
                examples="RECOVER_EXAMPLES",
            ),
            Family("effects", "recovery", "List, retry or cancel the work of workers."),
            Family("leases", "leases", "See who acts in which role, and free one."),
            CommandVerb("verify", "proof", "Prove that the log is whole and unchanged."),
            Family("anchor", "anchors", "Make the keys that anchors of the log are signed with."),
            CommandVerb("rebuild", "integrity", "Make the views what the log says.", examples="REBUILD_EXAMPLES"),
            CommandVerb("replay", "integrity", "Fold the log, up to any moment.", examples="REPLAY_EXAMPLES"),
            CommandVerb(
                "export",
                "transfer",
                "Write a part of the log to a file.",
                examples="EXPORT_EXAMPLES",
                needs_words=True,
            ),
            CommandVerb(
                "import-log",
                "transfer",
                "Make a store of such files.",
                function="import_file",
                examples="IMPORT_EXAMPLES",
                needs_words=True,
            ),
            CommandVerb(
                "archive",
                "transfer",
                "Move the oldest events to a file.",
                examples="ARCHIVE_EXAMPLES",
                needs_words=True,
            ),
            CommandVerb(
                "backup",
                "backup",
                "Write all of a store to one file.",
                examples="BACKUP_EXAMPLES",
                needs_words=True,
            ),
            CommandVerb(
                "restore", "backup", "Make a store of a backup.", examples="RESTORE_EXAMPLES", needs_words=True
            ),
            Family("retention", "retention", "Archive, redact and forget what is old, by policy."),
        ),
        "Measure": (
            CommandVerb(
                "conform",
                "volsched.lab.cli.conform",
                "Compare our answers with the reference's.",
                needs_words=True,
            ),
            Family("bench", "volsched.lab.cli.bench", "What our work costs, against a baseline."),
            Family("drill", "volsched.lab.cli.drill", "Break it on purpose, and see that nothing is lost."),
        ),
    }


app = typer.Typer(
    name="volsched",
    cls=Verbs,
    help="Decide which volume a workload gets, on which node, and say why.",
    no_args_is_help=True,
    rich_markup_mode=MARKUP,
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 unsatisfiable, 5 integrity, 6 timed out, "
    "7 conflict, 130 Ctrl-C.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"volsched {version('volsched')}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    server: ServerOption = None,
    token_file: TokenFileOption = None,
    ca_file: CaFileOption = None,
    client_cert: ClientCertOption = None,
    client_key: ClientKeyOption = None,
    kubeconfig: KubeconfigOption = None,
    _version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options that stand before the verb."""
    source = context.get_parameter_source("server")
    note_choice(
        ServerChoice(
            server=server,
            token_file=token_file,
            ca_file=ca_file,
            client_cert=client_cert,
            client_key=client_key,
            kubeconfig=kubeconfig,
            by_environment=kubeconfig is None and source is not None and source.name == "ENVIRONMENT",
            verb=context.invoked_subcommand or "",
        )
    )
