"""`volsched audit`: the registry's questions about what happened, and the export of a range."""

from typing import Annotated

import typer

from volsched.cli.console import Exit, fail
from volsched.cli.moment_option import absolute
from volsched.cli.question_command import add_question
from volsched.cli.remote.server_choice import chosen_server
from volsched.cli.store_option import Db, now_us, opened
from volsched.cli.transfer import ExportFormat, export, export_served
from volsched.questions.history.moments import window_of
from volsched.questions.parameters import SINCE, UNTIL
from volsched.questions.refusals import MomentError
from volsched.questions.registry import every_question

EXAMPLES = """**Examples**

`volsched audit volume disk-7 --at 2025-11-16T22:00:00Z` is what it was bound to then, since when, by whom

`volsched audit rollbacks --since 1d -o csv` is what was undone, and what failed first

`volsched audit in-flight --older-than 10m` is what takes too long

All answers come as `-o table|json|csv`, a page at a time: `--limit` is its size, `--after` the next one.
"""
EXPORT_EXAMPLES = """**Examples**

`volsched audit export week.jsonl --since 7d` is a file that `volsched import-log --check week.jsonl` verifies

`volsched audit export - --until 1234 -o csv | gzip > first.csv.gz` is for a spreadsheet
"""

app = typer.Typer(help="Questions about what happened: who, when, why, and what followed.", no_args_is_help=True)


@app.callback(epilog=EXAMPLES)
def _group() -> None:
    """Questions about what happened: who, when, why, and what followed."""


@app.command("export", no_args_is_help=True, epilog=EXPORT_EXAMPLES)
def export_range(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="The file; '-' is standard output.")],
    since: Annotated[str | None, typer.Option("--since", metavar="TIME", help=SINCE)] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help=UNTIL)] = None,
    output: Annotated[
        ExportFormat, typer.Option("--output", "-o", help="Only jsonl can be verified and imported again.")
    ] = ExportFormat.jsonl,
    db: Db = None,
) -> None:
    """Write a part of the history to a file that anyone can verify: `volsched import-log --check FILE`.

    A part that starts at the beginning of the history can be imported into an empty store; a later one needs the
    files before it.
    """
    since, until = (None if it is None else absolute(it) for it in (since, until))
    if chosen_server(db) is not None:
        export_served(db, file, since=since, until=until, output=output)
        return
    with opened(db) as database, database.read() as connection:
        try:
            within = window_of(connection, since=since, until=until, as_of=None, now=now_us())
        except MomentError as error:
            fail(Exit.USAGE, str(error))
    export(file, first=within.first, last=within.last, db=db, output=output)


for question in every_question():
    family, _, verb = question.name.partition(" ")
    if family == "audit":
        add_question(app, question, verb)
