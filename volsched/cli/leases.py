"""`volsched leases`: lists the leases of roles that one process at a time may have, and frees one by hand."""

from typing import Annotated

import typer
from rich.markup import escape

from volsched.cli.console import Exit, Output, OutputOption, fail, print_json, stdout, table_of
from volsched.cli.moment_option import local_time
from volsched.cli.operator import Reason, actor, checked_reason
from volsched.cli.question_command import answer_to, client_of, declared
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
NOT_HELD = 'lease "{}" has no holder; see volsched leases list'

app = typer.Typer(no_args_is_help=True, help="List and free the leases of roles that one process at a time has.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="As `volsched leases list` shows it.")]


@app.command("list", epilog=EXAMPLES)
@declared(QUESTION)
def list_leases(db: Db = None, output: OutputOption = Output.table) -> None:
    with client_of(db) as client:
        document = answer_to(client, QUESTION.name)
    rows = document["items"]
    if output is Output.json:
        print_json(document)
        return
    if not rows:
        stdout.print(QUESTION.empty)
        return
    table = table_of("name", "holder", "epoch", "renewed", "until", "state")
    for lease in rows:
        state = "held" if lease["held"] else f"over: {lease['why']}"
        renewed, until = f"{lease['renewedSecondsAgo']} s ago", local_time(lease["until"])
        row = (lease["name"], lease["holder"], str(lease["epoch"]), renewed, until, state)
        table.add_row(*map(escape, row))
    stdout.print(table)


@app.command("free", no_args_is_help=True, epilog=EXAMPLES)
def free_lease(name: Name, reason: Reason = None, db: Db = None) -> None:
    """Take a lease from its holder, whose writes are refused from then on; the log keeps who did it and why."""
    why, server = checked_reason(reason), chosen_server(db)
    if server is not None:
        try:
            answer = server.request("POST", get.own("leases", name, "free"), body={"reason": why or ""})
        except ServerRefusedError as error:
            # 404: a name that cannot be in a path, so no process can hold it.
            if error.code not in (404, 409):
                server.refuse(error)
            fail(Exit.NOT_FOUND, NOT_HELD.format(name))
        stdout.print(escape(str(answer.body["message"])))
        return
    with opened(db) as database:
        freed = free(database, name, actor=actor("leases-free"), now=system_clock(), reason=why)
    if freed is None:
        fail(Exit.NOT_FOUND, NOT_HELD.format(name))
    stdout.print(escape(f"{name} is free; {freed.holder} held it in epoch {freed.epoch}"))
