"""`volsched migrate`, `verify`, `rebuild`, `replay`, `export`, `import-log`: is the store what it says it is?"""

import json
import time
from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.markup import escape
from rich.table import Table

from volsched.cli.console import Exit, Output, fail, stdout
from volsched.cli.files import lines_of, written
from volsched.cli.stores import Db, bar, explained, now_us, opened, parse_time
from volsched.core.fold import ObjectState, State
from volsched.events.streams import noun_and_key
from volsched.settings import data_directory, database_url, default_url
from volsched.store.database import Database
from volsched.store.findings import Finding
from volsched.store.log import position_at, read_head
from volsched.store.opening import migrate_store
from volsched.store.rebuild import rebuild as rebuild_views
from volsched.store.replay import fold_log
from volsched.store.transfer import events_of, import_log, manifest_of, verify_export, write_csv, write_jsonl
from volsched.store.verify import Anchor, parse_anchor
from volsched.store.verify import verify as verify_store

SHOWN = 20
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Form of the answer.")]
MIGRATE_EXAMPLES = """
Examples:

volsched migrate

volsched migrate --db postgresql://volsched@db.example/volsched
"""
VERIFY_EXAMPLES = """
Examples:

volsched verify

volsched verify --write-anchor /mnt/elsewhere/anchor.json

volsched verify --anchor /mnt/elsewhere/anchor.json -o json
"""
REBUILD_EXAMPLES = """
Examples:

volsched rebuild

volsched rebuild --db store.db -o json
"""
REPLAY_EXAMPLES = """
Examples:

volsched replay

volsched replay --until 120000

volsched replay --until 2025-11-16T22:00:00Z -o json
"""
EXPORT_EXAMPLES = """
Examples:

volsched export history.jsonl

volsched export - | gzip > history.jsonl.gz

volsched export --from 1000 --to 2000 -o csv range.csv
"""
IMPORT_EXAMPLES = """
Examples:

volsched import-log --check history.jsonl

volsched migrate --db copy.db && volsched import-log --db copy.db history.jsonl

gzip -dc history.jsonl.gz | volsched import-log --db copy.db -
"""


class ExportFormat(StrEnum):
    jsonl = "jsonl"
    csv = "csv"


def migrate(db: Db = None) -> None:
    """Make the store, or bring its tables to those of this program. Data is kept; run it again at any time."""
    url = database_url(db)
    if url == default_url():
        # Ours to make; a directory that a person named is not.
        data_directory().mkdir(parents=True, exist_ok=True)
    with explained():
        before, after = migrate_store(url)
    done = "was already at" if before == after else "is now at"
    stdout.print(f"the store {done} revision {after}")


def verify(
    anchor: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The log must still hold what this anchor or export says.")
    ] = None,
    write_anchor: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write an anchor if all is well; keep it elsewhere.")
    ] = None,
    db: Db = None,
    output: OutputOption = Output.table,
) -> None:
    """Prove that the log is whole and unchanged and that the views are what it says.

    Nothing is repaired; writers may go on. A log that was cut or rewritten together with its head row is only
    found with an anchor from before. Exit 5 with the position, or table, key and column, of what is wrong.
    """
    wanted = None if anchor is None else _read_anchor(anchor)
    with opened(db) as database, bar("Verifying", _last(database)) as progress:
        report = verify_store(database, anchor=wanted, progress=progress)
    head = report.head
    if report.ok and write_anchor is not None:
        with written(str(write_anchor)) as out:
            out.write(Anchor(head.position, head.hash, head.at).dump())
    if output is Output.json:
        told = {"ok": report.ok, "position": head.position, "hash": head.hash.hex(), "streams": report.streams}
        _print_json(told | {"findings": [it.as_json() for it in report.findings], "more": report.more})
    elif report.ok:
        stdout.print(f"{head.position} events in {report.streams} streams verified; last hash {head.hash.hex()}")
    if not report.ok:
        _fail(report.findings, report.more)


def rebuild(db: Db = None, output: OutputOption = Output.table) -> None:
    """Make the views what the log says, row by row, while writers go on. The log itself is never touched.

    Exit 5, with nothing changed, where the log does not verify.
    """
    with opened(db) as database, bar("Folding", _last(database)) as progress:
        repair = rebuild_views(database, progress=progress)
    if output is Output.json:
        _print_json({"position": repair.position, "repaired": [it.as_json() for it in repair.findings]})
        return
    for finding in repair.findings:
        stdout.print(escape(f"repaired {finding}"))
    stdout.print(f"the views are what the log says at position {repair.position}; {len(repair.findings)} repairs")


def replay(
    until: Annotated[
        str | None, typer.Option(metavar="POSITION|TIME", help="Stop after this position or time (ISO 8601).")
    ] = None,
    db: Db = None,
    output: OutputOption = Output.table,
) -> None:
    """Fold the log in memory, checking its chain, and show what there was then. Recorded results are applied;
    nothing is decided again and nothing is written.
    """
    with opened(db) as database:
        last = _until(database, until)
        with database.read() as connection, bar("Folding", last) as progress:
            started = time.perf_counter()
            folded = fold_log(connection, until=last, progress=progress)
            seconds = time.perf_counter() - started
    kinds = _counts(folded.states)
    told = {
        "position": folded.head.position,
        "hash": folded.head.hash.hex(),
        "seconds": round(seconds, 3),
        "eventsPerSecond": round(folded.head.position / seconds),
        "kinds": kinds,
    }
    if output is Output.json:
        _print_json(told)
        return
    table = Table("kind", box=None, pad_edge=False)
    for name in ("there", "gone"):
        table.add_column(name, justify="right")
    for noun, count in kinds.items():
        table.add_row(noun, str(count["there"]), str(count["gone"]))
    stdout.print(table)
    stdout.print("{position} events in {seconds} s ({eventsPerSecond}/s); last hash {hash}".format(**told))


def export(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="Where to; '-' is standard output.")],
    first: Annotated[int, typer.Option("--from", metavar="POSITION", help="First position.")] = 1,
    last: Annotated[int | None, typer.Option("--to", metavar="POSITION", help="Last position.")] = None,
    db: Db = None,
    output: Annotated[
        ExportFormat, typer.Option("--output", "-o", help="Only jsonl can be imported and verified again.")
    ] = ExportFormat.jsonl,
) -> None:
    """Write a range of the log to a file that can be verified anywhere, imported, and used as an anchor."""
    with opened(db) as database, database.read() as connection:
        manifest = manifest_of(connection, first=first, last=last, now=now_us())
        with bar("Exporting", manifest.last) as progress, written(file) as out:
            events = events_of(connection, manifest, progress=progress)
            if output is ExportFormat.csv:
                write_csv(out, events)
            else:
                write_jsonl(out, manifest, events)


def import_file(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="What export wrote; '-' is standard input.")],
    check: Annotated[bool, typer.Option("--check", help="Only verify the file; no store is needed.")] = False,
    db: Db = None,
) -> None:
    """Make an empty, migrated store into what an exported log says, views included; all of it or nothing.

    Exit 5 with line and position where the file is not what was once exported.
    """
    with lines_of(file) as lines:
        if check:
            with explained():
                manifest = verify_export(lines)
        else:
            with opened(db) as database, bar("Importing", None) as progress:
                manifest = import_log(database, lines, progress=progress)
    done = "verified" if check else "imported"
    stdout.print(f"{manifest.count} events {done}, positions {manifest.first} to {manifest.last}")


def _fail(findings: list[Finding], more: int) -> NoReturn:
    left = len(findings) - SHOWN + more
    messages = [str(it) for it in findings[:SHOWN]]
    if left > 0:
        messages.append(f"and {left} more; see them with -o json")
    fail(Exit.INTEGRITY, *messages)


def _last(database: Database) -> int:
    with database.read() as connection:
        return read_head(connection).position


def _until(database: Database, until: str | None) -> int:
    with database.read() as connection:
        end = read_head(connection).position
        if until is None:
            return end
        if not until.isdecimal():
            return position_at(connection, parse_time(until))
    if int(until) > end:
        fail(Exit.NOT_FOUND, f"position {until} is not there yet; the log ends at {end}")
    return int(until)


def _counts(states: dict[str, State]) -> dict[str, dict[str, int]]:
    """Per kind of stream: how many there are, and how many objects were deleted."""
    counts: Counter[tuple[str, bool]] = Counter()
    for stream, state in states.items():
        counts[noun_and_key(stream)[0], isinstance(state, ObjectState) and state.manifest is None] += 1
    nouns = sorted({noun for noun, _ in counts})
    return {noun: {"there": counts[noun, False], "gone": counts[noun, True]} for noun in nouns}


def _read_anchor(path: Path) -> Anchor:
    with lines_of(str(path)) as lines, explained():
        return parse_anchor(next(lines, ""))


def _print_json(told: dict[str, Any]) -> None:
    stdout.print_json(json.dumps(told))
