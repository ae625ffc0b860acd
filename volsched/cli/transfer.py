"""`volsched export`, `import-log`, `archive`, `backup`, `restore`: the log, or all of a store, as files."""

from collections.abc import Callable, Iterator
from enum import StrEnum
from itertools import chain, repeat
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from volsched.cli.console import Exit, Output, OutputOption, fail, print_json, stderr, stdout
from volsched.cli.manifest_input import lines_of, output_file
from volsched.cli.moment_option import local_time
from volsched.cli.progress import lines_and_total, progress_bar
from volsched.cli.question_command import answer_to, client_of
from volsched.cli.remote.server_choice import chosen_server
from volsched.cli.store_option import Db, explained, now_us, opened, position_of
from volsched.log.durable_files import import_log, read_first_manifest, verify_export
from volsched.log.reads.tail import read_head
from volsched.log.retention.archive import archive as archive_log
from volsched.log.retention.backup import Backup, back_up, check_backup, read_backup
from volsched.log.retention.backup import restore as restore_store
from volsched.log.retention.export import (
    ExportError,
    events_of,
    manifest_of,
    read_manifest,
    write_csv,
    write_jsonl,
)
from volsched.log.store import migrate_store
from volsched.questions.audit.parameters import MOST_EXPORTED
from volsched.runtime.clock import rfc3339
from volsched.runtime.settings import database_url
from volsched.runtime.user_files import default_url

EXPORT_EXAMPLES = """
Examples:

volsched export history.jsonl

volsched export - | gzip > history.jsonl.gz

volsched export --from 1000 --to 2000 -o csv range.csv
"""
IMPORT_EXAMPLES = """
Examples:

volsched import-log --check history.jsonl

volsched import-log --db copy.db history.jsonl

volsched import-log --db copy.db 2024.jsonl.gz 2025.jsonl.gz rest.jsonl
"""
ARCHIVE_EXAMPLES = """
Examples:

volsched archive --until 2025-01-01T00:00:00Z --out /mnt/archive/2024.jsonl.gz

volsched archive --until 120000 --out until-120000.jsonl
"""


class ExportFormat(StrEnum):
    jsonl = "jsonl"
    csv = "csv"


def export(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="The file; '-' is standard output.")],
    first: Annotated[
        int | None, typer.Option("--from", metavar="POSITION", help="First position; else the first there is.")
    ] = None,
    last: Annotated[int | None, typer.Option("--to", metavar="POSITION", help="Last position.")] = None,
    db: Db = None,
    output: Annotated[
        ExportFormat, typer.Option("--output", "-o", help="Only jsonl can be imported and verified again.")
    ] = ExportFormat.jsonl,
) -> None:
    """Write a range of the log to a file that can be verified anywhere, imported, and used as an anchor."""
    if chosen_server(db) is not None:
        since, until = (None if it is None else str(it) for it in (first, last))
        export_served(db, file, since=since, until=until, output=output)
        return
    with opened(db) as database, database.read() as connection:
        manifest = manifest_of(connection, first=first, last=last, now=now_us())
        with progress_bar("Exporting", manifest.last) as progress, output_file(file) as out:
            events = events_of(connection, manifest, progress=progress)
            if output is ExportFormat.csv:
                write_csv(out, events)
            else:
                write_jsonl(out, manifest, events)
    if file != "-":
        stderr.print(f"positions {manifest.first} to {manifest.last} are in {escape(file)}")


def export_served(
    db: str | None, file: str, *, since: str | None, until: str | None, output: ExportFormat
) -> None:
    """A server exports a part at a time; consecutive files are verified and imported together."""
    if output is ExportFormat.csv:
        fail(Exit.USAGE, "over HTTP there is jsonl alone; run it where the store is, or leave -o out")
    with client_of(db) as client:
        part = answer_to(client, "export", since=since, until=until)
    with output_file(file) as out:
        out.write(part["text"])
    if file != "-":
        stderr.print(f"positions {part['first']} to {part['last']} are in {escape(file)}")
    if part["last"] - part["first"] + 1 >= MOST_EXPORTED:
        stderr.print(f"there may be more: continue at position {part['last'] + 1}, in another file")


def import_file(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE…|-", help="Files of export or archive, in order; '-' is standard input."),
    ],
    check: Annotated[bool, typer.Option("--check", help="Only verify the files; no store is needed.")] = False,
    db: Db = None,
) -> None:
    """Import exported logs into an empty or new store, views included; all of it or nothing.

    Several files must be consecutive, such as archives and an export of the rest. Exit 5 with file, line and
    position if one is not what was exported.
    """
    lines = [*map(lines_of, files)]
    if check:
        with explained(*files):
            manifest = verify_export(*lines)
    else:
        with explained(*files):
            headers = [read_first_manifest, *repeat(read_manifest, len(lines) - 1)]
            lines = [
                _with_header(it, read, file) for file, (it, read) in enumerate(zip(lines, headers, strict=True))
            ]
        with opened(db, *files, creates=True) as database:
            *earlier, (final, last) = (lines_and_total(it, "last") for it in lines)
            with progress_bar("Importing", last) as progress:
                manifest = import_log(database, *(it for it, _ in earlier), final, progress=progress)
    done = "verified" if check else "imported"
    stdout.print(f"{manifest.count} events {done}, positions {manifest.first} to {manifest.last}")


def archive(
    until: Annotated[
        str, typer.Option(metavar="POSITION|TIME", help="The last position, or time (ISO 8601), to archive.")
    ],
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="A new file, such as 2024.jsonl; compressed if it ends in .gz.")
    ],
    db: Db = None,
    output: OutputOption = Output.table,
) -> None:
    """Move the oldest events into a file that can be verified and imported, and out of the store.

    The file is complete and safe before the first event goes; writers go on meanwhile. Run the same command again
    if it was interrupted. The events of open bindings, of the last two minutes and the last one of all stay.
    Afterwards the store no longer knows what was before: keep the file.
    """
    with opened(db, str(out)) as database:
        last = position_of(database, until)
        with progress_bar("Archiving", last) as progress:
            part = archive_log(database, until=last, out=out, now=now_us(), progress=progress)
    if output is Output.json:
        document = {"file": str(part.file), "first": part.first, "last": part.last, "removed": part.removed}
        print_json(document)
        return
    stdout.print(
        f"positions {part.first} to {part.last} are in {escape(str(part.file))}; {part.removed} events were taken "
        f"out of the store, which begins at {part.last + 1} now"
    )


# `volsched backup`, `restore`: all of a store in one file, and a store from such a file.

BACKUP_EXAMPLES = """**Examples**

`volsched backup /mnt/backups/monday.jsonl.gz` while everything runs

`volsched backup --check /mnt/backups/monday.jsonl.gz` reads it again, without any store
"""
RESTORE_EXAMPLES = """**Examples**

`volsched restore monday.jsonl.gz --db new.db`, then `volsched recover --db new.db`

`volsched restore monday.jsonl.gz --db postgresql://volsched@db.example/volsched` works for an SQLite store, too
"""


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file; compressed if it ends in .gz.")],
    check: Annotated[
        bool, typer.Option("--check", help="Only verify an existing file; no store is needed.")
    ] = False,
    db: Db = None,
    output: OutputOption = Output.table,
) -> None:
    """Write the log and the queued work of one moment to a file that can be verified. Writers go on meanwhile.

    The file gets its name when it is complete, on disk and read back; an existing one is never replaced. Its first
    line is an anchor. Exit 5 if the log does not verify, or a checked file is not what was written.
    """
    if check:
        with explained(str(file)):
            summary = check_backup(lines_of(str(file)))
    else:
        if file.exists():
            fail(Exit.USAGE, f"{file} exists already, and a backup replaces nothing; name another file")
        with opened(db, str(file)) as database:
            with database.read() as connection:
                last = read_head(connection).position
            with progress_bar("Backing up", last) as progress:
                summary = back_up(database, out=file, now=now_us(), progress=progress)
    _report(file, summary, "is whole" if check else "is written", output)


def restore(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="A file of backup; '-' is standard input.")],
    db: Db = None,
    output: OutputOption = Output.table,
) -> None:
    """Restore a backup into an empty store, views included; all of it or nothing.

    Tables are created if there are none. A store with any data is refused. Everything is verified on the way: exit
    5 if the file is not what was written. Then run `volsched recover`, and start the processes.
    """
    with explained(file):
        lines = _with_header(lines_of(file), read_backup)
    with explained():
        url = database_url(db)
        migrate_store(url, make_directory=url == default_url())
    with opened(db, file) as database:
        lines, last = lines_and_total(lines, "position")
        with progress_bar("Restoring", last) as progress:
            summary = restore_store(database, lines, progress=progress)
    _report(Path(file), summary, "is restored", output)
    if output is Output.table:
        stdout.print("next: volsched recover, then start the processes; what happened since is not in it")


def _with_header(lines: Iterator[str], read: Callable[[Iterator[str]], object], file: int = 0) -> Iterator[str]:
    """The same lines, when the first one is read: a wrong file is refused before a store is created for it."""
    first = next(lines, "")
    try:
        read(iter([first]))
    except ExportError as error:
        error.file = file
        raise
    return chain([first], lines)


def _report(file: Path, summary: Backup, done: str, output: Output) -> None:
    if output is Output.json:
        document = {
            "file": str(file),
            "position": summary.head.position,
            "hash": summary.head.hash.hex(),
            "rows": summary.rows,
        }
        print_json(document | {"takenAt": rfc3339(summary.taken_at)})
        return
    events = summary.rows.get("events", 0)
    stdout.print(
        f"{escape(str(file))} {done}: {events} events up to position {summary.head.position}, "
        f"taken {local_time(rfc3339(summary.taken_at))}; last hash {summary.head.hash.hex()}"
    )
