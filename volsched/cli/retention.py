"""`volsched retention`: what is kept, for how long, and having it so."""

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

`volsched retention show` how much there is of what, and since when
"""
ALL = "all"
WHAT = [*(it.value for it in Redact), ALL]

app = typer.Typer(help="Archive, redact and forget what is old, by policy.", no_args_is_help=True)


@app.command("apply", epilog=APPLY_EXAMPLES)
def apply(
    keep: Annotated[
        str | None, typer.Option(metavar="AGE", help="Events older than this go to an archive, such as 90d.")
    ] = None,
    archive_to: Annotated[
        Path | None, typer.Option(metavar="DIRECTORY", help="Where archives are written; needed with --keep.")
    ] = None,
    what: Annotated[
        list[str] | None,
        typer.Option("--redact", metavar="|".join(WHAT), help="What is redacted; can be repeated."),
    ] = None,
    after: Annotated[
        str | None, typer.Option(metavar="AGE", help="Events older than this are redacted; needed with --redact.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    reason: Reason = None,
    db: Db = None,
    output: OutputOption = Output.table,
) -> None:
    """Redact, then archive, what is older than the policy says, as far as nobody needs it any more.

    Made to be run every day: where there is nothing to do it does nothing. What belongs to open bindings, and what
    came after, waits. `verify` holds before and after, and tells which events were redacted.
    """
    chosen = _chosen(what or [])
    if (keep is None) != (archive_to is None):
        fail(Exit.USAGE, "--keep and --archive-to belong together: say how old, and into which directory")
    if bool(chosen) != (after is not None):
        fail(Exit.USAGE, "--redact and --after belong together: say what is redacted, and how old it must be")
    if keep is None and not chosen:
        fail(Exit.USAGE, "there is nothing to do; give --keep and --archive-to, or --redact and --after, or both")
    if archive_to is not None and not archive_to.is_dir():
        fail(Exit.USAGE, f"directory {archive_to} does not exist; create it, or name another with --archive-to")
    why, now, told = checked_reason(reason), now_us(), {}
    with opened(db) as database:
        # Before anything is done: a redaction is said in the log, and what was its last event is not so then.
        redactable = None if after is None else _closed(database, now - duration(after), now)
        archivable = None if keep is None else _closed(database, now - duration(keep), now)
        if redactable is not None:
            until, first = redactable
            events = 0
            if until >= first:
                with progress_bar("Redacting", until) as progress:
                    events = redact(
                        database, until=until, what=chosen, actor=actor("retention"), now=now, reason=why,
                        dry_run=dry_run, progress=progress,
                    ).events  # fmt: skip
            told["redacted"] = {"until": until, "events": events, "what": sorted(chosen)}
        if archivable is not None and archive_to is not None:
            until, first = archivable
            out = archive_to / f"volsched-{first}-{until}.jsonl.gz"
            events = max(until - first + 1, 0)
            if events and not dry_run:
                with progress_bar("Archiving", until) as progress:
                    archive(database, until=until, out=out, now=now, progress=progress)
            told["archived"] = {"until": until, "events": events, "file": str(out) if events else None}
    if output is Output.json:
        print_json(told | {"dryRun": dry_run})
        return
    _print(told, "would be " if dry_run else "")


@app.command("show", epilog=SHOW_EXAMPLES)
def show(db: Db = None, output: OutputOption = Output.table) -> None:
    """What the store holds that grows with the work: how many rows, since when, and what limits them."""
    with opened(db) as database, database.read() as connection:
        found = retained(connection)
    if output is Output.json:
        print_json({it.name: _as_json(it) for it in found})
        return
    table = Table("what", box=None, pad_edge=False)
    table.add_column("rows", justify="right")
    for column in ("oldest", "kept"):
        table.add_column(column)
    for it in found:
        table.add_row(it.name, str(it.rows), "-" if it.oldest is None else local_time(rfc3339(it.oldest)), it.kept)
    stdout.print(table)


def _as_json(it: Retained) -> dict[str, object]:
    return {"rows": it.rows, "oldest": None if it.oldest is None else rfc3339(it.oldest), "kept": it.kept}


def _chosen(what: list[str]) -> set[Redact]:
    for it in what:
        if it not in WHAT:
            fail(Exit.USAGE, f'"{it}" is nothing that can be redacted; there are {", ".join(WHAT)}')
    return {*Redact} if ALL in what else {Redact(it) for it in what}


def _closed(database: Database, before: int, now: int) -> tuple[int, int]:
    """The last position that is older and closed, and the first there is."""
    with database.read() as connection:
        base = read_base(connection)
        if before < base.at:
            return base.position, base.position + 1
        return closed_until(connection, base, position_at(connection, before), now=now), base.position + 1


def _print(told: dict[str, dict[str, object]], would: str) -> None:
    if "redacted" in told:
        it = told["redacted"]
        stdout.print(f"{it['events']} events up to position {it['until']} {would}redacted")
    if "archived" in told:
        it = told["archived"]
        where = "" if it["file"] is None else f", to {escape(str(it['file']))}"
        stdout.print(f"{it['events']} events up to position {it['until']} {would}archived{where}")
