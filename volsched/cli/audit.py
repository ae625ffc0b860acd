"""`volsched audit`: the questions that people ask of a history afterwards."""

from dataclasses import asdict
from typing import Annotated

import typer

from volsched.cli import audit_decisions
from volsched.cli.audit_output import (
    AnswerForm,
    FormOption,
    answer_of,
    asking,
    print_answer,
    print_item,
    window_of,
)
from volsched.cli.console import Exit, fail
from volsched.cli.durations import duration
from volsched.cli.history_command import HistoryRequest, LimitOption, Question, SinceOption, UntilOption, question
from volsched.cli.kind_names import KindArgument, NameArgument, NamespaceOption, kind_of, one_of, refuse_unknown
from volsched.cli.remote.paths import of_one, own
from volsched.cli.remote.server_choice import chosen_server
from volsched.cli.store_option import Db, position_of
from volsched.cli.transfer import ExportFormat, export, export_served
from volsched.questions.audit.answers import Answer, UnknownError, time_text
from volsched.questions.audit.orphans import orphans_of
from volsched.questions.audit.reads import reads as history_reads
from volsched.questions.history import causes, history, volume_history
from volsched.runtime.clock import system_clock

EXAMPLES = """**Examples**

`volsched audit volume disk-7 --at 2025-11-16T22:00:00Z` is what it was bound to then, since when, by whom

`volsched audit rollbacks --since 1d -o csv` is what was undone, and what failed first

`volsched audit in-flight --older-than 10m` is what takes too long

All answers come as `-o table|json|csv`, a page at a time: `--limit`, and `--after` what the page before has told.
"""
VOLUME_EXAMPLES = """**Examples**

`volsched audit volume disk-7` is what it is bound to now

`volsched audit volume disk-7 --at 2025-11-16T22:00:00Z` is what it was bound to then; `--at 2h` is two hours ago
"""
CLAIMS_OF_EXAMPLES = """**Examples**

`volsched audit claims-of disk-7` is everybody who ever had it, and whether it was clean when it was handed on

`volsched audit claims-of disk-7 --since 7d -o csv`
"""
WHO_EXAMPLES = """**Examples**

`volsched audit who pv disk-7` is every change of a volume, with actor, command and reason

`volsched audit who pvc/data-0 -n shop --since 2d -o csv`
"""
CAUSE_EXAMPLES = """**Examples**

`volsched audit cause 1234` is what led to the event at a position, and all that followed from it

`volsched audit cause --binding 5f3a09c1d2e4 -o json` is everything that was done for a binding
"""
INTERVENTIONS_EXAMPLES = """**Examples**

`volsched audit interventions --since 1d` is what people did since yesterday, and why

`volsched audit interventions --since 7d --limit 1000 -o csv`
"""
READS_EXAMPLES = """**Examples**

`volsched audit reads --since 7d` is who looked into the history this week, from where, and what they asked

`volsched audit reads --limit 1000 -o csv`
"""
EXPORT_EXAMPLES = """**Examples**

`volsched audit export week.jsonl --since 7d` is a file that `volsched import-log --check week.jsonl` verifies

`volsched audit export - --until 1234 -o csv | gzip > first.csv.gz` is for a spreadsheet
"""
ORPHANS_EXAMPLES = """**Examples**

`volsched audit orphans --older-than 7d` is what nobody has come back for in a week, with the remedy for each

`volsched audit orphans -o csv`
"""
TENURE_COLUMNS = ("claim", "from", "by", "binding", "until", "endedBy", "data", "reason")
WHO_COLUMNS = ("position", "at", "who", "command", "what", "reason", "actor")
BY_HAND_COLUMNS = ("position", "at", "who", "command", "object", "what", "reason")
TREE_COLUMNS = ("position", "at", "tree", "actor", "reason")
READ_COLUMNS = ("position", "at", "actor", "question", "client")
ORPHAN_COLUMNS = ("kind", "object", "since", "detail", "remedy")

app = typer.Typer(help="Questions about what happened: who, when, why, and what followed.", no_args_is_help=True)
VolumeArgument = Annotated[str, typer.Argument(metavar="PV", help="The PersistentVolume.")]


@app.callback(epilog=EXAMPLES)
def _group() -> None:
    """Questions about what happened: who, when, why, and what followed."""


@app.command(no_args_is_help=True, epilog=VOLUME_EXAMPLES)
def volume(
    name: VolumeArgument,
    at: Annotated[
        str | None, typer.Option("--at", "--as-of", metavar="TIME", help="When: 2h (ago), a time, or a position.")
    ] = None,
    output: FormOption = AnswerForm.table,
    db: Db = None,
) -> None:
    """What a volume was bound to at a moment, since when, and who bound it."""
    server = chosen_server(db)
    if server is not None:
        print_item(server.get(own("audit", "volume", name), {"asOf": at}), output)
        return
    with asking(db) as (database, connection):
        try:
            item = volume_history.bound_at(connection, name, position=position_of(database, at))
        except UnknownError:
            refuse_unknown(connection, kind_of("pv"), name)
            raise
    print_item(item, output)


def claims_of(name: VolumeArgument) -> Question:
    """Every claim that a volume ever served, and whether it was clean or dirty when it was handed on."""

    def ask(asked: HistoryRequest) -> Answer:
        try:
            return volume_history.claims_of(
                asked.connection, name, asked.within, after=asked.after, limit=asked.limit
            )
        except UnknownError:
            refuse_unknown(asked.connection, kind_of("pv"), name)
            raise

    return Question(ask, own("audit", "claims-of", name), TENURE_COLUMNS, f"{name} was never given to a claim")


def who(kind: KindArgument, name: NameArgument = None, namespace: NamespaceOption = None) -> Question:
    """Who changed an object, with which command, and for what reason."""
    named, key = one_of(kind, name, namespace)

    def ask(asked: HistoryRequest) -> Answer:
        try:
            return history.changes(
                asked.connection, f"{named.noun}/{key}", asked.within, after=asked.after, limit=asked.limit
            )
        except UnknownError:
            refuse_unknown(asked.connection, named, key)
            raise

    nothing = f"nobody changed {named.singular} {key} in that time"
    return Question(ask, of_one("audit/who", named, key), WHO_COLUMNS, nothing)


@app.command(no_args_is_help=True, epilog=CAUSE_EXAMPLES)
def cause(
    position: Annotated[int | None, typer.Argument(metavar="POSITION", help="Of the event.", min=1)] = None,
    binding: Annotated[str | None, typer.Option("--binding", help="Instead: everything of this binding.")] = None,
    limit: LimitOption = 200,
    output: FormOption = AnswerForm.table,
    db: Db = None,
) -> None:
    """What led to an event and what followed from it, as a tree; or everything of one binding."""
    if (position is None) == (binding is None):
        fail(Exit.USAGE, "give the POSITION of an event, or --binding ID, and not both")
    server = chosen_server(db)
    if server is not None:
        of_binding = ("cause-of-binding", binding or "")
        path = own("audit", *(of_binding if position is None else ("cause", str(position))))
        print_answer(answer_of(server.get(path, {"limit": limit})), TREE_COLUMNS, output)
        return
    with asking(db) as (_, connection):
        if position is not None:
            answer = causes.causation(connection, position, limit=limit)
        else:
            answer = causes.of_binding(connection, binding or "", limit=limit)
    print_answer(answer, TREE_COLUMNS, output)


def interventions() -> Question:
    """What people did by hand, the latest first: apply, delete, release, effects retry and cancel, recover."""

    def ask(asked: HistoryRequest) -> Answer:
        return history.interventions(asked.connection, asked.within, after=asked.after, limit=asked.limit)

    return Question(ask, own("audit", "interventions"), BY_HAND_COLUMNS, "nobody did anything by hand")


def reads() -> Question:
    """Who has read the history over HTTP and what they asked, the latest first."""

    def ask(asked: HistoryRequest) -> Answer:
        return history_reads(asked.connection, asked.within, after=asked.after, limit=asked.limit)

    return Question(ask, own("audit", "reads"), READ_COLUMNS, "nobody has read the history over HTTP")


@app.command("export", no_args_is_help=True, epilog=EXPORT_EXAMPLES)
def export_range(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="Where to; '-' is standard output.")],
    since: SinceOption = None,
    until: UntilOption = None,
    output: Annotated[
        ExportFormat, typer.Option("--output", "-o", help="Only jsonl can be verified and imported again.")
    ] = ExportFormat.jsonl,
    db: Db = None,
) -> None:
    """Write a part of the history to a file that anybody can verify: `volsched import-log --check FILE`.

    A part that begins with the history can be imported into an empty store and looked at there; a later one
    together with the files before it.
    """
    server = chosen_server(db)
    if server is not None:
        export_served(server, file, since=since, until=until, output=output)
        return
    with asking(db) as (_, connection):
        within = window_of(connection, since, until)
    export(file, first=within.first, last=within.last, db=db, output=output)


@app.command("orphans", epilog=ORPHANS_EXAMPLES)
def orphans(
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="D", help="Leave out volumes released since, as 90s, 12h or 7d.")
    ] = "0s",
    output: FormOption = AnswerForm.table,
    db: Db = None,
) -> None:
    """What was left behind: volumes released and not used again, promises to nodes that are gone, lost claims."""
    age, server = duration(older_than), chosen_server(db)
    if server is not None:
        answer = answer_of(server.get(own("audit", "orphans"), {"olderThan": older_than}))
    else:
        with asking(db) as (_, connection):
            found = orphans_of(connection, now=system_clock(), older_than=age)
        items = [asdict(it) | {"since": time_text(it.since), "remedy": it.remedy} for it in found]
        answer = Answer(items=items)
    print_answer(answer, ORPHAN_COLUMNS, output, nothing="nothing was left behind")


app.command("claims-of", no_args_is_help=True, epilog=CLAIMS_OF_EXAMPLES)(question(claims_of))
app.command("who", no_args_is_help=True, epilog=WHO_EXAMPLES)(question(who))
app.command("interventions", epilog=INTERVENTIONS_EXAMPLES)(question(interventions))
app.command("reads", epilog=READS_EXAMPLES)(question(reads))
audit_decisions.add_to(app)
