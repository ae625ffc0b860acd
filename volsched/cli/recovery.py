"""What an operator does about work in flight: `recover`, `effects list | retry | cancel`."""

from dataclasses import asdict
from typing import Annotated, Any
from uuid import uuid4

import typer
from rich.markup import escape

from volsched.binding.executor import QUEUES
from volsched.binding.recovery import Recovered, RecoveryReport, recover
from volsched.binding.sweep import Sweep
from volsched.cli.console import Exit, Output, OutputOption, fail, print_json, stdout, table_of
from volsched.cli.operator import Reason, actor, checked_reason
from volsched.cli.remote import effects
from volsched.cli.remote.server_choice import chosen_server
from volsched.cli.store_option import Db, opened
from volsched.log.database import Database
from volsched.log.effects import EffectState, list_effects
from volsched.log.reads.open_bindings import Parked, parked_effects
from volsched.runtime.clock import SECOND, rfc3339, system_clock

RECOVER_EXAMPLES = """**Examples**

`volsched recover --dry-run` says what is in flight and what would be done about it

`volsched recover` queues missing work, ends what is overdue, and reports
"""
LIST_EXAMPLES = """**Examples**

`volsched effects list --state parked` shows the work that was given up, and why

`volsched effects retry KEY` tries it again; `volsched effects cancel KEY` lets its binding end without it
"""
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
def list_queue(
    db: Db = None,
    state: Annotated[EffectState | None, typer.Option(help="Only those in this state.")] = None,
    queue: Annotated[str | None, typer.Option(help="Only those of this queue.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 100,
    after: Annotated[str | None, typer.Option(help="Go on behind this key.")] = None,
    output: OutputOption = Output.table,
) -> None:
    """Effects that are queued, leased or parked."""
    if queue is not None and queue not in QUEUES:
        fail(Exit.USAGE, f'there is no queue "{queue}"; there are {", ".join(QUEUES)}')
    server = chosen_server(db)
    if server is not None:
        found = effects.effects(server, state=state, queue=queue, limit=limit, after=after)
    else:
        with opened(db) as database:
            found = list_effects(database, state=state, queue=queue, limit=limit, after=after)
    if output is Output.json:
        print_json({"apiVersion": "volsched.io/v1", "kind": "List", "items": [asdict(it) for it in found]})
        return
    if not found:
        stdout.print("no such effects")
        return
    table = table_of("key", "queue", "state", "attempts", "due", "error")
    for it in found:
        due = "now" if it.due == 0 else rfc3339(it.due)
        row = (it.key, it.queue, it.state.value, str(it.attempts), due, it.error or "-")
        table.add_row(*map(escape, row))
    stdout.print(table)
    if len(found) == limit:
        stdout.print(f"there may be more; go on with --after {escape(found[-1].key)}")


@app.command("retry", no_args_is_help=True, epilog=LIST_EXAMPLES)
def retry(key: Key, reason: Reason = None, db: Db = None) -> None:
    """Try a parked effect again at once, with all its attempts anew."""
    why, server = checked_reason(reason), chosen_server(db)
    if server is not None:
        stdout.print(escape(effects.act(server, key, "retry", why, not_parked=NOT_PARKED.format(key))))
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
        stdout.print(escape(effects.act(server, key, "cancel", why, not_parked=NOT_PARKED.format(key))))
        return
    with opened(db) as database:
        found = _parked(database, key)
        Sweep(database, actor("effects-cancel")).cancel(found, system_clock(), why=why)
    stdout.print(f"{escape(key)} is cancelled; its binding {escape(found.binding)} ends without it")


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
