"""`volsched leases`: who acts in the roles of which there is one, and freeing such a role by hand."""

from typing import Annotated

import typer
from rich.markup import escape

from volsched.cli.console import Exit, Output, OutputOption, fail, print_json, stdout, table_of
from volsched.cli.moment_option import local_time
from volsched.cli.operator import Reason, actor, checked_reason
from volsched.cli.question_command import asked_of, client_of, declared
from volsched.cli.remote import get
from volsched.cli.remote.server import ServerRefusedError
from volsched.cli.remote.server_choice import chosen_server
from volsched.cli.store_option import Db, opened
from volsched.log.leases import free
from volsched.questions.registry import question
from volsched.runtime.clock import system_clock

QUESTION = question("leases list")
EXAMPLES = """**Examples**

`volsched leases list` shows who holds which, when it was last renewed, and why one is over

`volsched leases free controller --reason "its machine is cut off"` lets another take it at once
"""
NOT_HELD = 'nobody holds lease "{}"; see volsched leases list'

app = typer.Typer(no_args_is_help=True, help="Leases of the roles of which there is one: list them, free one.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="As `volsched leases list` shows it.")]


@app.command("list", epilog=EXAMPLES)
@declared(QUESTION)
def list_leases(db: Db = None, output: OutputOption = Output.table) -> None:
    with client_of(db) as client:
        document = asked_of(client, QUESTION.name)
    rows = document["items"]
    if output is Output.json:
        print_json(document)
        return
    if not rows:
        stdout.print(QUESTION.empty)
        return
    table = table_of("name", "holder", "epoch", "renewed", "until", "state")
    for it in rows:
        state = "held" if it["held"] else f"over: {it['why']}"
        renewed, until = f"{it['renewedSecondsAgo']} s ago", local_time(it["until"])
        row = (it["name"], it["holder"], str(it["epoch"]), renewed, until, state)
        table.add_row(*map(escape, row))
    stdout.print(table)


@app.command("free", no_args_is_help=True, epilog=EXAMPLES)
def free_lease(name: Name, reason: Reason = None, db: Db = None) -> None:
    """Take a lease from its holder, whose writes are refused from then on; the log keeps who did it and why."""
    why, server = checked_reason(reason), chosen_server(db)
    if server is not None:
        try:
            told = server.tell("POST", get.own("leases", name, "free"), body={"reason": why or ""})
        except ServerRefusedError as error:
            # 404: a name that is no part of an address, so nobody can hold it.
            if error.code not in (404, 409):
                server.refuse(error)
            fail(Exit.NOT_FOUND, NOT_HELD.format(name))
        stdout.print(escape(str(told.body["message"])))
        return
    with opened(db) as database:
        freed = free(database, name, actor=actor("leases-free"), now=system_clock(), reason=why)
    if freed is None:
        fail(Exit.NOT_FOUND, NOT_HELD.format(name))
    stdout.print(escape(f"{name} is free; {freed.holder} held it in epoch {freed.epoch}"))
