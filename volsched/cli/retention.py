"""`volsched retention`: redact and archive old events by policy, and show what is kept."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from volsched.cli.console import Exit, Output, OutputOption, duration, fail, print_json, stdout
from volsched.cli.moment_option import local_time
from volsched.cli.operator import Reason, actor, checked_reason
from volsched.cli.progress import progress_bar
from volsched.cli.store_option import Db, now_us, opened
from volsched.log.base import read_base
from volsched.log.database import Database
from volsched.log.events.envelope import Redact
from volsched.log.reads.tail import position_at
from volsched.log.retention.archive import archive
from volsched.log.retention.expiry import Retained, retained
from volsched.log.retention.redaction import closed_until, redact
from volsched.runtime.clock import rfc3339

APPLY_EXAMPLES = """**Examples**

`volsched retention apply --keep 90d --archive-to /mnt/archive --dry-run` says what would go

`volsched retention apply --redact all --after 30d --reason "policy 7"`

`volsched retention apply --redact actors --redact reasons --after 30d --keep 365d --archive-to /mnt/archive`
"""
SHOW_EXAMPLES = """**Examples**

`volsched retention show` counts what the store keeps, and says since when
"""
ALL = "all"
WHAT = [*(it.value for it in Redact), ALL]

app = typer.Typer(help="Archive and redact old events, by policy.", no_args_is_help=True)


@app.command("apply", epilog=APPLY_EXAMPLES)
def apply(
    keep: Annotated[
        str | None, typer.Option(metavar="AGE", help="Events older than this go to an archive, such as 90d.")
    ] = None,
    archive_to: Annotated[
        Path | None, typer.Option(metavar="DIRECTORY", help="Directory for archives; needed with --keep.")
    ] = None,
    what: Annotated[
        list[str] | None,
        typer.Option("--redact", metavar="|".join(WHAT), help="What is redacted; may be repeated."),
    ] = None,
    after: Annotated[
        str | None, typer.Option(metavar="AGE", help="Events older than this are redacted; needed with --redact.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    reason: Reason = None,
    db: Db = None,
    output: OutputOption = Output.table,
) -> None:
    """Redact, then archive, events that are older than the policy says and not needed any more.

    Run it every day: if there is nothing to do, it does nothing. Events of open bindings, and all later ones, are
    left for another day. The log verifies before and after; `verify` lists the redacted events.
    """
    chosen = _redactions(what or [])
    if (keep is None) != (archive_to is None):
        fail(Exit.USAGE, "--keep and --archive-to belong together: say how old, and into which directory")
    if bool(chosen) != (after is not None):
        fail(Exit.USAGE, "--redact and --after belong together: say what is redacted, and how old it must be")
    if keep is None and not chosen:
        fail(Exit.USAGE, "there is nothing to do; give --keep and --archive-to, or --redact and --after, or both")
    if archive_to is not None and not archive_to.is_dir():
        fail(Exit.USAGE, f"directory {archive_to} does not exist; create it, or name another with --archive-to")
    why, now, report = checked_reason(reason), now_us(), {}
    with opened(db) as database:
        # Both ranges are found first: a redaction appends an event to the log.
        redactable = None if after is None else _closed_range(database, now - duration(after), now)
        archivable = None if keep is None else _closed_range(database, now - duration(keep), now)
        if redactable is not None:
            until, first = redactable
            events = 0
            if until >= first:
                with progress_bar("Redacting", until) as progress:
                    events = redact(
                        database, until=until, what=chosen, actor=actor("retention"), now=now, reason=why,
                        dry_run=dry_run, progress=progress,
                    ).events  # fmt: skip
            report["redacted"] = {"until": until, "events": events, "what": sorted(chosen)}
        if archivable is not None and archive_to is not None:
            until, first = archivable
            out = archive_to / f"volsched-{first}-{until}.jsonl.gz"
            events = max(until - first + 1, 0)
            if events and not dry_run:
                with progress_bar("Archiving", until) as progress:
                    archive(database, until=until, out=out, now=now, progress=progress)
            report["archived"] = {"until": until, "events": events, "file": str(out) if events else None}
    if output is Output.json:
        print_json(report | {"dryRun": dry_run})
        return
    _print(report, "would be " if dry_run else "")


@app.command("show", epilog=SHOW_EXAMPLES)
def show(db: Db = None, output: OutputOption = Output.table) -> None:
    """Show the parts of a store that grow with the work: how many rows, since when, and what limits them."""
    with opened(db) as database, database.read() as connection:
        entries = retained(connection)
    if output is Output.json:
        print_json({entry.name: _as_json(entry) for entry in entries})
        return
    table = Table("what", box=None, pad_edge=False)
    table.add_column("rows", justify="right")
    for column in ("oldest", "kept"):
        table.add_column(column)
    for entry in entries:
        table.add_row(
            entry.name,
            str(entry.rows),
            "-" if entry.oldest is None else local_time(rfc3339(entry.oldest)),
            entry.kept,
        )
    stdout.print(table)


def _as_json(retained: Retained) -> dict[str, object]:
    return {
        "rows": retained.rows,
        "oldest": None if retained.oldest is None else rfc3339(retained.oldest),
        "kept": retained.kept,
    }


def _redactions(what: list[str]) -> set[Redact]:
    for part in what:
        if part not in WHAT:
            fail(Exit.USAGE, f'"{part}" cannot be redacted; choose from {", ".join(WHAT)}')
    return {*Redact} if ALL in what else {Redact(part) for part in what}


def _closed_range(database: Database, before: int, now: int) -> tuple[int, int]:
    """The last closed position before this time, and the first position of the log."""
    with database.read() as connection:
        base = read_base(connection)
        if before < base.at:
            return base.position, base.position + 1
        return closed_until(connection, base, position_at(connection, before), now=now), base.position + 1


def _print(report: dict[str, dict[str, object]], would: str) -> None:
    if "redacted" in report:
        part = report["redacted"]
        stdout.print(f"{part['events']} events up to position {part['until']} {would}redacted")
    if "archived" in report:
        part = report["archived"]
        where = "" if part["file"] is None else f", to {escape(str(part['file']))}"
        stdout.print(f"{part['events']} events up to position {part['until']} {would}archived{where}")
