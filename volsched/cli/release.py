"""`volsched orphans` lists what was left behind; `release` makes a volume available again by hand."""

from typing import Annotated, Any

import typer
from rich.markup import escape

from volsched.cli.completion import complete_volume
from volsched.cli.console import Exit, Output, OutputOption, fail, print_json, stdout, table_of
from volsched.cli.kind_names import bare_name, kind_of
from volsched.cli.moment_option import local_time
from volsched.cli.operator import user
from volsched.cli.question_command import answer_to, client_of, declared
from volsched.cli.store_option import Db, opened
from volsched.log.commands import ConflictError
from volsched.log.observed_cluster import require_own_objects
from volsched.log.transaction import execute
from volsched.pv_controller.sync import releasing
from volsched.questions.registry import question
from volsched.runtime.clock import system_clock

QUESTION = question("audit orphans")
FIELDS = ("kind", "object", "since", "detail", "remedy")
SECONDS_SHOWN = len("2025-11-16T22:00:00")
RELEASE_EXAMPLES = """**Examples**

`volsched release disk-7 --reason "wiped, ticket 4711"` makes it Available again, and keeps who and why
"""
ORPHANS_EXAMPLES = """**Examples**

`volsched orphans --older-than 7d` lists what was left behind, volumes only if they were released a week ago

`volsched orphans -o json`
"""


def release(
    volume: Annotated[
        str, typer.Argument(metavar="PV", help="The PersistentVolume.", autocompletion=complete_volume)
    ],
    reason: Annotated[str, typer.Option("--reason", help="Why it may be used again; kept with the volume.")],
    db: Db = None,
) -> None:
    """Return a Released or Failed volume with policy Retain to Available, whatever data is on it.

    Refused while its claim exists, while it is bound, attached or in an open binding.
    """
    if not reason.strip():
        fail(Exit.USAGE, "the reason is empty: say why the volume may be used again; the log keeps it")
    by, volume = user(), bare_name(kind_of("pv"), volume)
    with opened(db) as database:
        require_own_objects(database)
        now = system_clock()
        command = releasing(database, volume, reason=reason.strip(), by=by, actor=f"cli/release/{by}", now=now)
        if command is None:
            fail(Exit.NOT_FOUND, f'PersistentVolume "{volume}" does not exist; see volsched orphans')
        (outcome,) = execute(database, [command], now=now)
    if isinstance(outcome, ConflictError):
        fail(Exit.CONFLICT, f'PersistentVolume "{volume}" was changed at this moment; look at it, and try again')
    if isinstance(outcome, Exception):
        fail(Exit.FAILURE, str(outcome))
    stdout.print(escape(f"persistentvolume/{volume} is Available again"))


@declared(QUESTION)
def orphans(db: Db = None, output: OutputOption = Output.table, **words: Any) -> None:
    with client_of(db) as client:
        answer = answer_to(client, QUESTION.name, **words)["items"]
    items = [{name: item[name] for name in FIELDS} for item in answer]
    for item in items:
        item["since"] = item["since"] and f"{item['since'][:SECONDS_SHOWN]}Z"
    if output is Output.json:
        print_json({"apiVersion": "volsched.io/v1", "kind": "List", "items": items})
        return
    if not items:
        stdout.print("nothing was left behind")
        return
    table = table_of("what", "object", "since", "detail", "do")
    for item in items:
        shown = {**item, "since": item["since"] and local_time(item["since"])}
        table.add_row(*(escape(shown[name] or "-") for name in FIELDS))
    stdout.print(table)
