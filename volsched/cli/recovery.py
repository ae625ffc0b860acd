"""What an operator does about work in flight: `recover`, `effects list | retry | cancel`."""

from dataclasses import asdict, fields
from typing import Annotated, Any, Literal
from uuid import uuid4

import typer
from rich.markup import escape

from volsched.binding.executor import QUEUES
from volsched.binding.recovery import Recovered, RecoveryReport, Sweep, recover
from volsched.cli.console import Exit, Output, OutputOption, fail, print_json, stdout, table_of
from volsched.cli.moment_option import local_time
from volsched.cli.operator import Reason, actor, checked_reason
from volsched.cli.question_command import client_of, declared, objects_of
from volsched.cli.remote import get
from volsched.cli.remote.server import RemoteServer, ServerRefusedError
from volsched.cli.remote.server_choice import chosen_server
from volsched.cli.store_option import Db, opened
from volsched.log.database import Database
from volsched.log.effects import QueuedEffect
from volsched.log.reads.open_bindings import Parked, parked_effects
from volsched.questions.get.effects import effect_name
from volsched.questions.registry import API_VERSION, question
from volsched.runtime.clock import SECOND, system_clock

RECOVER_EXAMPLES = """**Examples**

`volsched recover --dry-run` says what is in flight and what would be done about it

`volsched recover` queues missing work, ends what is overdue, and reports
"""
QUESTION = question("effects list")
LIST_EXAMPLES = QUESTION.examples
EVERY_PARKED = 100_000
NOT_PARKED = 'effect "{}" is not parked; see volsched effects list --state parked'

app = typer.Typer(no_args_is_help=True, help="Work queued for workers: list it, retry it, cancel it.")
Key = Annotated[str, typer.Argument(metavar="KEY", help="As `volsched effects list` shows it.")]


def recover_store(
    db: Db = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    output: OutputOption = Output.table,
) -> None:
    """Look at every binding in flight: queue missing work, end what is overdue, say what needs a human."""
    with opened(db) as database:
        started = system_clock()
        report = recover(database, owner=f"{actor('recover')}/{uuid4().hex[:12]}", now=started, dry_run=dry_run)
        seconds = (system_clock() - started) / SECOND
    if not report.led:
        fail(Exit.FAILURE, "another process recovers this store at this moment; look again in half a minute")
    if output is Output.json:
        print_json(_as_json(report, seconds))
    else:
        _show(report, seconds)


@app.command("list", epilog=LIST_EXAMPLES)
@declared(QUESTION, without=("limit", "after"))
def list_queue(
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 100,
    after: Annotated[str | None, typer.Option(help="Go on behind this key.")] = None,
    db: Db = None,
    output: OutputOption = Output.table,
    **words: Any,
) -> None:
    if words["queue"] is not None and words["queue"] not in QUEUES:
        fail(Exit.USAGE, f'there is no queue "{words["queue"]}"; there are {", ".join(QUEUES)}')
    with client_of(db) as client:
        found = [it["status"] for it in objects_of(client, QUESTION.name, most=limit, after=after, **words)]
    if output is Output.json:
        # What is not told of an effect is nothing.
        items = [{field.name: it.get(field.name) for field in fields(QueuedEffect)} for it in found]
        print_json({"apiVersion": API_VERSION, "kind": "List", "items": items})
        return
    if not found:
        stdout.print(QUESTION.empty)
        return
    table = table_of("key", "queue", "state", "attempts", "due", "error")
    for it in found:
        due, error = local_time(it["dueAt"]), it.get("error") or "-"
        row = (it["key"], it["queue"], it["state"], str(it["attempts"]), due, error)
        table.add_row(*map(escape, row))
    stdout.print(table)
    if len(found) == limit:
        stdout.print(f"there may be more; go on with --after {escape(found[-1]['key'])}")


@app.command("retry", no_args_is_help=True, epilog=LIST_EXAMPLES)
def retry(key: Key, reason: Reason = None, db: Db = None) -> None:
    """Try a parked effect again at once, with its attempts reset."""
    why, server = checked_reason(reason), chosen_server(db)
    if server is not None:
        stdout.print(escape(_served_act(server, key, "retry", why)))
        return
    with opened(db) as database:
        found = _parked(database, key)
        if not Sweep(database, actor("effects-retry")).retry(found, system_clock(), why=why):
            fail(Exit.NOT_FOUND, NOT_PARKED.format(key))
    stdout.print(f"{escape(key)} is queued again")


@app.command("cancel", no_args_is_help=True, epilog=LIST_EXAMPLES)
def cancel(key: Key, reason: Reason = None, db: Db = None) -> None:
    """Give a parked effect up: its binding is rolled back; what was written is undone, or kept with a reason."""
    why, server = checked_reason(reason), chosen_server(db)
    if server is not None:
        stdout.print(escape(_served_act(server, key, "cancel", why)))
        return
    with opened(db) as database:
        found = _parked(database, key)
        Sweep(database, actor("effects-cancel")).cancel(found, system_clock(), why=why)
    stdout.print(f"{escape(key)} is cancelled; its binding {escape(found.binding)} ends without it")


def _served_act(server: RemoteServer, key: str, verb: Literal["retry", "cancel"], reason: str | None) -> str:
    """What was done, in the server's words; only work that was given up can be retried or cancelled."""
    path = get.own("effects", effect_name(key), verb)
    try:
        return str(server.tell("POST", path, body={"reason": reason or ""}).body["message"])
    except ServerRefusedError as error:
        if error.code not in (404, 409):
            server.refuse(error)
        fail(Exit.NOT_FOUND, NOT_PARKED.format(key))


def _parked(database: Database, key: str) -> Parked:
    with database.read() as connection:
        found = {it.key: it for it in parked_effects(connection, limit=EVERY_PARKED)}.get(key)
    if found is None:
        fail(Exit.NOT_FOUND, NOT_PARKED.format(key))
    return found


def _as_json(report: RecoveryReport, seconds: float) -> dict[str, Any]:
    return {
        "position": report.position,
        "dryRun": report.dry_run,
        "seconds": round(seconds, 3),
        "inFlight": len(report.found),
        "counts": {it.value: report.count(it) for it in Recovered},
        "bindings": [asdict(it) for it in report.found],
    }


def _show(report: RecoveryReport, seconds: float) -> None:
    if report.found:
        table = table_of("binding", "pod", "node", "phase", "outcome", "detail")
        for it in report.found:
            detail = it.detail or (f"queued again: {', '.join(it.queued)}" if it.queued else "-")
            table.add_row(*map(escape, (it.binding, it.pod, it.node, it.phase, it.outcome.value, detail)))
        stdout.print(table)
    counts = ", ".join(f"{report.count(it)} {it.value}" for it in Recovered if report.count(it))
    done = f"{'would be ' if report.dry_run else ''}{counts}" if counts else "nothing to do"
    stdout.print(f"{len(report.found)} in flight at position {report.position}: {done}")
    stdout.print(f"looked at in {seconds:.2f} s")
