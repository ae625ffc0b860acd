"""`volsched recover` and `effects list | retry | cancel`: operators' commands for work in flight."""

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

`volsched recover --dry-run` shows what is in flight and what would be done about it

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
    """Check every binding in flight: queue missing work, end what is overdue, report what needs a human."""
    with opened(db) as database:
        started = system_clock()
        report = recover(database, owner=f"{actor('recover')}/{uuid4().hex[:12]}", now=started, dry_run=dry_run)
        seconds = (system_clock() - started) / SECOND
    if not report.led:
        fail(Exit.FAILURE, "another process is recovering this store; try again in half a minute")
    if output is Output.json:
        print_json(_as_json(report, seconds))
    else:
        _show(report, seconds)


@app.command("list", epilog=LIST_EXAMPLES)
@declared(QUESTION, without=("limit", "after"))
def list_queue(
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 100,
    after: Annotated[str | None, typer.Option(help="Continue after this key.")] = None,
    db: Db = None,
    output: OutputOption = Output.table,
    **words: Any,
) -> None:
    if words["queue"] is not None and words["queue"] not in QUEUES:
        fail(Exit.USAGE, f'there is no queue "{words["queue"]}"; there are {", ".join(QUEUES)}')
    with client_of(db) as client:
        effects = [it["status"] for it in objects_of(client, QUESTION.name, most=limit, after=after, **words)]
    if output is Output.json:
        # The answer leaves out fields that are null.
        items = [{field.name: effect.get(field.name) for field in fields(QueuedEffect)} for effect in effects]
        print_json({"apiVersion": API_VERSION, "kind": "List", "items": items})
        return
    if not effects:
        stdout.print(QUESTION.empty)
        return
    table = table_of("key", "queue", "state", "attempts", "due", "error")
    for effect in effects:
        due, error = local_time(effect["dueAt"]), effect.get("error") or "-"
        row = (effect["key"], effect["queue"], effect["state"], str(effect["attempts"]), due, error)
        table.add_row(*map(escape, row))
    stdout.print(table)
    if len(effects) == limit:
        stdout.print(f"there may be more; continue with --after {escape(effects[-1]['key'])}")


@app.command("retry", no_args_is_help=True, epilog=LIST_EXAMPLES)
def retry(key: Key, reason: Reason = None, db: Db = None) -> None:
    """Try a parked effect again at once, with its attempts reset."""
    why, server = checked_reason(reason), chosen_server(db)
    if server is not None:
        stdout.print(escape(_served_act(server, key, "retry", why)))
        return
    with opened(db) as database:
        effect = _parked(database, key)
        if not Sweep(database, actor("effects-retry")).retry(effect, system_clock(), why=why):
            fail(Exit.NOT_FOUND, NOT_PARKED.format(key))
    stdout.print(f"{escape(key)} is queued again")


@app.command("cancel", no_args_is_help=True, epilog=LIST_EXAMPLES)
def cancel(key: Key, reason: Reason = None, db: Db = None) -> None:
    """Cancel a parked effect: its binding is rolled back; what was written is undone, or kept with a reason."""
    why, server = checked_reason(reason), chosen_server(db)
    if server is not None:
        stdout.print(escape(_served_act(server, key, "cancel", why)))
        return
    with opened(db) as database:
        effect = _parked(database, key)
        Sweep(database, actor("effects-cancel")).cancel(effect, system_clock(), why=why)
    stdout.print(f"{escape(key)} is cancelled; its binding {escape(effect.binding)} ends without it")


def _served_act(server: RemoteServer, key: str, verb: Literal["retry", "cancel"], reason: str | None) -> str:
    """The message of the server; only parked work can be retried or cancelled."""
    path = get.own("effects", effect_name(key), verb)
    try:
        return str(server.request("POST", path, body={"reason": reason or ""}).body["message"])
    except ServerRefusedError as error:
        if error.code not in (404, 409):
            server.refuse(error)
        fail(Exit.NOT_FOUND, NOT_PARKED.format(key))


def _parked(database: Database, key: str) -> Parked:
    with database.read() as connection:
        effect = {it.key: it for it in parked_effects(connection, limit=EVERY_PARKED)}.get(key)
    if effect is None:
        fail(Exit.NOT_FOUND, NOT_PARKED.format(key))
    return effect


def _as_json(report: RecoveryReport, seconds: float) -> dict[str, Any]:
    return {
        "position": report.position,
        "dryRun": report.dry_run,
        "seconds": round(seconds, 3),
        "inFlight": len(report.bindings),
        "counts": {it.value: report.count(it) for it in Recovered},
        "bindings": [asdict(it) for it in report.bindings],
    }


def _show(report: RecoveryReport, seconds: float) -> None:
    if report.bindings:
        table = table_of("binding", "pod", "node", "phase", "outcome", "detail")
        for binding in report.bindings:
            detail = binding.detail or (f"queued again: {', '.join(binding.queued)}" if binding.queued else "-")
            row = (binding.binding, binding.pod, binding.node, binding.phase, binding.outcome.value, detail)
            table.add_row(*map(escape, row))
        stdout.print(table)
    counts = ", ".join(f"{report.count(it)} {it.value}" for it in Recovered if report.count(it))
    done = f"{'would be ' if report.dry_run else ''}{counts}" if counts else "nothing to do"
    stdout.print(f"{len(report.bindings)} in flight at position {report.position}: {done}")
    stdout.print(f"checked in {seconds:.2f} s")
