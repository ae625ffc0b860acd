"""The `volsched` command: the table of verbs with their modules, which are loaded when called."""

import gc
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, ClassVar, Literal

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from volsched.cli.global_options import (
    DbForAll,
    EveryNamespace,
    LiveForAll,
    NamespaceForAll,
    OutputForAll,
    add_global_options,
    behind_verb,
)
from volsched.cli.help_text import use_plain_words
from volsched.cli.kubectl_verbs import instead_of_kubectl, with_file_option
from volsched.cli.log_options import LogFormatOption, LogLevelOption, VerboseOption, begin_log_choice
from volsched.cli.remote.server_options import (
    CaFileOption,
    ClientCertOption,
    ClientKeyOption,
    ContextOption,
    KubeconfigOption,
    ServerChoice,
    ServerOption,
    TokenFileOption,
    note_choice,
)

# Commands that are loaded when they are called: a verb pays for what it uses, and `--help` for none of them.

MARKUP: Literal["markdown"] = "markdown"


@contextmanager
def modules_loaded() -> Iterator[None]:
    """Pauses garbage collection: among loading modules it takes an eighth of the start and finds nothing."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _module_name(module: str) -> str:
    """A module of this package, unless its whole name is given."""
    return module if module.startswith("volsched.") else f"{__package__}.{module}"


@dataclass(frozen=True, slots=True)
class CommandVerb:
    """A command that is one function of a module in this folder, or of a module named in full."""

    name: str
    module: str
    help: str
    """Its line in the list of commands; the whole text is the function's own."""
    function: str = ""
    """If empty, the function with the name of the verb."""
    examples: str = "EXAMPLES"
    """The module's constant with the text below the options."""
    needs_words: bool = False
    """Whether it shows its help without arguments."""
    live: bool = False
    """Whether it takes `--live`: answers about the cluster that kubectl talks to."""

    def add_to(self, app: typer.Typer) -> None:
        module = import_module(_module_name(self.module))
        add = app.command(self.name, epilog=getattr(module, self.examples), no_args_is_help=self.needs_words)
        add(getattr(module, self.function or self.name))


@dataclass(frozen=True, slots=True)
class QuestionVerb:
    """A command that is a question of the registry, with the same name."""

    name: str
    help: str
    """Its line in the list of commands; the whole text is the question's own."""
    live: bool = False

    def add_to(self, app: typer.Typer) -> None:
        from volsched.cli.question_command import add_question
        from volsched.questions.registry import question

        add_question(app, question(self.name), self.name)


@dataclass(frozen=True, slots=True)
class Family:
    """A command with commands of its own: the `app` of a module in this folder."""

    name: str
    module: str
    help: str
    live: bool = False

    def add_to(self, app: typer.Typer) -> None:
        app.add_typer(import_module(_module_name(self.module)).app, name=self.name)


class LazyGroup(TyperGroup):
    """Lists commands from a table, and loads only the one that is called or completed by a shell."""

    table: ClassVar[Mapping[str, tuple[CommandVerb | QuestionVerb | Family, ...]]] = {}
    """The verbs, by the title under which they are listed."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._unloaded = {entry.name: entry for entries in self.table.values() for entry in entries}
        for title, entries in self.table.items():
            for entry in entries:
                self.add_command(TyperCommand(entry.name, help=entry.help, rich_help_panel=title))

    def verb_first(self, args: Sequence[str]) -> list[str]:
        """The same command with its verb first."""
        families = {it.name for entries in self.table.values() for it in entries if isinstance(it, Family)}
        return behind_verb(args, self.params, families)

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        return super().parse_args(ctx, self.verb_first(args))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        if name in self._unloaded:
            line: Any = command
            command = _load(self._unloaded.pop(name), self.params)
            # `volsched help` lists it as before.
            command.rich_help_panel, command.short_help = line.rich_help_panel, line.help
            self.add_command(command, name)
        return name, command, rest


def _load(entry: CommandVerb | QuestionVerb | Family, options: Sequence[Any]) -> Any:
    """The command, with the `options` of all commands added."""
    holder = typer.Typer(rich_markup_mode=MARKUP, callback=_keep_group)
    with modules_loaded():
        entry.add_to(holder)
    command = get_group(holder).commands[entry.name]
    for it in getattr(command, "commands", {"": command}).values():
        add_global_options(it, options, live=entry.live)
    return command


def _verbs_of(family: Family) -> Container[str]:
    """The verbs of a family; none if it belongs to an extra that is not installed."""
    try:
        verbs: Container[str] = _load(family, ()).commands
    except ModuleNotFoundError:
        return ()
    return verbs


def _keep_group() -> None:
    """With a callback, typer does not turn a group of one command into that command."""


class Verbs(LazyGroup):
    """All verbs. A new command is a line in this table, and is loaded when it is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = args[0] in self.commands
        advice = with_file_option(args) if known else instead_of_kubectl(args[0]) or self._advice_for(args[0])
        if advice is not None:
            from volsched.cli.console import Exit, fail

            fail(Exit.USAGE, advice)
        return super().resolve_command(ctx, args)

    def _advice_for(self, word: str) -> str | None:
        """Where to find a word that is no verb: kinds are listed by `get`, and families have verbs."""
        from volsched.log.events.streams import UnknownKindError, kind_called

        try:
            return f"{word} are listed by: volsched get {kind_called(word).plural}"
        except UnknownKindError:
            families = [it for entries in self.table.values() for it in entries if isinstance(it, Family)]
        for it in families:
            if word in _verbs_of(it):
                return f"{word} is a verb of {it.name}: volsched {it.name} {word}"
        return None

    table: ClassVar[Mapping[str, tuple[CommandVerb | QuestionVerb | Family, ...]]] = {
        "Begin": (
            CommandVerb("demo", "volsched.lab.cli.demo", "Show volsched on a small cluster, in a few seconds."),
            Family("example", "examples", "Small example clusters: list, show, apply."),
            CommandVerb(
                "migrate", "integrity", "Create a store, or upgrade its tables.", examples="MIGRATE_EXAMPLES"
            ),
            CommandVerb(
                "up", "serve", "Run the whole system, with its API, in one process.", examples="UP_EXAMPLES"
            ),
            CommandVerb("observe", "observe", "Follow a real cluster, with read permission only."),
            CommandVerb("attach", "attach", "Schedule the pods of a real cluster.", needs_words=True),
            CommandVerb(
                "ungate",
                "attach",
                "Remove our scheduling gate from pods.",
                examples="UNGATE_EXAMPLES",
                needs_words=True,
            ),
            CommandVerb(
                "record", "case_file", "Record a cluster to a file.", examples="RECORD_EXAMPLES", live=True
            ),
            CommandVerb(
                "open",
                "case_file",
                "Serve answers about a recorded cluster.",
                function="open_recording",
                examples="OPEN_EXAMPLES",
                needs_words=True,
            ),
            CommandVerb("manifests", "manifests", "Print the manifests that run volsched in a cluster."),
            CommandVerb("help", "help_text", "Show the help of a verb.", function="show_help"),
            CommandVerb("version", "version", "Show the versions of this program, the store and the server."),
        ),
        "Objects": (
            CommandVerb("get", "get", "List objects, now or as they were.", needs_words=True, live=True),
            CommandVerb(
                "describe",
                "describe",
                "Show an object with its bindings, attempts and events.",
                needs_words=True,
                live=True,
            ),
            CommandVerb(
                "apply", "objects", "Create or change objects.", examples="APPLY_EXAMPLES", needs_words=True
            ),
            CommandVerb("create", "objects", "Create objects.", examples="CREATE_EXAMPLES", needs_words=True),
            CommandVerb("delete", "objects", "Delete objects.", examples="DELETE_EXAMPLES", needs_words=True),
            CommandVerb(
                "import",
                "objects",
                "Import a cluster as kubectl prints it.",
                function="import_dump",
                examples="IMPORT_EXAMPLES",
                needs_words=True,
            ),
            CommandVerb("validate", "manifest_input", "Check manifests; nothing is stored.", needs_words=True),
        ),
        "Schedule and bind": (
            CommandVerb(
                "schedule", "run", "Place and bind pods until no work is left.", examples="SCHEDULE_EXAMPLES"
            ),
            Family("bind", "bind", "Bind a claim now, for a node that you name."),
            Family("reservations", "reservations", "Reserve volumes for a pod; confirm, renew, cancel."),
            CommandVerb(
                "release",
                "release",
                "Make a released volume available again.",
                examples="RELEASE_EXAMPLES",
                needs_words=True,
            ),
            Family("serve", "serve", "Run one process of a stack."),
            Family("stack", "volsched.lab.cli.stack", "Run the whole stack on this machine, without Docker."),
        ),
        "Access": (
            Family("token", "tokens", "Issue, list and revoke tokens for the API."),
            Family("certs", "certs", "Create certificates for servers and clients."),
            CommandVerb("kubeconfig", "certs", "Write what kubectl needs to reach the API."),
        ),
        "Ask": (
            Family("explain", "explain", "Why a pod waits, or is where it is, and what would help.", live=True),
            CommandVerb(
                "simulate",
                "explain",
                "Try a change on a copy in memory.",
                examples="SIMULATE_EXAMPLES",
                function="run_simulation",
                needs_words=True,
                live=True,
            ),
            QuestionVerb("history", "Show everything that happened to an object."),
            QuestionVerb("diff", "Show what changed between two moments."),
            Family("audit", "audit", "Who, when, why, and what followed."),
            QuestionVerb("in-flight", "List claims that any scheduler has left half bound.", live=True),
            QuestionVerb("uses", "List the pods that use a claim or a volume.", live=True),
            CommandVerb(
                "orphans", "release", "List what was left behind.", examples="ORPHANS_EXAMPLES", live=True
            ),
        ),
        "Operate": (
            QuestionVerb("status", "Show what is in flight, which pods wait, and free storage."),
            CommandVerb("top", "top", "Show the status continuously."),
            CommandVerb(
                "recover",
                "recovery",
                "Resume what a crash left, and report what needs a human.",
                function="recover_store",
                examples="RECOVER_EXAMPLES",
            ),
            Family("effects", "recovery", "List, retry or cancel the work of workers."),
            Family("leases", "leases", "List the leases of roles, and free one."),
            CommandVerb(
                "verify", "integrity", "Prove that the log is whole and unchanged.", examples="VERIFY_EXAMPLES"
            ),
            Family("anchor", "integrity", "Create the keys that anchors of the log are signed with."),
            CommandVerb("rebuild", "integrity", "Rebuild the views from the log.", examples="REBUILD_EXAMPLES"),
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
                "Create a store from exported files.",
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
                "transfer",
                "Write all of a store to one file.",
                examples="BACKUP_EXAMPLES",
                needs_words=True,
            ),
            CommandVerb(
                "restore",
                "transfer",
                "Create a store from a backup.",
                examples="RESTORE_EXAMPLES",
                needs_words=True,
            ),
            Family("retention", "retention", "Archive and redact old events, by policy."),
        ),
        "Measure": (
            CommandVerb(
                "conform",
                "volsched.lab.cli.conform",
                "Compare our answers with the reference's.",
                needs_words=True,
            ),
            Family("bench", "volsched.lab.cli.bench", "Measure speed and memory, against a baseline."),
            Family("drill", "volsched.lab.cli.drill", "Inject faults, and prove that nothing is lost."),
        ),
    }


use_plain_words()
app = typer.Typer(
    name="volsched",
    cls=Verbs,
    help="Decide which volume a workload gets, on which node, and say why.",
    no_args_is_help=True,
    rich_markup_mode=MARKUP,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
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
    called: typer.Context,
    server: ServerOption = None,
    token_file: TokenFileOption = None,
    ca_file: CaFileOption = None,
    client_cert: ClientCertOption = None,
    client_key: ClientKeyOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    live: LiveForAll = False,
    _db: DbForAll = None,
    _namespace: NamespaceForAll = None,
    _everywhere: EveryNamespace = False,
    _output: OutputForAll = None,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
    verbose: VerboseOption = False,
    _version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options of every verb. The environment sets some; `parse_args` moves typed ones behind the verb."""
    begin_log_choice(log_level, log_format, verbose)
    source = called.get_parameter_source("server")
    note_choice(
        ServerChoice(
            server=server,
            token_file=token_file,
            ca_file=ca_file,
            client_cert=client_cert,
            client_key=client_key,
            kubeconfig=kubeconfig,
            context=context,
            live=live,
            by_environment=source is not None and source.name == "ENVIRONMENT",
            verb=called.invoked_subcommand or "",
        )
    )


def verb_first(words: Sequence[str]) -> list[str]:
    """The same command with its verb first."""
    command = get_group(app)
    assert isinstance(command, LazyGroup)
    return command.verb_first(words)
