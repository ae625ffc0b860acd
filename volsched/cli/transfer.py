"""`volsched export`, `import-log`, `archive`: the log as files."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from volsched.cli.console import Exit, Output, OutputOption, fail, print_json, stderr, stdout
from volsched.cli.files import lines_of, written
from volsched.cli.remote.paths import own
from volsched.cli.remote.server_choice import chosen_server
from volsched.cli.store_option import Db, bar, explained, now_us, opened, position_of
from volsched.log.retention.archive import archive as archive_log
from volsched.log.retention.export import events_of, manifest_of, write_csv, write_jsonl
from volsched.log.retention.import_files import import_log, verify_export

if TYPE_CHECKING:
    from volsched.cli.remote.server import RemoteServer

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

volsched import-log --db copy.db 2024.jsonl.gz 2025.jsonl.gz rest.jsonl
"""
ARCHIVE_EXAMPLES = """
Examples:

volsched archive --until 2025-01-01T00:00:00Z --out /mnt/archive/2024.jsonl.gz

volsched archive --until 120000 --out until-120000.jsonl
"""


MOST_AT_ONCE = 50_000
"""Events that a server gives in one answer."""


class ExportFormat(StrEnum):
    jsonl = "jsonl"
    csv = "csv"


def export(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="Where to; '-' is standard output.")],
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
    server = chosen_server(db)
    if server is not None:
        since, until = (None if it is None else str(it) for it in (first, last))
        export_served(server, file, since=since, until=until, output=output)
        return
    with opened(db) as database, database.read() as connection:
        manifest = manifest_of(connection, first=first, last=last, now=now_us())
        with bar("Exporting", manifest.last) as progress, written(file) as out:
            events = events_of(connection, manifest, progress=progress)
            if output is ExportFormat.csv:
                write_csv(out, events)
            else:
                write_jsonl(out, manifest, events)
    if file != "-":
        stderr.print(f"positions {manifest.first} to {manifest.last} are in {escape(file)}")


def export_served(
    server: "RemoteServer", file: str, *, since: str | None, until: str | None, output: ExportFormat
) -> None:
    """A server gives a part at a time; files that follow one another are verified and imported together."""
    if output is ExportFormat.csv:
        fail(Exit.USAGE, "over HTTP there is jsonl alone; run it where the store is, or leave -o out")
    told = server.get(own("export"), {"since": since, "until": until})
    with written(file) as out:
        out.write(told["text"])
    if file != "-":
        stderr.print(f"positions {told['first']} to {told['last']} are in {escape(file)}")
    if told["last"] - told["first"] + 1 >= MOST_AT_ONCE:
        stderr.print(f"there may be more: go on at position {told['last'] + 1}, in another file")


def import_file(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE…|-", help="What export or archive wrote, in order; '-' is standard input."),
    ],
    check: Annotated[bool, typer.Option("--check", help="Only verify the files; no store is needed.")] = False,
    db: Db = None,
) -> None:
    """Make an empty, migrated store into what exported logs say, views included; all of it or nothing.

    Several files must follow one another, such as archives and an export of the rest. Exit 5 with file, line and
    position where one is not what was once exported.
    """
    lines = [*map(lines_of, files)]
    if check:
        with explained(*files):
            manifest = verify_export(*lines)
    else:
        with opened(db, *files) as database, bar("Importing", None) as progress:
            manifest = import_log(database, *lines, progress=progress)
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
        with bar("Archiving", last) as progress:
            done = archive_log(database, until=last, out=out, now=now_us(), progress=progress)
    if output is Output.json:
        told = {"file": str(done.file), "first": done.first, "last": done.last, "removed": done.removed}
        print_json(told)
        return
    stdout.print(
        f"positions {done.first} to {done.last} are in {escape(str(done.file))}; {done.removed} events were taken "
        f"out of the store, which begins at {done.last + 1} now"
    )
