"""`volsched audit`: the questions that people ask of a history afterwards."""

from dataclasses import asdict
from typing import Annotated

import typer

from volsched.cli import audit_decisions
from volsched.cli.answers import (
    AfterOption,
    AnswerForm,
    AsOfOption,
    FormOption,
    LimitOption,
    SinceOption,
    UntilOption,
    asking,
    print_answer,
    print_item,
    window_of,
)
from volsched.cli.console import Exit, fail
from volsched.cli.durations import duration
from volsched.cli.naming import KindArgument, NamespaceOption, key_of, kind_of
from volsched.cli.stores import Db, position_of
from volsched.cli.transfer import ExportFormat, export
from volsched.engine.clock import system_clock
from volsched.insight import causes, history, tenures
from volsched.insight.answers import Answer, time_text
from volsched.insight.orphans import orphans_of

EXAMPLES = """**Examples**

`volsched audit volume disk-7 --at 2025-11-16T22:00:00Z` is what it was bound to then, since when, by whom

`volsched audit rollbacks --since 1d -o csv` is what was undone, and what failed first

`volsched audit in-flight --older-than 10m` is what takes too long

All answers come as `-o table|json|csv`, a page at a time: `--limit`, and `--after` what the page before has told.
"""
TENURE_COLUMNS = ("claim", "from", "by", "binding", "until", "endedBy", "data", "reason")
WHO_COLUMNS = ("position", "at", "who", "command", "what", "reason", "actor")
BY_HAND_COLUMNS = ("position", "at", "who", "command", "object", "what", "reason")
TREE_COLUMNS = ("position", "at", "tree", "actor", "reason")
ORPHAN_COLUMNS = ("kind", "object", "since", "detail", "remedy")

app = typer.Typer(help="Questions about what happened: who, when, why, and what followed.", no_args_is_help=True)
VolumeArgument = Annotated[str, typer.Argument(metavar="PV", help="The PersistentVolume.")]


@app.callback(epilog=EXAMPLES)
def _group() -> None:
    """Questions about what happened: who, when, why, and what followed."""


@app.command(no_args_is_help=True)
def volume(
    name: VolumeArgument,
    at: Annotated[
        str | None, typer.Option("--at", "--as-of", metavar="TIME", help="When: 2h (ago), a time, or a position.")
    ] = None,
    output: FormOption = AnswerForm.table,
    db: Db = None,
) -> None:
    """What a volume was bound to at a moment, since when, and who bound it."""
    with asking(db) as (database, connection):
        item = tenures.bound_at(connection, name, position=position_of(database, at))
    print_item(item, output)


@app.command("claims-of", no_args_is_help=True)
def claims_of(
    name: VolumeArgument,
    since: SinceOption = None,
    until: UntilOption = None,
    as_of: AsOfOption = None,
    limit: LimitOption = 50,
    after: AfterOption = None,
    output: FormOption = AnswerForm.table,
    db: Db = None,
) -> None:
    """Every claim that a volume ever served, and whether it was clean or dirty when it was handed on."""
    with asking(db) as (database, connection):
        within = window_of(database, connection, since, until, as_of)
        answer = tenures.claims_of(connection, name, within, after=after, limit=limit)
    print_answer(answer, TENURE_COLUMNS, output, nothing=f"{name} was never given to a claim")


@app.command(no_args_is_help=True)
def who(
    kind: KindArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, or NAMESPACE/NAME.")],
    namespace: NamespaceOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    as_of: AsOfOption = None,
    limit: LimitOption = 50,
    after: AfterOption = None,
    output: FormOption = AnswerForm.table,
    db: Db = None,
) -> None:
    """Who changed an object, with which command, and for what reason."""
    named = kind_of(kind)
    with asking(db) as (database, connection):
        within = window_of(database, connection, since, until, as_of)
        stream = f"{named.noun}/{key_of(named, name, namespace)}"
        answer = history.changes(connection, stream, within, after=after, limit=limit)
    print_answer(answer, WHO_COLUMNS, output)


@app.command(no_args_is_help=True)
def cause(
    position: Annotated[int | None, typer.Argument(metavar="[POSITION]", help="Of the event.", min=1)] = None,
    binding: Annotated[str | None, typer.Option("--binding", help="Instead: everything of this binding.")] = None,
    limit: LimitOption = 200,
    output: FormOption = AnswerForm.table,
    db: Db = None,
) -> None:
    """What led to an event and what followed from it, as a tree; or everything of one binding."""
    if (position is None) == (binding is None):
        fail(Exit.USAGE, "give the POSITION of an event, or --binding ID, and not both")
    with asking(db) as (_, connection):
        if position is not None:
            answer = causes.causation(connection, position, limit=limit)
        else:
            answer = causes.of_binding(connection, binding or "", limit=limit)
    print_answer(answer, TREE_COLUMNS, output)


@app.command()
def interventions(
    since: SinceOption = None,
    until: UntilOption = None,
    as_of: AsOfOption = None,
    limit: LimitOption = 50,
    after: AfterOption = None,
    output: FormOption = AnswerForm.table,
    db: Db = None,
) -> None:
    """What people did by hand, the latest first: apply, delete, release, effects retry and cancel, recover."""
    with asking(db) as (database, connection):
        within = window_of(database, connection, since, until, as_of)
        answer = history.interventions(connection, within, after=after, limit=limit)
    print_answer(answer, BY_HAND_COLUMNS, output, nothing="nobody did anything by hand")


@app.command("export", no_args_is_help=True)
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
    with asking(db) as (database, connection):
        within = window_of(database, connection, since, until)
    export(file, first=within.first, last=within.last, db=db, output=output)


@app.command("orphans")
def orphans(
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="D", help="Leave out volumes released since, as 90s, 12h or 7d.")
    ] = "0s",
    output: FormOption = AnswerForm.table,
    db: Db = None,
) -> None:
    """What was left behind: volumes released and not used again, promises to nodes that are gone, lost claims."""
    age = duration(older_than)
    with asking(db) as (_, connection):
        found = orphans_of(connection, now=system_clock(), older_than=age)
    items = [asdict(it) | {"since": time_text(it.since), "remedy": it.remedy} for it in found]
    print_answer(Answer(items=items), ORPHAN_COLUMNS, output, nothing="nothing was left behind")


app.command("attempts", no_args_is_help=True)(audit_decisions.attempts_of)
app.command("why", no_args_is_help=True)(audit_decisions.why)
app.command("node", no_args_is_help=True)(audit_decisions.node)
app.command("rollbacks")(audit_decisions.rollbacks)
app.command("in-flight")(audit_decisions.in_flight)
app.command("latency")(audit_decisions.latency_of)
